package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Pods is the part of Subnet that pods get their addresses from.
var Pods = netip.MustParsePrefix("10.213.254.0/24")

// programs are the test programs that stand for images.
var programs = map[string]string{operatorImage: "capk3s-manager"}

// secretsFolder is where a pod finds the credentials of its service account.
const secretsFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// Pod is the one pod of a Deployment. In place of a kubelet, the world runs its
// container as a process: with a network of its own, with the arguments, the
// environment, the probes and the service account of the Deployment.
type Pod struct {
	*Process
	// Address of the pod.
	Address netip.Addr
	// User is what the API server calls its service account.
	User string
}

// startPod runs a Deployment's pod and waits for its probes. Further arguments
// come after those of the Deployment.
func (m *Management) startPod(ctx context.Context, key client.ObjectKey, more []string) (*Pod, error) {
	deployment := &appsv1.Deployment{}
	if err := m.Client.Get(ctx, key, deployment); err != nil {
		return nil, fmt.Errorf("reading Deployment %s: %w", key.Name, err)
	}
	spec := deployment.Spec.Template.Spec
	if len(spec.Containers) != 1 || len(spec.InitContainers) > 0 || len(spec.Volumes) > 0 {
		return nil, fmt.Errorf("running Deployment %s: only pods with one container and no volume can be run", key.Name)
	}
	container := &spec.Containers[0]
	program, err := programOf(container)
	if err != nil {
		return nil, fmt.Errorf("running Deployment %s: %w", key.Name, err)
	}
	pod := &Pod{Address: m.world.nextPodAddress(), User: "system:serviceaccount:" + key.Namespace + ":" + spec.ServiceAccountName}
	environment, err := m.podEnvironment(key, container, pod)
	if err != nil {
		return nil, fmt.Errorf("running Deployment %s: %w", key.Name, err)
	}
	credentials, err := m.mountServiceAccount(ctx, key.Namespace, spec.ServiceAccountName)
	if err != nil {
		return nil, err
	}
	network := strings.Join([]string{"pod", m.options.Name, key.Name}, "_")
	if err := makePodNetwork(ctx, network, pod.Address); err != nil {
		return nil, err
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		return nil, fmt.Errorf("running Deployment %s: %w", key.Name, err)
	}
	// Each step replaces the one before, so that the process stays the same.
	args := []string{
		"netns", "exec", network,
		"sh", "-c", `mount --bind "$0" ` + secretsFolder + ` && exec env -i "$@"`, credentials,
	}
	args = append(append(args, environment...), program)
	args = append(append(args, container.Args...), more...)
	pod.Process = &Process{Name: key.Name, path: ip, args: args, restarts: true, ready: func(ctx context.Context) error {
		return errors.Join(probe(ctx, pod, container, container.ReadinessProbe), probe(ctx, pod, container, container.LivenessProbe))
	}}
	return pod, m.launch(ctx, pod.Process)
}

// programOf finds the program that stands for a container's image.
func programOf(container *corev1.Container) (string, error) {
	image, _, _ := strings.Cut(container.Image, ":")
	name, found := programs[image]
	if !found || len(container.Command) > 0 {
		return "", fmt.Errorf("there is no program for image %s with command %q", container.Image, container.Command)
	}
	return Program(name)
}

// podEnvironment is what a kubelet sets for a container, as NAME=VALUE.
func (m *Management) podEnvironment(key client.ObjectKey, container *corev1.Container, pod *Pod) ([]string, error) {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(m.apiURL(), "https://"))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{
		"metadata.namespace": key.Namespace, "metadata.name": key.Name + "-0",
		"metadata.uid": string(uuid.NewUUID()), "status.podIP": pod.Address.String(),
	}
	environment := []string{"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port, "HOSTNAME=" + key.Name + "-0"}
	for _, variable := range container.Env {
		value := variable.Value
		if variable.ValueFrom != nil {
			var known bool
			if variable.ValueFrom.FieldRef != nil {
				value, known = fields[variable.ValueFrom.FieldRef.FieldPath]
			}
			if !known {
				return nil, fmt.Errorf("the source of variable %s isn't known", variable.Name)
			}
		}
		environment = append(environment, variable.Name+"="+value)
	}
	return environment, nil
}

// mountServiceAccount writes the credentials of a service account into a folder.
func (m *Management) mountServiceAccount(ctx context.Context, namespace, name string) (string, error) {
	token, err := m.serviceAccountToken(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(secretsFolder, 0o755); err != nil {
		return "", fmt.Errorf("making the folder of service account %s: %w", name, err)
	}
	folder := m.path(filepath.Join("serviceaccounts", namespace, name))
	return folder, writeFiles(folder, map[string][]byte{"token": []byte(token), "ca.crt": m.ca.pem, "namespace": []byte(namespace)})
}

// serviceAccountToken asks for a token that outlives any test.
func (m *Management) serviceAccountToken(ctx context.Context, namespace, name string) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](86400)}}
	if err := m.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("asking for a token of service account %s: %w", name, err)
	}
	return request.Status.Token, nil
}

func (w *World) nextPodAddress() netip.Addr {
	address := Pods.Addr().As4()
	address[3] = byte(w.pods.Add(1))
	return netip.AddrFrom4(address)
}

// makePodNetwork makes a network namespace that is plugged into the bridge, or
// makes it again.
func makePodNetwork(ctx context.Context, name string, address netip.Addr) error {
	_ = exec.CommandContext(ctx, "ip", "netns", "delete", name).Run() // of the pod's last run
	octets := address.As4()
	port := "p" + strconv.Itoa(int(octets[3]))
	for _, line := range []string{
		"netns add " + name,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %s", port, name),
		fmt.Sprintf("link set %s master %s up", port, Bridge),
		fmt.Sprintf("-n %s link set lo up", name),
		fmt.Sprintf("-n %s address add %s/%d dev eth0", name, address, Subnet.Bits()),
		fmt.Sprintf("-n %s link set eth0 up", name),
	} {
		if out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// probe is nil if the pod's answer is what the probe waits for.
func probe(ctx context.Context, pod *Pod, container *corev1.Container, probe *corev1.Probe) error {
	if probe == nil {
		return nil
	}
	if probe.HTTPGet == nil {
		return errors.New("only HTTP probes can be run")
	}
	port := probe.HTTPGet.Port.IntVal
	for _, named := range container.Ports {
		if probe.HTTPGet.Port.Type == intstr.String && named.Name == probe.HTTPGet.Port.StrVal {
			port = named.ContainerPort
		}
	}
	return getOK(ctx, fmt.Sprintf("http://%s:%d%s", pod.Address, port, probe.HTTPGet.Path))
}
