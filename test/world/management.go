package world

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	infrav1 "github.com/capk3s/capk3s/test/sandbox/api/v1beta1"
	"github.com/capk3s/capk3s/test/sandbox/machine"
)

// ManagementOptions say what a management cluster is to be like.
type ManagementOptions struct {
	// Name is used for its folders; default "management". Several management
	// clusters in one world need a name each.
	Name string
	// Address is what its programs listen on, one that ManagementAddress
	// returned; default the first. Several management clusters in one world need
	// one each.
	Address string
	// OperatorArgs are added to the operator's command line.
	OperatorArgs []string
	// NoOperator leaves the operator's process to the caller. Its components
	// are installed all the same.
	NoOperator bool
	// K3sVersions are the K3s releases that exist, as shell patterns; default
	// all that the emulator can pose as.
	K3sVersions []string
	// Progress, if not nil, is told what is being done.
	Progress func(string)
}

// Management is a management cluster: real programs with Cluster API core, the
// sandbox provider and the operator.
type Management struct {
	// Kubeconfig is the path of an administrator's kubeconfig.
	Kubeconfig string
	// Config is the same as a client configuration, without rate limit.
	Config *rest.Config
	// Client reads and writes without a cache; it knows the kinds of Cluster API
	// core, the operator and the sandbox provider.
	Client client.WithWatch
	// Host is where the machines are.
	Host *machine.Host
	// AuditLog is the API server's audit log: one JSON object a line, metadata
	// of every request with the stage ResponseComplete. Each program has a user
	// of its own, named like its Process.
	AuditLog string

	// The programs; each can be stopped, killed and started again. etcd keeps
	// what the API server stored.
	Etcd, APIServer, ControllerManager, Core, Sandbox *Process

	// The pods of the operator's two providers.
	Bootstrap, ControlPlane *Pod

	world   *World
	options ManagementOptions
	dir     string
	ca      *authority
}

// apiURL of the management cluster.
func (m *Management) apiURL() string { return "https://" + net.JoinHostPort(m.options.Address, "6443") }

// EnterWithManagement is Enter for the TestMain of tests that share a management
// cluster. It starts one, says what it starts, and exits where that fails.
func EnterWithManagement() (*World, *Management) {
	w := Enter()
	m, err := w.StartManagement(context.Background(), ManagementOptions{
		Progress: func(what string) { fmt.Println("starting", what) },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return w, m
}

// StartManagement starts a management cluster in the world and returns when all
// of it is ready. What was started ends with the world, or by Stop.
func (w *World) StartManagement(ctx context.Context, options ManagementOptions) (*Management, error) {
	if options.Name == "" {
		options.Name = "management"
	}
	if options.Address == "" {
		options.Address = ManagementAddress(1)
	}
	if options.Progress == nil {
		options.Progress = func(string) {}
	}
	host, err := w.Host()
	if err != nil {
		return nil, err
	}
	host.Versions = options.K3sVersions
	m := &Management{Host: host, world: w, options: options, dir: filepath.Join(w.Dir, options.Name)}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"keys and certificates", m.prepare},
		{"etcd", m.startEtcd},
		{"kube-apiserver", m.startAPIServer},
		{"kube-controller-manager", m.startControllerManager},
		{"Cluster API core and the operator, by clusterctl init", m.install},
		{"Cluster API core's manager", m.startCore},
		{"sandbox infrastructure provider", m.startSandbox},
		{"operator", m.startOperator},
	} {
		options.Progress(step.what)
		if err := step.do(ctx); err != nil {
			m.Stop()
			return nil, fmt.Errorf("starting the management cluster: %s: %w", step.what, err)
		}
	}
	return m, nil
}

// Stop ends the management cluster's programs; machines stay.
func (m *Management) Stop() {
	stopPods(m.Bootstrap, m.ControlPlane)
	for _, process := range []*Process{m.Sandbox, m.Core, m.ControllerManager, m.APIServer, m.Etcd} {
		if process != nil {
			process.Stop()
		}
	}
}

