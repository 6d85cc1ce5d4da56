//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/test/world"
)

// rarePermissions are those of each Deployment that no end-to-end test is certain to use, with what does.
var rarePermissions = map[string]map[permission]string{
	"capi-k3s-bootstrap-controller-manager": {
		{"get", "machinepools.cluster.x-k8s.io"}: "TestReconcile_MachinePoolJoinsWithItsVersion",
		{"patch", "secrets"}:                     "TestReconcile_OwnerReferenceIsPutRight",
		deleteSecrets:                            ownersOfSecrets,
		{"patch", "events.events.k8s.io"}:        "an event that comes again within minutes is counted, not made anew",
	},
	"capi-k3s-control-plane-controller-manager": {
		deleteSecrets:                        ownersOfSecrets,
		{"get", "machines.cluster.x-k8s.io"}: "TestReconcile_DeletesOnlyItsOwnStrays",
		{"delete", "kthreesconfigs.bootstrap.cluster.x-k8s.io"}:   "TestReconcile_DeletesOnlyItsOwnStrays",
		{"delete", "*.infrastructure.cluster.x-k8s.io"}:           "TestReconcile_DeletesOnlyItsOwnStrays",
		{"patch", "*.infrastructure.cluster.x-k8s.io"}:            "TestOwnInfrastructureTemplate_MakesTheClusterAnOwner",
		{"get", "customresourcedefinitions.apiextensions.k8s.io"}: "TestReconcile_AnAddedDefaultReplacesNoMachine",
		{"patch", "events.events.k8s.io"}:                         "an event that comes again within minutes is counted, not made anew",
	},
}

// deleteSecrets is a permission that no request may ever use.
var deleteSecrets = permission{"delete", "secrets"}

const ownersOfSecrets = "whoever changes the owners of a Secret needs it where OwnerReferencesPermissionEnforcement is on"

// permission is what a rule allows: one verb on one resource. A resource of the core group has no dot.
type permission struct{ verb, resource string }

func (p permission) String() string { return p.verb + " " + p.resource }

// checkPermissions compares what the operator asked of the API server while the tests ran with what its roles allow,
// and says what is wrong: a request that was refused in the shared management cluster, a Secret that was deleted in any
// and, if all tests passed, a permission that wasn't used in any.
func checkPermissions(ctx context.Context, passed bool) ([]string, error) {
	log, err := management.ReadAuditLog()
	if err != nil {
		return nil, err
	}
	all := log
	for _, m := range others.started {
		// In these, clusterctl and crashes take permissions away for moments.
		other, err := m.ReadAuditLog()
		if err != nil {
			return nil, err
		}
		all = append(all, other...)
	}
	// A run of chosen tests says nothing of what isn't used.
	judgeUnused := passed && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
	var problems []string
	for _, pod := range management.Operator() {
		_, refused := usedBy(pod.User, log)
		for _, p := range sorted(refused) {
			problems = append(problems, fmt.Sprintf("%s lacks the permission to %s", pod.Name, p))
		}
		used, _ := usedBy(pod.User, all)
		if used[deleteSecrets] {
			problems = append(problems, pod.Name+" deleted a Secret")
		}
		if !judgeUnused {
			continue
		}
		allowed, err := allowedFor(ctx, pod.User)
		if err != nil {
			return nil, err
		}
		for _, p := range sorted(allowed) {
			if !isUsed(p, used) && rarePermissions[pod.Name][p] == "" {
				problems = append(problems, fmt.Sprintf("%s has no use for the permission to %s", pod.Name, p))
			}
		}
	}
	return problems, nil
}

func sorted(permissions map[permission]bool) []permission {
	return slices.SortedFunc(maps.Keys(permissions), func(a, b permission) int { return strings.Compare(a.String(), b.String()) })
}

// usedBy lists what a user asked for, and what of it was refused for want of a permission.
func usedBy(user string, log []world.Request) (used, refused map[permission]bool) {
	used, refused = map[permission]bool{}, map[permission]bool{}
	for _, request := range log {
		if request.User.Username != user || request.Object.Resource == "" {
			continue
		}
		p := permission{request.Verb, resourceName(request.Object.Group, request.Object.Resource)}
		if request.Object.Subresource != "" {
			p.resource += "/" + request.Object.Subresource
		}
		switch {
		case request.Annotations["authorization.k8s.io/decision"] == "forbid":
			refused[p] = true
		case strings.Contains(request.Status.Message, "blockOwnerDeletion"):
			refused[permission{"update", "finalizers of the owner in order to " + p.String()}] = true
		default:
			used[p] = true
			switch {
			case request.Verb == "patch" && request.Status.Code == http.StatusCreated:
				// Server-side apply of an object that wasn't there.
				used[permission{"create", p.resource}] = true
			case request.Verb == "watch":
				// An API server that can't begin a watch with what there is has it listed first.
				used[permission{"list", p.resource}] = true
			}
		}
	}
	return used, refused
}

func resourceName(group, resource string) string {
	name, subresource, found := strings.Cut(resource, "/")
	if group != "" {
		name += "." + group
	}
	if found {
		name += "/" + subresource
	}
	return name
}

// isUsed tells whether a permission is of use. That on a subresource "finalizers" is never asked for by a request:
// whoever sets an owner reference that blocks deletion needs it.
func isUsed(p permission, used map[permission]bool) bool {
	if strings.HasSuffix(p.resource, "/finalizers") || used[p] {
		return true
	}
	group, all := strings.CutPrefix(p.resource, "*")
	for u := range used {
		if all && u.verb == p.verb && strings.HasSuffix(u.resource, group) {
			return true
		}
	}
	return false
}

// allowedFor lists what the roles that are bound to a service account allow.
func allowedFor(ctx context.Context, user string) (map[permission]bool, error) {
	clusterRoles, clusterBindings := &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}
	roles, bindings := &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	for _, list := range []client.ObjectList{clusterRoles, clusterBindings, roles, bindings} {
		if err := management.Client.List(ctx, list); err != nil {
			return nil, fmt.Errorf("listing roles: %w", err)
		}
	}
	bound := map[string]bool{}
	for _, binding := range clusterBindings.Items {
		if hasSubject(binding.Subjects, user) {
			bound[binding.RoleRef.Kind+" "+binding.RoleRef.Name] = true
		}
	}
	for _, binding := range bindings.Items {
		if hasSubject(binding.Subjects, user) {
			bound[binding.RoleRef.Kind+" "+binding.RoleRef.Name+" "+binding.Namespace] = true
		}
	}
	allowed := map[permission]bool{}
	for _, role := range clusterRoles.Items {
		if bound["ClusterRole "+role.Name] {
			addRules(allowed, role.Rules)
		}
	}
	for _, role := range roles.Items {
		if bound["Role "+role.Name+" "+role.Namespace] {
			addRules(allowed, role.Rules)
		}
	}
	return allowed, nil
}

func hasSubject(subjects []rbacv1.Subject, user string) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		return s.Kind == rbacv1.ServiceAccountKind && user == "system:serviceaccount:"+s.Namespace+":"+s.Name
	})
}

func addRules(allowed map[permission]bool, rules []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					allowed[permission{verb, resourceName(group, resource)}] = true
				}
			}
		}
	}
}
