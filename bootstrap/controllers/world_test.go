package controllers

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/test/testenv"
)

var env *testenv.Env

func TestMain(m *testing.M) { testenv.Main(m, &env) }

var ctx = context.Background()

const (
	serverToken = "the-servers-token"
	agentToken  = "the-agents-token"
)

// world is a cluster in a namespace of its own, with a reconciler whose requests are counted.
type world struct {
	t        testing.TB
	cluster  *clusterv1.Cluster
	r        *Reconciler
	counter  *testenv.Counter
	recorder *events.FakeRecorder
}

// newWorld has a cluster whose infrastructure is provisioned, and nothing else.
func newWorld(t testing.TB) *world {
	t.Helper()
	cluster := testenv.Cluster(env.Namespace(t), "c")
	env.Create(t, cluster)
	counting, counter := testenv.Count(env.Client)
	recorder := events.NewFakeRecorder(100)
	w := &world{
		t: t, cluster: cluster, counter: counter, recorder: recorder,
		r: &Reconciler{Client: counting, APIReader: counting, Recorder: recorder},
	}
	w.provision()
	return w
}

// complete adds the token and the certificate authorities.
func (w *world) complete() *world {
	w.t.Helper()
	w.createToken()
	w.createCAs()
	return w
}

func (w *world) provision() {
	w.t.Helper()
	w.updateStatus(w.cluster, func() { w.cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true) })
}

func (w *world) initialize() *world {
	w.t.Helper()
	w.updateStatus(w.cluster, func() {
		w.cluster.Status.Initialization.ControlPlaneInitialized = ptr.To(true)
		conditions.Set(w.cluster, metav1.Condition{
			Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized",
		})
	})
	return w
}

func (w *world) updateStatus(object client.Object, change func()) {
	w.t.Helper()
	env.Refresh(w.t, object)
	base := object.DeepCopyObject().(client.Object)
	change()
	require.NoError(w.t, env.Client.Status().Patch(ctx, object, client.MergeFrom(base)))
}

func (w *world) update(object client.Object, change func()) {
	w.t.Helper()
	env.Refresh(w.t, object)
	base := object.DeepCopyObject().(client.Object)
	change()
	require.NoError(w.t, env.Client.Patch(ctx, object, client.MergeFrom(base)))
}

// opaque makes a Secret one of a user's.
func opaque(secret *corev1.Secret) { secret.Type = corev1.SecretTypeOpaque }

func (w *world) createToken() {
	w.t.Helper()
	env.Create(w.t, testenv.Secret(w.cluster, "c-token", map[string]string{"value": serverToken, "agent-token": agentToken}))
}

func (w *world) createCAs() {
	w.t.Helper()
	root := newCA(w.t, nil)
	for _, name := range []string{"ca", "cca", "etcd", "etcd-peer", "proxy"} {
		leaf := newCA(w.t, root)
		env.Create(w.t, testenv.Secret(w.cluster, "c-"+name, map[string]string{"tls.crt": leaf.cert + root.cert, "tls.key": leaf.keyPEM}))
	}
	key := newCA(w.t, nil)
	env.Create(w.t, testenv.Secret(w.cluster, "c-sa", map[string]string{"tls.crt": key.publicPEM, "tls.key": key.keyPEM}))
}

