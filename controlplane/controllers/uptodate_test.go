package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

type jsonValue = apiextensionsv1.JSON

func TestOutdatedReasons_NameWhatDiffers(t *testing.T) {
	cases := []struct {
		name   string
		change func(*scope)
		want   string
	}{
		{name: "nothing"},
		{name: "another build of the same version", change: func(s *scope) { s.controlPlane.Spec.Version = "v1.36.3+k3s2" }, want: "v1.36.3+k3s2 required"},
		{name: "configuration", change: func(s *scope) {
			s.controlPlane.Spec.KThreesConfigSpec.PreK3sCommands = []string{"true"}
		}, want: "KThreesConfig"},
		{name: "infrastructure template", change: func(s *scope) {
			infra := &unstructured.Unstructured{Object: map[string]any{}}
			infra.SetAnnotations(map[string]string{
				clusterv1.TemplateClonedFromNameAnnotation:      "old",
				clusterv1.TemplateClonedFromGroupKindAnnotation: "SandboxMachineTemplate.infrastructure.cluster.x-k8s.io",
			})
			s.infraMachines["m0"] = infra
		}, want: "SandboxMachineTemplate"},
		{name: "rollout.after has passed", change: func(s *scope) {
			s.controlPlane.Spec.Rollout.After = metav1.NewTime(s.now.Add(-time.Minute))
			s.machines["m0"].CreationTimestamp = metav1.NewTime(s.now.Add(-time.Hour))
		}, want: "spec.rollout.after"},
		{name: "rollout.after is still to come", change: func(s *scope) {
			s.controlPlane.Spec.Rollout.After = metav1.NewTime(s.now.Add(time.Minute))
			s.machines["m0"].CreationTimestamp = metav1.NewTime(s.now.Add(-time.Hour))
		}},
		{name: "created after rollout.after", change: func(s *scope) {
			s.controlPlane.Spec.Rollout.After = metav1.NewTime(s.now.Add(-time.Hour))
			s.machines["m0"].CreationTimestamp = metav1.NewTime(s.now.Add(-time.Minute))
		}},
		{name: "certificates expire soon", change: func(s *scope) {
			s.controlPlane.Spec.Rollout.Before.CertificatesExpiryDays = 30
			s.machines["m0"].Status.CertificatesExpiryDate = metav1.NewTime(s.now.AddDate(0, 0, 29))
		}, want: "certificates expire"},
		{name: "certificates expire later", change: func(s *scope) {
			s.controlPlane.Spec.Rollout.Before.CertificatesExpiryDays = 30
			s.machines["m0"].Status.CertificatesExpiryDate = metav1.NewTime(s.now.AddDate(0, 0, 31))
		}},
		{name: "metadata is no reason", change: func(s *scope) {
			s.controlPlane.Spec.MachineTemplate.ObjectMeta.Labels = map[string]string{"a": "b"}
		}},
		{name: "a missing KThreesConfig is no reason", change: func(s *scope) { delete(s.configs, "m0") }},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(1)
			if tc.change != nil {
				tc.change(s)
			}
			reasons := s.outdatedReasons(s.machines["m0"])
			if tc.want == "" {
				assert.Empty(t, reasons)
				return
			}
			require.Len(t, reasons, 1)
			assert.Contains(t, reasons[0], tc.want)
		})
	}
}

// What belongs to a running server and is deleted by somebody is no reason to touch the server.
func TestDecide_KeepsAServerWhoseObjectsAreGone(t *testing.T) {
	for name, change := range map[string]func(*scope){
		"the KThreesConfig":          func(s *scope) { delete(s.configs, "m1") },
		"the infrastructure machine": func(s *scope) { delete(s.infraMachines, "m1") },
		"the Node":                   func(s *scope) { delete(s.workload.nodes, "m1") },
	} {
		for _, replicas := range []int32{3, 5} {
			t.Run(fmt.Sprintf("%s, of %d", name, replicas), func(t *testing.T) {
				s := newScope(3)
				s.controlPlane.Spec.Replicas = ptr.To(replicas)
				for name := range s.machines {
					s.infraMachines[name] = &unstructured.Unstructured{Object: map[string]any{}}
				}
				change(s)
				p := decide(s)
				assert.Nil(t, p.delete)
				assert.Nil(t, p.remove)
				assert.Nil(t, p.remediate)
				assert.Nil(t, p.standIn)
				assert.Empty(t, s.outdated())
				switch {
				case replicas == 3:
					assert.Nil(t, p.create)
				case name == "the Node":
					assert.Nil(t, p.create, "etcd takes no member beside one that nobody speaks for")
					assert.Contains(t, joined(p), "m1")
				default:
					assert.NotNil(t, p.create, "the cluster grows all the same")
				}
			})
		}
	}
}

func TestDecide_LooksAgainWhenAMachineBecomesDue(t *testing.T) {
	cases := []struct {
		name   string
		change func(*scope)
		want   time.Duration
	}{
		{name: "nothing is asked for"},
		{name: "rollout.after", want: time.Hour + time.Second, change: func(s *scope) {
			s.controlPlane.Spec.Rollout.After = metav1.NewTime(s.now.Add(time.Hour))
		}},
		{name: "rollout.after has passed", change: func(s *scope) {
			s.controlPlane.Spec.Rollout.After = metav1.NewTime(s.now.Add(-time.Hour))
			for _, machine := range s.machines {
				machine.CreationTimestamp = metav1.NewTime(s.now)
			}
		}},
		{name: "the first of several certificates", want: 24*time.Hour + time.Second, change: func(s *scope) {
			s.controlPlane.Spec.Rollout.Before.CertificatesExpiryDays = 30
			s.machines["m0"].Status.CertificatesExpiryDate = metav1.NewTime(s.now.AddDate(0, 0, 300))
			s.machines["m1"].Status.CertificatesExpiryDate = metav1.NewTime(s.now.AddDate(0, 0, 31))
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(3)
			if tc.change != nil {
				tc.change(s)
			}
			assert.Equal(t, tc.want, decide(s).requeueAfter)
		})
	}
}
