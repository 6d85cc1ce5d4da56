package plugin_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// verification is what "token verify" prints as JSON.
type verification struct {
	Namespace, Cluster, Secret, CASecret, Endpoint, Reason, Message string
	Valid                                                           bool
}

func TestVerify_AsksTheServers(t *testing.T) {
	cases := map[string]struct {
		change func(t *testing.T, f *fixture, s *servers)
		down   bool

		code   int
		reason string
		says   string
		sent   bool
	}{
		"accepted": {
			change: func(*testing.T, *fixture, *servers) {},
			code:   0, reason: "Accepted", says: "accept the token in Secret c-token", sent: true,
		},
		"accepted, and held back as yet": {
			change: func(t *testing.T, f *fixture, _ *servers) {
				f.change(t, "c-token", func(s *corev1.Secret) {
					s.Annotations = map[string]string{"controlplane.cluster.x-k8s.io/k3s-token-withheld": "TokenDrifted"}
				})
			},
			code: 0, reason: "Accepted", says: "accept the token", sent: true,
		},
		"accepted by servers without etcd": {
			change: func(_ *testing.T, _ *fixture, s *servers) { s.accepted = http.StatusBadRequest },
			code:   0, reason: "Accepted", says: "accept the token", sent: true,
		},
		"refused": {
			change: func(_ *testing.T, _ *fixture, s *servers) { s.token = "another-one" },
			code:   1, reason: "TokenDrifted", says: "/var/lib/rancher/k3s/server/token", sent: true,
		},
		"lost": {
			change: func(t *testing.T, f *fixture, _ *servers) { f.remove(t, "c-token") },
			code:   1, reason: "TokenLost", says: "there is no Secret c-token",
		},
		"empty": {
			change: func(t *testing.T, f *fixture, _ *servers) {
				f.change(t, "c-token", func(s *corev1.Secret) { s.Data["value"] = nil })
			},
			code: 1, reason: "TokenInvalid", says: "Secret c-token, key value: token is empty",
		},
		"the CA is lost": {
			change: func(t *testing.T, f *fixture, _ *servers) { f.remove(t, "c-ca") },
			code:   1, reason: "CertificatesLost", says: "there is no Secret c-ca",
		},
		"the CA is broken": {
			change: func(t *testing.T, f *fixture, _ *servers) {
				f.change(t, "c-ca", func(s *corev1.Secret) { s.Data["tls.crt"] = []byte("x") })
			},
			code: 1, reason: "CertificatesInvalid", says: "Secret c-ca can't be used",
		},
		"another CA": {
			change: func(t *testing.T, _ *fixture, s *servers) {
				s.ca = newAuthority(t, time.Now().Add(time.Hour))
				s.bundle = bundleOf(s.ca)
			},
			code: 1, reason: "OtherCA", says: "another CA than the one in Secret c-ca",
		},
		"a server that shows our CA and has another": {
			change: func(t *testing.T, _ *fixture, s *servers) { s.ca = newAuthority(t, time.Now().Add(time.Hour)) },
			code:   2, says: "certificate signed by unknown authority",
		},
		"no server": {
			change: func(_ *testing.T, _ *fixture, s *servers) { s.Close() },
			down:   true,
			code:   2, says: "the control plane endpoint must be reachable from here",
		},
		"no endpoint yet": {
			change: func(t *testing.T, f *fixture, _ *servers) {
				f.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
				require.NoError(t, env.Client.Update(context.Background(), f.cluster))
			},
			code: 2, says: "no control plane endpoint yet",
		},
		"a server that starts": {
			change: func(_ *testing.T, _ *fixture, s *servers) { s.accepted = http.StatusServiceUnavailable },
			code:   2, says: "answered 503", sent: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, s := newServersFixture(t)
			tc.change(t, f, s)
			if !tc.down {
				s.start(t)
			}
			text := f.run(t, "token", "verify", "c")
			assert.Equal(t, tc.code, text.code, text)
			assert.Contains(t, text.out+text.err, tc.says)
			assert.NotContains(t, text.out+text.err, s.token)
			s.requireSent(t, tc.sent)
			if tc.code == 2 {
				assert.Empty(t, f.run(t, "token", "verify", "c", "-o", "json").out)
				return
			}
			assert.Empty(t, text.err)
			result, r := runJSON[verification](t, f, "token", "verify", "c")
			assert.Equal(t, tc.code, r.code)
			assert.NotContains(t, r.out, s.token)
			assert.Equal(t, tc.reason, result.Reason)
			assert.Contains(t, result.Message, tc.says)
			result.Reason, result.Message = "", ""
			assert.Equal(t, verification{
				Namespace: f.cluster.Namespace, Cluster: "c", Secret: "c-token", CASecret: "c-ca",
				Endpoint: s.Listener.Addr().String(), Valid: tc.code == 0,
			}, result)
		})
	}
}
