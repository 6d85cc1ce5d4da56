package plugin

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// access says how to reach the management cluster.
type access struct {
	kubeconfig, context, namespace string
}

// subject is the control plane that a command is about.
type subject struct {
	client       client.Client
	cluster      *clusterv1.Cluster
	controlPlane *controlplanev1.KThreesControlPlane
}

// find reads the control plane of that name and its Cluster.
func (a access) find(ctx context.Context, name string) (*subject, error) {
	wanted, err := parseTarget(name)
	if err != nil {
		return nil, err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
		CurrentContext: a.context, Context: clientcmdapi.Context{Namespace: a.namespace},
	})
	rest, err := config.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of the management cluster (--kubeconfig, --kubeconfig-context): %w", err)
	}
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, fmt.Errorf("reading the namespace of the kubeconfig's context: %w", err)
	}
	c, err := client.New(rest, client.Options{Scheme: scheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client for the management cluster %s: %w", rest.Host, err)
	}
	s := &subject{client: c, cluster: &clusterv1.Cluster{}, controlPlane: &controlplanev1.KThreesControlPlane{}}
	key := client.ObjectKey{Namespace: namespace, Name: wanted.name}
	if wanted.controlPlane {
		err = s.byControlPlane(ctx, key)
	} else {
		err = s.byCluster(ctx, key)
	}
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("the cluster at %s isn't a management cluster for K3s (%w): choose another one with --kubeconfig or --kubeconfig-context, or run clusterctl init --bootstrap k3s --control-plane k3s",
			rest.Host, err)
	}
	return s, err
}

func (s *subject) byCluster(ctx context.Context, key client.ObjectKey) error {
	if err := s.get(ctx, "Cluster", key, s.cluster); err != nil {
		return err
	}
	ref := s.cluster.Spec.ControlPlaneRef
	switch {
	case !ref.IsDefined():
		return fmt.Errorf("there is no control plane in Cluster %s: its spec.controlPlaneRef is empty", key)
	case ref.APIGroup != controlplanev1.GroupVersion.Group || ref.Kind != controlPlaneKind:
		return fmt.Errorf("the control plane of Cluster %s is %s %s; this plugin knows only those of K3s", key, ref.Kind, ref.Name)
	}
	return s.get(ctx, controlPlaneKind, client.ObjectKey{Namespace: key.Namespace, Name: ref.Name}, s.controlPlane)
}

func (s *subject) byControlPlane(ctx context.Context, key client.ObjectKey) error {
	if err := s.get(ctx, controlPlaneKind, key, s.controlPlane); err != nil {
		return err
	}
	cluster, err := util.GetOwnerCluster(ctx, s.client, s.controlPlane.ObjectMeta)
	if err != nil {
		return fmt.Errorf("reading the Cluster of %s %s: %w", controlPlaneKind, key, err)
	}
	if cluster == nil {
		return fmt.Errorf("%s %s has no Cluster as its owner, and so nothing is done for it: name it in spec.controlPlaneRef of its Cluster", controlPlaneKind, key)
	}
	s.cluster = cluster
	return nil
}

func (s *subject) get(ctx context.Context, kind string, key client.ObjectKey, obj client.Object) error {
	err := s.client.Get(ctx, key, obj)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("there is no %s %s in namespace %s: choose another namespace with -n, or list what there is with kubectl get clusters,kthreescontrolplanes -A",
			kind, key.Name, key.Namespace)
	case err != nil:
		return fmt.Errorf("reading %s %s: %w", kind, key, err)
	}
	return nil
}

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, controlplanev1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // The types are fixed at build time.
		}
	}
	return s
}
