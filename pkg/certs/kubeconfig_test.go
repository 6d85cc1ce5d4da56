package certs

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/test/testenv"
)

type kubeconfigFixture struct {
	KubeconfigInput
	*fixture
}

func newKubeconfigFixture(t *testing.T) *kubeconfigFixture {
	f, set := founded(t)
	return &kubeconfigFixture{fixture: f, KubeconfigInput: KubeconfigInput{
		Client: f.Input.Client, APIReader: f.Input.APIReader, Recorder: f.recorder,
		Cluster: f.Input.Cluster, ControlPlane: f.Input.ControlPlane, Certificates: set, Now: time.Now,
	}}
}

func (f *kubeconfigFixture) reconcile() error {
	return ReconcileKubeconfig(context.Background(), f.KubeconfigInput)
}

func (f *kubeconfigFixture) config(t *testing.T) *clientcmdapi.Config {
	config, err := clientcmd.Load(f.read(t, "c-kubeconfig").Data["value"])
	require.NoError(t, err)
	require.NoError(t, clientcmd.ConfirmUsable(*config, ""))
	return config
}

func TestReconcileKubeconfig_MakesTheSecretOfTheContract(t *testing.T) {
	f := newKubeconfigFixture(t)
	require.NoError(t, f.reconcile())

	secret := f.read(t, "c-kubeconfig")
	require.Equal(t, clusterv1.ClusterSecretType, secret.Type)
	require.Equal(t, "c", secret.Labels[clusterv1.ClusterNameLabel])
	require.Contains(t, secret.Labels, controlplanev1.ManagedLabel)
	require.Equal(t, []metav1.OwnerReference{custody.Reference(f.KubeconfigInput.ControlPlane)}, secret.OwnerReferences)

	config := f.config(t)
	require.Equal(t, "c-admin@c", config.CurrentContext)
	require.Equal(t, "https://10.0.0.1:6443", config.Clusters["c"].Server)
	require.Equal(t, f.Certificates.ServerCABundle(), config.Clusters["c"].CertificateAuthorityData)
	certificate := certificates(t, config.AuthInfos["c-admin"].ClientCertificateData)[0]
	require.Equal(t, "kubernetes-admin", certificate.Subject.CommonName)
	require.Equal(t, []string{"system:masters"}, certificate.Subject.Organization)
	require.WithinDuration(t, time.Now().Add(365*24*time.Hour), certificate.NotAfter, time.Minute)
	_, err := certificate.Verify(x509.VerifyOptions{Roots: pool(f.Certificates.ClientCA().Cert), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	require.NoError(t, err)
}

func pool(bundle []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return pool
}

func TestReconcileKubeconfig_WritesNothingAndMakesNoKeyTheSecondTime(t *testing.T) {
	f := newKubeconfigFixture(t)
	require.NoError(t, f.reconcile())
	f.cached.Reset()
	f.live.Reset()
	keys := keysMade(t)

	require.NoError(t, f.reconcile())
	require.Len(t, f.cached.Calls(), 1)
	require.Empty(t, f.live.Calls())
	require.Equal(t, keys, keysMade(t))
}

func TestReconcileKubeconfig_WaitsForTheEndpoint(t *testing.T) {
	f := newKubeconfigFixture(t)
	f.KubeconfigInput.Cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
	require.NoError(t, f.reconcile())
	require.NotContains(t, f.secrets(t), "c-kubeconfig")
}

func TestReconcileKubeconfig_PutsIPv6InBrackets(t *testing.T) {
	for _, host := range []string{"fd00::1", "[fd00::1]"} {
		f := newKubeconfigFixture(t)
		f.KubeconfigInput.Cluster.Spec.ControlPlaneEndpoint.Host = host
		require.NoError(t, f.reconcile())
		require.Equal(t, "https://[fd00::1]:6443", f.config(t).Clusters["c"].Server)
	}
}

func TestReconcileKubeconfig_RenewsByPatch(t *testing.T) {
	for name, tc := range map[string]struct {
		arrange func(t *testing.T, f *kubeconfigFixture)
		why     string
	}{
		"half of the year is over": {func(_ *testing.T, f *kubeconfigFixture) {
			f.KubeconfigInput.Now = func() time.Time { return time.Now().Add(183 * 24 * time.Hour) }
		}, "gets old"},
		"not yet half of it": {func(_ *testing.T, f *kubeconfigFixture) {
			f.KubeconfigInput.Now = func() time.Time { return time.Now().Add(181 * 24 * time.Hour) }
		}, ""},
		"the endpoint changed": {func(_ *testing.T, f *kubeconfigFixture) {
			f.KubeconfigInput.Cluster.Spec.ControlPlaneEndpoint.Port = 443
		}, "endpoint changed"},
		"the server CA changed": {func(t *testing.T, f *kubeconfigFixture) { f.replace(t, ServerCA) }, "server CA changed"},
		"the client CA changed": {func(t *testing.T, f *kubeconfigFixture) { f.replace(t, ClientCA) }, "client CA changed"},
		"another CA changed":    {func(t *testing.T, f *kubeconfigFixture) { f.replace(t, EtcdCA) }, ""},
		"unreadable":            {func(t *testing.T, f *kubeconfigFixture) { f.overwrite(t, "no: [kubeconfig") }, "couldn't be read"},
		"empty":                 {func(t *testing.T, f *kubeconfigFixture) { f.overwrite(t, "") }, "names no cluster and user"},
		"without certificate": {func(t *testing.T, f *kubeconfigFixture) {
			config := f.config(t)
			config.AuthInfos["c-admin"] = &clientcmdapi.AuthInfo{Token: "x"}
			content, err := clientcmd.Write(*config)
			require.NoError(t, err)
			f.overwrite(t, string(content))
		}, "no client certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newKubeconfigFixture(t)
			require.NoError(t, f.reconcile())
			tc.arrange(t, f)
			before := f.read(t, "c-kubeconfig")
			f.cached.Reset()
			drain(f.recorder.Events)

			require.NoError(t, f.reconcile())
			after := f.read(t, "c-kubeconfig")
			require.Equal(t, before.UID, after.UID)
			if tc.why == "" {
				require.Empty(t, f.cached.Writes())
				require.Equal(t, before.Data, after.Data)
				return
			}
			require.Len(t, f.cached.Calls(testenv.Patch), 1)
			require.Len(t, f.cached.Writes(), 1)
			require.NotEqual(t, before.Data, after.Data)
			require.Contains(t, <-f.recorder.Events, tc.why)
			require.Equal(t, f.Certificates.ServerCABundle(), f.config(t).Clusters["c"].CertificateAuthorityData)

			f.cached.Reset()
			require.NoError(t, f.reconcile())
			require.Empty(t, f.cached.Writes())
		})
	}
}

// replace gives the fixture another CA for a purpose, signed by nobody.
func (f *kubeconfigFixture) replace(t *testing.T, purpose Purpose) {
	pair, err := newRoot(now)
	require.NoError(t, err)
	pairs := map[Purpose]KeyPair{purpose: pair}
	for _, other := range known {
		if other != purpose {
			pairs[other], _ = f.Certificates.Pair(other)
		}
	}
	f.Certificates, err = newSet(pairs)
	require.NoError(t, err)
}

func (f *kubeconfigFixture) overwrite(t *testing.T, value string) {
	secret := f.read(t, "c-kubeconfig")
	secret.Data["value"] = []byte(value)
	require.NoError(t, env.Client.Update(context.Background(), secret))
}

func TestReconcileKubeconfig_LeavesTheUsersAlone(t *testing.T) {
	for name, owns := range map[string]bool{"without owner": false, "to be deleted with the control plane": true} {
		t.Run(name, func(t *testing.T) {
			f := newKubeconfigFixture(t)
			secret := testenv.Secret(f.KubeconfigInput.Cluster, "c-kubeconfig", map[string]string{"value": "mine"}, func(s *corev1.Secret) {
				s.Type, s.Labels = corev1.SecretTypeOpaque, nil
				if owns {
					owner := custody.Reference(f.KubeconfigInput.ControlPlane)
					owner.Controller = nil
					s.OwnerReferences = []metav1.OwnerReference{owner}
				}
			})
			env.Create(t, secret)
			require.NoError(t, f.reconcile())
			require.Equal(t, secret.ResourceVersion, f.read(t, "c-kubeconfig").ResourceVersion)
			require.Empty(t, f.cached.Writes())
		})
	}
}

// The existing provider's kubeconfig has no type and one year to live.
func TestReconcileKubeconfig_InheritsAnOlderProvidersSecret(t *testing.T) {
	f := newKubeconfigFixture(t)
	require.NoError(t, f.reconcile())
	made := f.read(t, "c-kubeconfig")
	require.NoError(t, env.Client.Delete(context.Background(), made))
	older := custody.Reference(f.KubeconfigInput.ControlPlane)
	older.APIVersion = "controlplane.cluster.x-k8s.io/v1beta2"
	env.Create(t, testenv.Secret(f.KubeconfigInput.Cluster, "c-kubeconfig", map[string]string{"value": string(made.Data["value"])}, func(s *corev1.Secret) {
		s.Type, s.OwnerReferences = corev1.SecretTypeOpaque, []metav1.OwnerReference{older}
	}))
	f.cached.Reset()

	require.NoError(t, f.reconcile())
	require.Len(t, f.cached.Writes(), 1)
	taken := f.read(t, "c-kubeconfig")
	require.Equal(t, []metav1.OwnerReference{custody.Reference(f.KubeconfigInput.ControlPlane)}, taken.OwnerReferences)
	require.Equal(t, made.Data, taken.Data)

	taken.OwnerReferences = nil
	require.NoError(t, env.Client.Update(context.Background(), taken))
	f.KubeconfigInput.Now = func() time.Time { return time.Now().Add(183 * 24 * time.Hour) }
	require.NoError(t, f.reconcile())
	renewed := f.read(t, "c-kubeconfig")
	require.Equal(t, []metav1.OwnerReference{custody.Reference(f.KubeconfigInput.ControlPlane)}, renewed.OwnerReferences, "after a restore, too")
	require.NotEqual(t, made.Data, renewed.Data)
}

func TestReconcileKubeconfig_DoesNotOverwriteWhatIsNoKubeconfigAndNotOurs(t *testing.T) {
	f := newKubeconfigFixture(t)
	env.Create(t, testenv.Secret(f.KubeconfigInput.Cluster, "c-kubeconfig", map[string]string{"value": "no: [kubeconfig"}))
	requireReason(t, f.reconcile(), controlplanev1.ForeignSecretReason, "c-kubeconfig")
	require.Equal(t, "no: [kubeconfig", string(f.read(t, "c-kubeconfig").Data["value"]))
}

func TestReconcileKubeconfig_PutsBackTheOwnerThatARestoreDropped(t *testing.T) {
	f := newKubeconfigFixture(t)
	require.NoError(t, f.reconcile())
	before := f.read(t, "c-kubeconfig")
	stripped := before.DeepCopy()
	stripped.OwnerReferences = nil
	require.NoError(t, env.Client.Update(context.Background(), stripped))

	require.NoError(t, f.reconcile())
	after := f.read(t, "c-kubeconfig")
	require.Equal(t, before.OwnerReferences, after.OwnerReferences)
	require.Equal(t, before.Data, after.Data)
}

func TestReconcileKubeconfig_MakesItAgainWhenItWasDeleted(t *testing.T) {
	f := newKubeconfigFixture(t)
	require.NoError(t, f.reconcile())
	require.NoError(t, env.Client.Delete(context.Background(), f.read(t, "c-kubeconfig")))
	require.NoError(t, f.reconcile())
	f.config(t)
}

func TestReconcileKubeconfig_ReturnsErrorsAndWritesNothing(t *testing.T) {
	broken := apierrors.NewInternalError(context.DeadlineExceeded)
	f := newKubeconfigFixture(t)
	working := f.KubeconfigInput.Client.(client.WithWatch)
	f.KubeconfigInput.Client = testenv.FailOn(working, testenv.Get, 1, broken)
	require.ErrorIs(t, f.reconcile(), broken)
	require.NotContains(t, f.secrets(t), "c-kubeconfig")
}

func drain(events chan string) {
	for len(events) > 0 {
		<-events
	}
}
