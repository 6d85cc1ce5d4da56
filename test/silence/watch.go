package silence

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Watch learns the tokens of all clusters in a management cluster, and hears its events, its ConfigMaps and all
// objects of Cluster API and its providers, each in every state that it gets into. It returns once it knows what there
// is, and goes on until the context ends.
func (g *Guard) Watch(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	resources, err := spokenResources(config)
	if err != nil {
		return err
	}
	secrets := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, metav1.NamespaceAll,
		func(options *metav1.ListOptions) { options.LabelSelector = clusterv1.ClusterNameLabel })
	objects := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	if err := follow(secrets.ForResource(corev1.SchemeGroupVersion.WithResource("secrets")).Informer(), g.learnObject); err != nil {
		return err
	}
	for _, resource := range resources {
		if err := follow(objects.ForResource(resource).Informer(), g.hearObject); err != nil {
			return err
		}
	}
	for _, factory := range []dynamicinformer.DynamicSharedInformerFactory{secrets, objects} {
		factory.Start(ctx.Done())
		for resource, synced := range factory.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return fmt.Errorf("listing %s: %w", resource.Resource, ctx.Err())
			}
		}
	}
	return nil
}

// spokenResources are those that can be watched, and that anybody may read who may read a cluster's objects.
func spokenResources(config *rest.Config) ([]schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a discovery client: %w", err)
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("asking for what there is: %w", err)
	}
	resources := []schema.GroupVersionResource{
		corev1.SchemeGroupVersion.WithResource("events"), corev1.SchemeGroupVersion.WithResource("configmaps"),
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("reading what there is: %w", err)
		}
		if !strings.HasSuffix(version.Group, clusterv1.GroupVersion.Group) {
			continue
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "watch") {
				resources = append(resources, version.WithResource(resource.Name))
			}
		}
	}
	return resources, nil
}

// follow tells of every state of the objects.
func follow(informer cache.SharedIndexInformer, tell func(*unstructured.Unstructured)) error {
	// A management cluster that ends or crashes is part of the tests.
	if err := informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
		return fmt.Errorf("setting up a watch: %w", err)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell(object.(*unstructured.Unstructured)) },
		UpdateFunc: func(_, object any) { tell(object.(*unstructured.Unstructured)) },
	})
	if err != nil {
		return fmt.Errorf("setting up a watch: %w", err)
	}
	return nil
}

func (g *Guard) learnObject(object *unstructured.Unstructured) {
	secret := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, secret); err == nil {
		g.Learn(secret)
	}
}

func (g *Guard) hearObject(object *unstructured.Unstructured) {
	g.Hear(fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName()), object.Object)
}
