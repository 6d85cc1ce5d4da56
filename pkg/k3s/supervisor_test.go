package k3s

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve answers as a supervisor and returns a client for it.
func serve(t *testing.T, handler http.HandlerFunc) *Supervisor {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	s, err := NewSupervisor(strings.TrimPrefix(server.URL, "https://"), ca, tls.Certificate{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

func answer(t *testing.T, code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, err := w.Write([]byte(body))
		assert.NoError(t, err)
	}
}

func TestMembers_DecodesWhatK3sSends(t *testing.T) {
	s := serve(t, answer(t, http.StatusOK, `{"members":[{"ID":10658339220674857950,"name":"s1-64d24546","peerURLs":["https://10.99.0.1:2380"],"clientURLs":["https://10.99.0.1:2379"]},`+
		`{"ID":2,"peerURLs":["https://10.99.0.2:2380"],"isLearner":true}]}`+"\n"))
	members, err := s.Members(context.Background())
	require.NoError(t, err)
	require.Len(t, members, 2)
	assert.Equal(t, uint64(10658339220674857950), members[0].ID, "ids exceed 2^53")
	assert.True(t, members[0].Started())
	assert.False(t, members[1].Started())
	assert.True(t, members[1].IsLearner)
}

func TestMembers_TriesAnotherServerWhenOneCannotServe(t *testing.T) {
	var requests atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) < 3 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		answer(t, http.StatusOK, `{"members":[]}`)(w, r)
	})
	_, err := s.Members(context.Background())
	require.NoError(t, err)
	assert.EqualValues(t, 3, requests.Load())
}

func TestAcceptsToken_TellsRefusedFromUnreachable(t *testing.T) {
	cases := []struct {
		name     string
		code     int
		accepted bool
		err      bool
	}{
		{name: "accepted", code: http.StatusOK, accepted: true},
		{name: "accepted, without embedded etcd", code: http.StatusBadRequest, accepted: true},
		{name: "refused", code: http.StatusUnauthorized},
		{name: "etcd down", code: http.StatusInternalServerError, err: true},
		{name: "starting", code: http.StatusServiceUnavailable, err: true},
		{name: "forbidden is no verdict", code: http.StatusForbidden, err: true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				user, password, ok := r.BasicAuth()
				assert.True(t, ok)
				assert.Equal(t, "server", user)
				assert.Equal(t, "secret", password)
				answer(t, tc.code, "{}")(w, r)
			})
			accepted, err := s.AcceptsToken(context.Background(), "secret")
			assert.Equal(t, tc.accepted, accepted)
			assert.Equal(t, tc.err, err != nil)
		})
	}
}

func TestServerBootstrap_NeverQuotesTheAnswer(t *testing.T) {
	s := serve(t, answer(t, http.StatusOK, `{"ServerCAKey":"private"`))
	_, err := s.ServerBootstrap(context.Background())
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "private")
}

func TestErrors_AreTheSameEachTime(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	s, err := NewSupervisor(strings.TrimPrefix(server.URL, "https://"), ca, tls.Certificate{})
	require.NoError(t, err)
	server.Close()
	_, first := s.Members(context.Background())
	_, second := s.Members(context.Background())
	require.Error(t, first)
	assert.Equal(t, first.Error(), second.Error(), "a condition made of it must not change")
}
