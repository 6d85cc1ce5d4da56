package controllers

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

func TestEvidenceOf_SurvivesWhatABackupDrops(t *testing.T) {
	bare := func(s *scope) *clusterv1.Machine {
		machine := addServer(s, "m0")
		machine.Spec.Bootstrap.DataSecretName, machine.Spec.ProviderID = nil, ""
		machine.Status = clusterv1.MachineStatus{}
		return machine
	}
	cases := []struct {
		name   string
		change func(*scope)
		want   bool
	}{
		{name: "nothing"},
		{name: "a Machine without data", change: func(s *scope) { bare(s) }},
		{name: "annotation", change: func(s *scope) {
			s.controlPlane.Annotations = map[string]string{controlplanev1.InitializedAnnotation: "{}"}
		}, want: true},
		{name: "broken annotation", change: func(s *scope) {
			s.controlPlane.Annotations = map[string]string{controlplanev1.InitializedAnnotation: "?"}
		}, want: true},
		{name: "status", change: func(s *scope) { s.controlPlane.Status.Initialization.ControlPlaneInitialized = ptr.To(true) }, want: true},
		{name: "Cluster's condition", change: func(s *scope) {
			s.cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue}}
		}, want: true},
		{name: "a Machine's data Secret", change: func(s *scope) { bare(s).Spec.Bootstrap.DataSecretName = ptr.To("m0") }, want: true},
		{name: "a Machine's provider id", change: func(s *scope) { bare(s).Spec.ProviderID = "sandbox:///m0" }, want: true},
		{name: "a Machine's Node", change: func(s *scope) { bare(s).Status.NodeRef.Name = "m0" }, want: true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := newScope(0)
			if tc.change != nil {
				tc.change(s)
			}
			assert.Equal(t, tc.want, evidenceOf(s.cluster, s.controlPlane, s.machines) != "")
		})
	}
}
