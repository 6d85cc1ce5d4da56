package controllers

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/token"
)

// scope is what one reconcile knows. It is filled before anything is decided.
type scope struct {
	now          time.Time
	cluster      *clusterv1.Cluster
	controlPlane *controlplanev1.KThreesControlPlane

	// machines are the Machines of this control plane, those that are being deleted among them. foreign are control
	// plane Machines of the cluster that another controller has.
	machines, foreign collections.Machines

	// configs and infraMachines are what the Machines refer to, by the Machine's name; a missing object is absent.
	configs       map[string]*bootstrapv1.KThreesConfig
	infraMachines map[string]*unstructured.Unstructured

	// schemas say which values of a KThreesConfigSpec are defaults; read only when specs differ.
	schemas specSchemas

	// template is the template of the infrastructure machines; nil when it doesn't exist.
	template *unstructured.Unstructured

	// initialized says whether the cluster was founded, and evidence by what it is known.
	initialized bool
	evidence    string

	// endpointLives says that a server of this cluster answers at the endpoint although there are no Machines.
	endpointLives bool

	certificates    *certs.Set
	certificatesErr error
	token           *token.Token
	tokenErr        error
	kubeconfigErr   error

	// kubeconfigExpiry is when the kubeconfig expires; zero if there is none.
	kubeconfigExpiry time.Time

	workload workload
}

// readScope reads the objects of the management cluster.
func (r *Reconciler) readScope(ctx context.Context, cluster *clusterv1.Cluster, controlPlane *controlplanev1.KThreesControlPlane) (*scope, error) {
	s := &scope{
		now:           time.Now(),
		cluster:       cluster,
		controlPlane:  controlPlane,
		configs:       map[string]*bootstrapv1.KThreesConfig{},
		infraMachines: map[string]*unstructured.Unstructured{},
	}
	all, err := listMachines(ctx, r.Client, cluster)
	if err != nil {
		return nil, err
	}
	s.machines, s.foreign = splitMachines(all, controlPlane)
	for name, machine := range s.machines {
		if err := r.readMachineObjects(ctx, s, name, machine); err != nil {
			return nil, err
		}
	}
	if err := r.readSchemas(ctx, s); err != nil {
		return nil, err
	}
	if s.template, err = r.readTemplate(ctx, controlPlane); err != nil {
		return nil, err
	}
	s.evidence = evidenceOf(cluster, controlPlane, s.machines)
	s.initialized = s.evidence != ""
	return s, nil
}

// listMachines lists the control plane Machines of the cluster, whoever has them.
func listMachines(ctx context.Context, reader client.Reader, cluster *clusterv1.Cluster) (collections.Machines, error) {
	machines, err := collections.GetFilteredMachinesForCluster(ctx, reader, cluster, collections.ControlPlaneMachines(cluster.Name))
	if err != nil {
		return nil, fmt.Errorf("listing the control plane Machines of Cluster %s: %w", cluster.Name, err)
	}
	return machines, nil
}

// splitMachines tells the Machines of the control plane from those of another controller. One that is being deleted
// adopts nobody.
func splitMachines(all collections.Machines, controlPlane *controlplanev1.KThreesControlPlane) (ours, foreign collections.Machines) {
	free := hasNoOtherController(controlPlane)
	ours, foreign = all.Filter(free), all.Filter(collections.Not(free))
	if !controlPlane.DeletionTimestamp.IsZero() {
		ours = ours.Filter(carriesName(controlPlane))
	}
	return ours, foreign
}

func (r *Reconciler) readMachineObjects(ctx context.Context, s *scope, name string, machine *clusterv1.Machine) error {
	// A Machine that was adopted may have bootstrap data of a human's and no configuration.
	if ref := machine.Spec.Bootstrap.ConfigRef; ref.IsDefined() {
		config := &bootstrapv1.KThreesConfig{}
		switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: ref.Name}, config); {
		case err == nil:
			s.configs[name] = config
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading KThreesConfig %s: %w", ref.Name, err)
		}
	}

	infra, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, machine.Spec.InfrastructureRef, machine.Namespace)
	switch {
	case err == nil:
		s.infraMachines[name] = infra
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading %s %s: %w", machine.Spec.InfrastructureRef.Kind, machine.Spec.InfrastructureRef.Name, err)
	}
	return nil
}

// readTemplate reads the template of the infrastructure machines; nil when it doesn't exist.
func (r *Reconciler) readTemplate(ctx context.Context, controlPlane *controlplanev1.KThreesControlPlane) (*unstructured.Unstructured, error) {
	ref := controlPlane.Spec.MachineTemplate.Spec.InfrastructureRef
	template, err := external.GetObjectFromContractVersionedRef(ctx, r.Client, ref, controlPlane.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading %s %s: %w", ref.Kind, ref.Name, err)
	}
	if err != nil {
		return nil, nil
	}
	return template, nil
}

// clock is the time of the reconcile, so that all its parts agree.
func (s *scope) clock() time.Time { return s.now }

// replicas is the desired number of servers.
func (s *scope) replicas() int {
	return int(ptr.Deref(s.controlPlane.Spec.Replicas, 1))
}

// active are the Machines that are not being deleted.
func (s *scope) active() collections.Machines {
	return s.machines.Filter(collections.ActiveMachines)
}

// deleting are the Machines that are being deleted.
func (s *scope) deleting() collections.Machines {
	return s.machines.Filter(collections.HasDeletionTimestamp)
}

// embeddedEtcd says whether the servers run etcd themselves.
func (s *scope) embeddedEtcd() bool {
	return !s.controlPlane.Spec.KThreesConfigSpec.ServerConfig.HasDatastore()
}
