package testenv

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Verb is a kind of request to the API server.
type Verb string

// The verbs that the clients of this package tell apart. A write of a subresource counts as Update, Patch, Create or
// Apply.
const (
	Get         Verb = "get"
	List        Verb = "list"
	Watch       Verb = "watch"
	Create      Verb = "create"
	Update      Verb = "update"
	Patch       Verb = "patch"
	Apply       Verb = "apply"
	Delete      Verb = "delete"
	DeleteAllOf Verb = "deleteAllOf"
)

// Call is one request: its verb, the Go type and the name of its object (empty for lists).
type Call struct {
	Verb Verb
	Type string
	Name string
}

// String returns the call as, for example, "patch *v1.Secret c-token".
func (c Call) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Verb, c.Type, c.Name))
}

// Counter records the requests that went through a client of Count.
type Counter struct {
	mu    sync.Mutex
	calls []Call
}

// Count returns a client that works like c and a counter of its requests.
func Count(c client.WithWatch) (client.WithWatch, *Counter) {
	counter := &Counter{}
	return hook(c, func(call Call) error {
		counter.mu.Lock()
		defer counter.mu.Unlock()
		counter.calls = append(counter.calls, call)
		return nil
	}), counter
}

// Calls returns the requests made so far with one of the verbs, or all of them.
func (c *Counter) Calls(verbs ...Verb) []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var calls []Call
	for _, call := range c.calls {
		if len(verbs) == 0 || slices.Contains(verbs, call.Verb) {
			calls = append(calls, call)
		}
	}
	return calls
}

// Reads returns the requests that changed nothing.
func (c *Counter) Reads() []Call { return c.Calls(Get, List, Watch) }

// Writes returns the requests that could change something.
func (c *Counter) Writes() []Call {
	return c.Calls(Create, Update, Patch, Apply, Delete, DeleteAllOf)
}

// Reset forgets the requests made so far.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = nil
}

// Before returns a client that works like c, but calls do before its nth request (from 1) with the verb. An error
// from do is returned in place of making the request.
func Before(c client.WithWatch, verb Verb, nth int, do func(Call) error) client.WithWatch {
	var mu sync.Mutex
	seen := 0
	return hook(c, func(call Call) error {
		if call.Verb != verb {
			return nil
		}
		mu.Lock()
		seen++
		now := seen == nth
		mu.Unlock()
		if !now {
			return nil
		}
		return do(call)
	})
}

// FailOn returns a client that works like c, but whose nth request (from 1) with the verb fails with err.
func FailOn(c client.WithWatch, verb Verb, nth int, err error) client.WithWatch {
	return Before(c, verb, nth, func(Call) error { return err })
}

// hook returns a client that asks before each request; an error takes the place of the request.
func hook(c client.WithWatch, before func(Call) error) client.WithWatch {
	return interceptor.NewClient(c, hooks(before))
}

func hooks(before func(Call) error) interceptor.Funcs {
	ask := func(verb Verb, obj any) error {
		call := Call{Verb: verb, Type: fmt.Sprintf("%T", obj)}
		if named, ok := obj.(interface{ GetName() string }); ok {
			call.Name = named.GetName()
		}
		return before(call)
	}
	funcs := interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := ask(Create, obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if err := ask(Update, obj); err != nil {
				return err
			}
			return c.Update(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := ask(Patch, obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if err := ask(Apply, obj); err != nil {
				return err
			}
			return c.Apply(ctx, obj, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if err := ask(Delete, obj); err != nil {
				return err
			}
			return c.Delete(ctx, obj, opts...)
		},
		DeleteAllOf: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
			if err := ask(DeleteAllOf, obj); err != nil {
				return err
			}
			return c.DeleteAllOf(ctx, obj, opts...)
		},
	}
	addReads(&funcs, ask)
	addSubResources(&funcs, ask)
	return funcs
}
