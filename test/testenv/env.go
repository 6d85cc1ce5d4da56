// Package testenv gives tests a real Kubernetes API: etcd and kube-apiserver as processes, with the custom resources
// of this project and of Cluster API core. A package that needs it writes
//
//	var env *testenv.Env
//
//	func TestMain(m *testing.M) { testenv.Main(m, &env) }
//
// The programs are looked for in $KUBEBUILDER_ASSETS, then in $CAPK3S_CACHE/bin.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
)

// startTimeout is generous: several packages start their servers at once on few cores.
const startTimeout = 3 * time.Minute

// Env is a running kube-apiserver.
type Env struct {
	// Config is an administrator's access to the API server.
	Config *rest.Config

	// Client reads and writes without a cache.
	Client client.WithWatch

	// Scheme knows the types of Kubernetes, Cluster API core and this project.
	Scheme *apiruntime.Scheme

	// KubeConfig is Config as a kubeconfig file's content.
	KubeConfig []byte

	envtest *envtest.Environment
	guard   *guard
}

// Option changes how the environment starts.
type Option func(*options)

type options struct {
	crdDirs []string
	crds    []*apiextensionsv1.CustomResourceDefinition
	schemes []func(*apiruntime.Scheme) error
}

// WithCRDDirectory also installs the CRDs in a directory, given relative to the top of the repository.
func WithCRDDirectory(dir string) Option {
	return func(o *options) { o.crdDirs = append(o.crdDirs, filepath.Join(repository(), dir)) }
}

// WithCRDs also installs these CRDs.
func WithCRDs(crds ...*apiextensionsv1.CustomResourceDefinition) Option {
	return func(o *options) { o.crds = append(o.crds, crds...) }
}

// WithScheme also registers the types of add.
func WithScheme(add func(*apiruntime.Scheme) error) Option {
	return func(o *options) { o.schemes = append(o.schemes, add) }
}

// Main starts an environment, stores it in env, runs the tests and ends the process with their exit code. Nothing
// it started outlives the process.
func Main(m *testing.M, env **Env, opts ...Option) {
	started, err := Start(opts...)
	if err != nil {
		fmt.Fprintf(os.Stderr, "starting the test environment: %v\n", err)
		os.Exit(1)
	}
	*env = started

	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupts
		_ = started.Stop()
		os.Exit(130)
	}()

	code := m.Run()
	if err := started.Stop(); err != nil {
		fmt.Fprintf(os.Stderr, "stopping the test environment: %v\n", err)
	}
	os.Exit(code)
}

// Start starts an environment; the caller stops it. Tests use Main.
func Start(opts ...Option) (*Env, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	bin, err := binaries("etcd", "kube-apiserver")
	if err != nil {
		return nil, err
	}
	crds, err := customResources(o)
	if err != nil {
		return nil, err
	}
	environment := &envtest.Environment{
		BinaryAssetsDirectory:    bin,
		ControlPlaneStartTimeout: startTimeout,
		CRDs:                     crds,
	}
	// An etcd that doesn't wait for the disk is faster, and the data ends with the test anyway.
	environment.ControlPlane.Etcd = &envtest.Etcd{}
	environment.ControlPlane.Etcd.Configure().Append("unsafe-no-fsync", "true")
	config, err := environment.Start()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting kube-apiserver: %w", err), environment.Stop())
	}
	env := &Env{Config: config, Scheme: scheme(o), KubeConfig: environment.KubeConfig, envtest: environment}
	env.Config.QPS = -1
	if env.guard, err = newGuard(); err != nil {
		return nil, errors.Join(err, environment.Stop())
	}
	env.Client, err = client.NewWithWatch(env.Config, client.Options{Scheme: env.Scheme})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("creating a client: %w", err), env.Stop())
	}
	return env, nil
}

// Binaries is the folder of the programs, kubectl among them.
func (e *Env) Binaries() string { return e.envtest.BinaryAssetsDirectory }

// Stop ends the processes of the environment.
func (e *Env) Stop() error {
	err := e.envtest.Stop()
	e.guard.release()
	return err
}

// Namespace creates a namespace for one test and returns its name. Without a controller manager nothing would ever
// remove its content, so it is left.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, e.Client.Create(context.Background(), namespace))
	return namespace.Name
}

// Create creates objects. Afterwards they hold what the API server returned, with an empty TypeMeta as typed objects
// from a client have it.
func (e *Env) Create(t testing.TB, objs ...client.Object) {
	t.Helper()
	for _, obj := range objs {
		require.NoErrorf(t, e.Client.Create(context.Background(), obj), "creating %T %s", obj, obj.GetName())
	}
}

// Refresh reads obj again.
func (e *Env) Refresh(t testing.TB, obj client.Object) {
	t.Helper()
	require.NoErrorf(t, e.Client.Get(context.Background(), client.ObjectKeyFromObject(obj), obj), "reading %T %s", obj, obj.GetName())
}

func scheme(o options) *apiruntime.Scheme {
	s := apiruntime.NewScheme()
	add := []func(*apiruntime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		bootstrapv1.AddToScheme, controlplanev1.AddToScheme,
	}
	for _, f := range append(add, o.schemes...) {
		utilruntime.Must(f(s))
	}
	return s
}

// binaries returns the directory that holds all the programs.
func binaries(programs ...string) (string, error) {
	dirs := []string{os.Getenv("KUBEBUILDER_ASSETS"), cache("bin")}
	for _, dir := range dirs {
		if dir != "" && hasAll(dir, programs) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s not found in $KUBEBUILDER_ASSETS or %s: run make test-binaries", strings.Join(programs, ", "), dirs[1])
}

func hasAll(dir string, programs []string) bool {
	for _, program := range programs {
		if _, err := os.Stat(filepath.Join(dir, program)); err != nil {
			return false
		}
	}
	return true
}

func cache(sub string) string {
	if dir := os.Getenv("CAPK3S_CACHE"); dir != "" {
		return filepath.Join(dir, sub)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "capk3s", sub)
}

// repository returns the top folder of the repository.
func repository() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// moduleDir returns where the source of a module of the build list lies.
func moduleDir(module string) (string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = repository()
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("finding the source of module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
