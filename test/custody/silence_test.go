package custody

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/test/silence"
)

// spoken is everything that the operators of this test run said: log lines, events and errors.
var spoken = &transcript{}

type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (t *transcript) add(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.WriteString(text)
	t.text.WriteByte('\n')
}

func (t *transcript) read() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// logger writes at every level below the one from which client-go prints the bodies of requests.
func (t *transcript) logger() logr.Logger {
	return funcr.New(func(prefix, args string) { t.add(prefix + " " + args) }, funcr.Options{Verbosity: 5})
}

// recorder takes events.
type recorder struct{ sink *transcript }

// Eventf notes an event.
func (r *recorder) Eventf(_, _ runtime.Object, kind, reason, action, note string, args ...any) {
	r.sink.add(fmt.Sprintf(kind+" "+reason+" "+action+" "+note, args...))
}

// requireSilence checks that no token and no key is in a log line, an event, an error or an object that isn't a Secret.
func (s *stage) requireSilence() {
	s.Helper()
	said := spoken.read()
	for _, objects := range []client.ObjectList{
		&controlplanev1.KThreesControlPlaneList{}, &bootstrapv1.KThreesConfigList{}, &clusterv1.MachineList{},
		&clusterv1.ClusterList{}, &corev1.EventList{}, &corev1.ConfigMapList{},
	} {
		text, err := json.Marshal(list(s, objects))
		require.NoError(s, err)
		said += string(text)
	}
	s.servers.mu.Lock()
	defer s.servers.mu.Unlock()
	guard := silence.New()
	for _, secret := range []string{s.servers.token, s.servers.agent} {
		guard.LearnToken(s.name, secret)
	}
	require.Empty(s, guard.Find(said))
}
