package controllers

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/pkg/k3s"
)

// refusal says why there is no bootstrap data, as a reason and a message for a human. It isn't a failure: trying
// again at once doesn't help.
type refusal struct {
	// condition that is false besides DataSecretAvailable; empty if none.
	condition string

	reason  string
	message string

	// warning says whether somebody must do something about it.
	warning bool

	// again is when to look again; zero if a watch tells.
	again time.Duration
}

// Error returns the reason and the message.
func (r *refusal) Error() string { return r.reason + ": " + r.message }

func waitFor(reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...)}
}

func refuse(reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...), warning: true}
}

// invalid is for an error that begins with the path of a field below the spec.
func invalid(err error) *refusal {
	return refuse(bootstrapv1.InvalidConfigReason, "spec.%v", err)
}

// mayRender asks everything that can be said from the objects of Cluster API alone.
func mayRender(s *scope) error {
	for _, check := range []func(*scope) *refusal{nameIsFree, infrastructureIsProvisioned, versionIsKnown, endpointIsKnown} {
		if r := check(s); r != nil {
			return r
		}
	}
	return nil
}

func infrastructureIsProvisioned(s *scope) *refusal {
	if ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		return nil
	}
	return waitFor(bootstrapv1.WaitingForInfrastructureReason, "Waiting for the infrastructure of Cluster %s", s.cluster.Name)
}

func versionIsKnown(s *scope) *refusal {
	field := "spec.version"
	if s.owner.kind == machinePoolKind {
		field = "spec.template.spec.version"
	}
	if s.owner.version == "" {
		return waitFor(bootstrapv1.WaitingForVersionReason, "Waiting for %s of %s %s", field, s.owner.kind, s.owner.GetName())
	}
	if _, err := k3s.ParseVersion(s.owner.version); err != nil {
		return refuse(bootstrapv1.InvalidConfigReason, "%s of %s %s: %v", field, s.owner.kind, s.owner.GetName(), err)
	}
	return nil
}

func endpointIsKnown(s *scope) *refusal {
	if s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return nil
	}
	return waitFor(bootstrapv1.WaitingForEndpointReason, "Waiting for spec.controlPlaneEndpoint of Cluster %s", s.cluster.Name)
}

// chooseRole says what the machine becomes. A server founds the cluster only by order, and never one that was founded
// already: an order that comes too late, after a restore for example, is one to join. Only the order to found it anew,
// which needs a human, is followed all the same.
func chooseRole(s *scope) (bootdata.Role, error) {
	initialized := conditions.IsTrue(s.cluster, clusterv1.ClusterControlPlaneInitializedCondition)
	order := s.config.Annotations[bootstrapv1.OrderAnnotation]
	switch {
	case s.owner.controlPlane && order == bootstrapv1.OrderInitAnew:
		return bootdata.FirstServer, nil
	case !s.owner.controlPlane && initialized:
		return bootdata.Worker, nil
	case s.owner.controlPlane && initialized:
		return bootdata.JoiningServer, nil
	case s.owner.controlPlane && order == bootstrapv1.OrderInit:
		return bootdata.FirstServer, nil
	}
	return "", waitFor(bootstrapv1.WaitingForControlPlaneReason, "Waiting for the control plane of Cluster %s to be initialized", s.cluster.Name)
}

// noOtherFounder refuses to found a cluster that another Machine may have founded, whether anybody remembers or not.
func noOtherFounder(s *scope, servers []clusterv1.Machine) *refusal {
	for i := range servers {
		other := &servers[i]
		if other.Name == s.owner.GetName() {
			continue
		}
		if other.Spec.Bootstrap.DataSecretName != nil || other.Status.NodeRef.IsDefined() {
			r := waitFor(bootstrapv1.WaitingForControlPlaneReason,
				"Machine %s may have founded Cluster %s: waiting for its control plane to be initialized, to join it", other.Name, s.cluster.Name)
			// The other Machine isn't watched for this config.
			r.again = lockRetry
			return r
		}
	}
	return nil
}
