package testenv

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// Version is the K3s version of the objects that the builders make.
const Version = "v1.36.3+k3s1"

// Cluster returns a Cluster with an endpoint, whose control plane is the one that ControlPlane makes for it.
func Cluster(namespace, name string, change ...func(*clusterv1.Cluster)) *clusterv1.Cluster {
	return changed(&clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443},
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: controlplanev1.GroupVersion.Group, Kind: "KThreesControlPlane", Name: name + "-control-plane",
			},
			InfrastructureRef: infrastructure("GenericInfrastructureCluster", name),
		},
	}, change)
}

// ControlPlane returns a control plane with one replica for a Cluster. When the Cluster exists already, it is its
// owner.
func ControlPlane(cluster *clusterv1.Cluster, change ...func(*controlplanev1.KThreesControlPlane)) *controlplanev1.KThreesControlPlane {
	obj := &controlplanev1.KThreesControlPlane{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace,
			Name:      cluster.Name + "-control-plane",
			Labels:    map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
		},
		Spec: controlplanev1.KThreesControlPlaneSpec{
			Replicas: ptr.To[int32](1),
			Version:  Version,
		},
	}
	obj.Spec.MachineTemplate.Spec.InfrastructureRef = infrastructure("GenericInfrastructureMachineTemplate", cluster.Name)
	if cluster.UID != "" {
		obj.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID,
		}}
	}
	return changed(obj, change)
}

// Machine returns a worker's Machine, whose KThreesConfig and infrastructure machine have its name.
func Machine(cluster *clusterv1.Cluster, name string, change ...func(*clusterv1.Machine)) *clusterv1.Machine {
	return changed(&clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace,
			Name:      name,
			Labels:    map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
		},
		Spec: clusterv1.MachineSpec{
			ClusterName: cluster.Name,
			Version:     Version,
			Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KThreesConfig", Name: name,
			}},
			InfrastructureRef: infrastructure("GenericInfrastructureMachine", name),
		},
	}, change)
}

// OfControlPlane makes a Machine one of a control plane; pass it to Machine. When the control plane exists already,
// it is the Machine's controller.
func OfControlPlane(controlPlane *controlplanev1.KThreesControlPlane) func(*clusterv1.Machine) {
	return func(machine *clusterv1.Machine) {
		machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		machine.Labels[clusterv1.MachineControlPlaneNameLabel] = controlPlane.Name
		if controlPlane.UID != "" {
			machine.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(controlPlane,
				controlplanev1.GroupVersion.WithKind("KThreesControlPlane"))}
		}
	}
}

// Config returns the KThreesConfig of a Machine. When the Machine exists already, it is its controller.
func Config(machine *clusterv1.Machine, change ...func(*bootstrapv1.KThreesConfig)) *bootstrapv1.KThreesConfig {
	obj := &bootstrapv1.KThreesConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: machine.Namespace,
		Name:      machine.Name,
		Labels:    map[string]string{clusterv1.ClusterNameLabel: machine.Spec.ClusterName},
	}}
	if machine.UID != "" {
		obj.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}
	}
	return changed(obj, change)
}

// Secret returns a Secret of Cluster API's type with the label of a cluster.
func Secret(cluster *clusterv1.Cluster, name string, data map[string]string, change ...func(*corev1.Secret)) *corev1.Secret {
	obj := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace,
			Name:      name,
			Labels:    map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
		},
		Type: clusterv1.ClusterSecretType,
		Data: make(map[string][]byte, len(data)),
	}
	for key, value := range data {
		obj.Data[key] = []byte(value)
	}
	return changed(obj, change)
}

func infrastructure(kind, name string) clusterv1.ContractVersionedObjectReference {
	return clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: kind, Name: name}
}

func changed[T any](obj T, change []func(T)) T {
	for _, f := range change {
		f(obj)
	}
	return obj
}