// machine creates a Machine and its config, which the change may alter first.
func (w *world) machine(name string, order string, change ...func(*clusterv1.Machine, *bootstrapv1.KThreesConfig)) *bootstrapv1.KThreesConfig {
	w.t.Helper()
	machine := testenv.Machine(w.cluster, name)
	config := &bootstrapv1.KThreesConfig{}
	if order != "worker" {
		machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	if order == bootstrapv1.OrderInit || order == bootstrapv1.OrderInitAnew || order == bootstrapv1.OrderJoin {
		config.Annotations = map[string]string{bootstrapv1.OrderAnnotation: order}
	}
	for _, f := range change {
		f(machine, config)
	}
	env.Create(w.t, machine)
	made := testenv.Config(machine)
	made.Annotations, made.Spec = config.Annotations, config.Spec
	env.Create(w.t, made)
	return made
}

// reconcile goes on until the Paused condition is written, and returns what the last pass did.
func (w *world) reconcile(config *bootstrapv1.KThreesConfig) (ctrl.Result, error) {
	w.t.Helper()
	request := ctrl.Request{NamespacedName: client.ObjectKeyFromObject(config)}
	result, err := w.r.Reconcile(ctx, request)
	if err == nil && !conditions.Has(config, clusterv1.PausedCondition) {
		result, err = w.r.Reconcile(ctx, request)
	}
	env.Refresh(w.t, config)
	return result, err
}

func (w *world) mustReconcile(config *bootstrapv1.KThreesConfig) ctrl.Result {
	w.t.Helper()
	result, err := w.reconcile(config)
	require.NoError(w.t, err)
	return result
}

// secret returns the bootstrap data Secret of a config, or nil.
func (w *world) secret(config *bootstrapv1.KThreesConfig) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{}
	err := env.Client.Get(ctx, client.ObjectKeyFromObject(config), secret)
	if client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	require.NoError(w.t, err)
	return secret
}

// requireWaiting says that there are no bootstrap data, and that the config says why.
func (w *world) requireWaiting(config *bootstrapv1.KThreesConfig, reason, message string) {
	w.t.Helper()
	require.Equal(w.t, reason, conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition),
		conditions.GetMessage(config, bootstrapv1.DataSecretAvailableCondition))
	require.Contains(w.t, conditions.GetMessage(config, bootstrapv1.DataSecretAvailableCondition), message)
	require.True(w.t, conditions.IsFalse(config, bootstrapv1.ReadyCondition))
	require.Nil(w.t, config.Status.Initialization.DataSecretCreated)
	require.Nil(w.t, w.secret(config))
}

func (w *world) requireData(config *bootstrapv1.KThreesConfig) userData {
	w.t.Helper()
	require.True(w.t, conditions.IsTrue(config, bootstrapv1.ReadyCondition), conditions.GetMessage(config, bootstrapv1.ReadyCondition))
	require.True(w.t, *config.Status.Initialization.DataSecretCreated)
	require.Equal(w.t, config.Name, config.Status.DataSecretName)
	require.Equal(w.t, config.Generation, config.Status.ObservedGeneration)
	secret := w.secret(config)
	require.NotNil(w.t, secret)
	return parseUserData(w.t, secret.Data["value"])
}

func (w *world) events() []string {
	var all []string
	for {
		select {
		case event := <-w.recorder.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}

// userData are bootstrap data as cloud-init takes them.
type userData struct {
	raw    string
	run    []string
	files  map[string]string
	config map[string]any
}

func parseUserData(t testing.TB, data []byte) userData {
	t.Helper()
	var parsed struct {
		RunCmd     [][]string                                 `json:"runcmd"`
		WriteFiles []struct{ Path, Encoding, Content string } `json:"write_files"`
	}
	require.NoError(t, yaml.Unmarshal(data, &parsed))
	u := userData{raw: string(data), run: parsed.RunCmd[0], files: map[string]string{}}
	for _, file := range parsed.WriteFiles {
		content := []byte(file.Content)
		if file.Encoding != "" {
			var err error
			content, err = base64.StdEncoding.DecodeString(file.Content)
			require.NoError(t, err)
		}
		if file.Encoding == "gz+b64" {
			reader, err := gzip.NewReader(bytes.NewReader(content))
			require.NoError(t, err)
			content, err = io.ReadAll(reader)
			require.NoError(t, err)
		}
		u.files[file.Path] = string(content)
	}
	require.NoError(t, yaml.Unmarshal([]byte(u.files["/etc/rancher/k3s/config.yaml"]), &u.config))
	return u
}

// all returns everything that reaches the machine, decoded.
func (u userData) all() string {
	all := u.raw
	for _, content := range u.files {
		all += content
	}
	return all
}

type testCA struct {
	certificate             *x509.Certificate
	key                     *ecdsa.PrivateKey
	cert, keyPEM, publicPEM string
}

func newCA(t testing.TB, issuer *testCA) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "test-" + serial.String()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.certificate, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	require.NoError(t, err)
	encode := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	return &testCA{certificate, key, encode("CERTIFICATE", der), encode("EC PRIVATE KEY", private), encode("PUBLIC KEY", public)}
}
