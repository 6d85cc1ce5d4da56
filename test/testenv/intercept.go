package testenv

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func addReads(funcs *interceptor.Funcs, ask func(Verb, any) error) {
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
		// The object that a Get fills has no name yet.
		obj.SetName(key.Name)
		if err := ask(Get, obj); err != nil {
			return err
		}
		return c.Get(ctx, key, obj, opts...)
	}
	funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if err := ask(List, list); err != nil {
			return err
		}
		return c.List(ctx, list, opts...)
	}
	funcs.Watch = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
		if err := ask(Watch, list); err != nil {
			return nil, err
		}
		return c.Watch(ctx, list, opts...)
	}
}

func addSubResources(funcs *interceptor.Funcs, ask func(Verb, any) error) {
	funcs.SubResourceGet = func(ctx context.Context, c client.Client, sub string, obj, subObj client.Object, opts ...client.SubResourceGetOption) error {
		if err := ask(Get, obj); err != nil {
			return err
		}
		return c.SubResource(sub).Get(ctx, obj, subObj, opts...)
	}
	funcs.SubResourceCreate = func(ctx context.Context, c client.Client, sub string, obj, subObj client.Object, opts ...client.SubResourceCreateOption) error {
		if err := ask(Create, obj); err != nil {
			return err
		}
		return c.SubResource(sub).Create(ctx, obj, subObj, opts...)
	}
	funcs.SubResourceUpdate = func(ctx context.Context, c client.Client, sub string, obj client.Object, opts ...client.SubResourceUpdateOption) error {
		if err := ask(Update, obj); err != nil {
			return err
		}
		return c.SubResource(sub).Update(ctx, obj, opts...)
	}
	funcs.SubResourcePatch = func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
		if err := ask(Patch, obj); err != nil {
			return err
		}
		return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
	}
	funcs.SubResourceApply = func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
		if err := ask(Apply, obj); err != nil {
			return err
		}
		return c.SubResource(sub).Apply(ctx, obj, opts...)
	}
}