// ManagementAddress is the address of the nth management cluster of a world. It
// is on the bridge, since the operator's pods must reach it.
func ManagementAddress(n int) string { return "10.213.253." + strconv.Itoa(n) }

// addAddress gives the bridge one more address.
func addAddress(ctx context.Context, address string) error {
	out, err := exec.CommandContext(ctx, "ip", "address", "replace", address+"/32", "dev", Bridge).CombinedOutput()
	if err != nil {
		return fmt.Errorf("adding address %s to the bridge: %w: %s", address, err, out)
	}
	return nil
}

// prepare writes the keys, certificates and kubeconfigs that the programs need.
func (m *Management) prepare(ctx context.Context) error {
	var err error
	if m.ca, err = newAuthority(); err != nil {
		return err
	}
	address := net.ParseIP(m.options.Address)
	if err := addAddress(ctx, m.options.Address); err != nil {
		return err
	}
	if err := m.ca.writeServing(m.path("apiserver"), "kube-apiserver", address); err != nil {
		return err
	}
	if err := m.ca.writeServing(m.path("webhook"), "webhook", address); err != nil {
		return err
	}
	_, serviceAccountKey, err := m.ca.issue(pkix.Name{CommonName: "service-accounts"})
	if err != nil {
		return err
	}
	if err := writeFiles(m.dir, map[string][]byte{"ca.crt": m.ca.pem, "sa.key": serviceAccountKey, "audit.yaml": auditPolicy}); err != nil {
		return err
	}
	if m.Kubeconfig, err = m.writeKubeconfig("admin", administrators); err != nil {
		return err
	}
	if m.Config, err = clientcmd.BuildConfigFromFlags("", m.Kubeconfig); err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	m.Config.QPS = -1
	return nil
}

func (m *Management) path(name string) string { return filepath.Join(m.dir, name) }

// administrators is the group that may do everything.
const administrators = "system:masters"

// writeKubeconfig writes one for a user, in a group unless that is empty.
func (m *Management) writeKubeconfig(user, group string) (string, error) {
	subject := pkix.Name{CommonName: user}
	if group != "" {
		subject.Organization = []string{group}
	}
	certificate, key, err := m.ca.issue(subject)
	if err != nil {
		return "", err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["world"] = &clientcmdapi.Cluster{Server: m.apiURL(), CertificateAuthorityData: m.ca.pem}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts["world"] = &clientcmdapi.Context{Cluster: "world", AuthInfo: user}
	config.CurrentContext = "world"
	path := m.path(user + ".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return path, nil
}

// start runs a test program under the given name and waits until it is ready.
func (m *Management) start(ctx context.Context, name, program string, env, args []string, ready func(context.Context) error) (*Process, error) {
	path, err := Program(program)
	if err != nil {
		return nil, err
	}
	process := &Process{Name: name, path: path, args: args, env: env, ready: ready}
	return process, m.launch(ctx, process)
}

// launch starts a process and waits until it is ready. One that doesn't get
// ready is ended.
func (m *Management) launch(ctx context.Context, process *Process) error {
	logs := filepath.Join(m.world.LogDir, m.options.Name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return fmt.Errorf("making the log folder: %w", err)
	}
	process.LogPath = filepath.Join(logs, process.Name+".log")
	if err := process.Start(); err != nil {
		return err
	}
	if err := process.AwaitReady(ctx); err != nil {
		process.Kill()
		return err
	}
	return nil
}

// newClient connects to the API server.
func (m *Management) newClient() error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		bootstrapv1.AddToScheme, controlplanev1.AddToScheme, infrav1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering types: %w", err)
		}
	}
	var err error
	if m.Client, err = client.NewWithWatch(m.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

// Repository is the top folder of this repository, found from the working
// directory upwards.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module github.com/capk3s/capk3s\n") {
			return dir, nil
		}
	}
	return "", errors.New("the working directory is outside the repository")
}
