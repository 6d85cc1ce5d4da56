// Package node plays the kubelet: it registers the Node and keeps it alive. No
// pod ever runs.
package node

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/version"
)

// UninitializedTaint keeps pods off a Node until a cloud controller has seen it.
const UninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// Spec is what a kubelet was told.
type Spec struct {
	// Name is the Node's name.
	Name string
	// IPs are its internal addresses, ExternalIPs the others.
	IPs, ExternalIPs []net.IP
	// Labels are the configured node labels.
	Labels map[string]string
	// Taints are set when the Node is registered.
	Taints []corev1.Taint
	// ProviderID is spec.providerID; empty leaves it to a cloud controller.
	ProviderID string
	// Annotations are K3s' own.
	Annotations map[string]string
}

// NewSpec reads the node's part of a configuration. disableCCM is what the
// cluster's servers say about their cloud controller.
func NewSpec(cfg *config.Config, disableCCM bool) (*Spec, error) {
	labels, err := parseLabels(cfg.NodeLabels)
	if err != nil {
		return nil, err
	}
	taints, err := parseTaints(cfg.NodeTaints)
	if err != nil {
		return nil, err
	}
	spec := &Spec{Name: cfg.NodeName, IPs: cfg.NodeIPs, Labels: labels, Taints: taints}
	cloudProvider := ""
	if !disableCCM {
		cloudProvider = "external"
		spec.ExternalIPs = cfg.NodeExternalIPs
	}
	for _, arg := range cfg.KubeletArgs {
		key, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch key {
		case "provider-id":
			spec.ProviderID = value
		case "cloud-provider":
			cloudProvider = value
		}
	}
	if cloudProvider == "external" {
		spec.Taints = append(spec.Taints, corev1.Taint{Key: UninitializedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	spec.Annotations, err = annotations(cfg)
	return spec, err
}

// object is the Node to register.
func (s *Spec) object() *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        s.Name,
			Labels:      s.defaultLabels(),
			Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec:   corev1.NodeSpec{ProviderID: s.ProviderID, Taints: s.Taints},
		Status: s.status(),
	}
	for key, value := range s.Labels {
		node.Labels[key] = value
	}
	return node
}

func (s *Spec) defaultLabels() map[string]string {
	return map[string]string{
		"kubernetes.io/hostname":  s.Name,
		"kubernetes.io/os":        runtime.GOOS,
		"kubernetes.io/arch":      runtime.GOARCH,
		"beta.kubernetes.io/os":   runtime.GOOS,
		"beta.kubernetes.io/arch": runtime.GOARCH,
	}
}

// status is what the kubelet reports about the machine.
func (s *Spec) status() corev1.NodeStatus {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory(), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(110, resource.DecimalSI),
	}
	status := corev1.NodeStatus{
		Capacity:        capacity,
		Allocatable:     capacity,
		Conditions:      s.conditions(),
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID:               firstLine("/etc/machine-id"),
			SystemUUID:              firstLine("/etc/machine-id"),
			BootID:                  firstLine("/proc/sys/kernel/random/boot_id"),
			KernelVersion:           firstLine("/proc/sys/kernel/osrelease"),
			OSImage:                 "K3s emulator",
			ContainerRuntimeVersion: "containerd://2.1.0-k3s1",
			KubeletVersion:          version.Current(),
			OperatingSystem:         runtime.GOOS,
			Architecture:            runtime.GOARCH,
		},
	}
	for _, ip := range s.IPs {
		status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
	}
	for _, ip := range s.ExternalIPs {
		status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip.String()})
	}
	status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: s.Name})
	return status
}

func (s *Spec) conditions() []corev1.NodeCondition {
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	return []corev1.NodeCondition{
		condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
}

// memory is the machine's memory in bytes; 0 if it can't be read.
func memory() int64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kilobytes int64
	if _, err := fmt.Sscanf(string(raw), "MemTotal: %d kB", &kilobytes); err != nil {
		return 0
	}
	return kilobytes * 1024
}

func firstLine(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	return line
}
