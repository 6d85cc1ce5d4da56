package supervisor

import (
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The groups that the supervisor's endpoints ask for, besides passwd's own.
const (
	groupMasters       = "system:masters"
	groupNodes         = "system:nodes"
	groupBootstrappers = "system:bootstrappers"
)

// nodeUserPrefix starts the user name of a kubelet's certificate.
const nodeUserPrefix = "system:node:"

// identity is who a request comes from.
type identity struct {
	name   string
	groups []string
}

// authenticate finds out who a request comes from: by client
// certificate, by password, or by a bearer token that kube-apiserver knows. Nobody is no
// error; wrong credentials are one, unless others are right.
func (s *Supervisor) authenticate(r *http.Request) (*identity, error) {
	var errs []error
	for _, method := range []func(*http.Request) (*identity, error){s.byCertificate, s.byPassword, s.byBearer} {
		who, err := method(r)
		if who != nil {
			return who, nil
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return nil, errors.Join(errs...)
}

func (s *Supervisor) byPassword(r *http.Request) (*identity, error) {
	user, password, ok := r.BasicAuth()
	if !ok {
		return nil, nil
	}
	group, ok := s.passwords.Authenticate(user, password)
	if !ok {
		return nil, errors.New("invalid username/password combination")
	}
	return &identity{name: user, groups: []string{group}}, nil
}

func (s *Supervisor) byCertificate(r *http.Request) (*identity, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	opts := x509.VerifyOptions{
		Roots:         s.clientCAs,
		Intermediates: x509.NewCertPool(),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range r.TLS.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	leaf := r.TLS.PeerCertificates[0]
	if _, err := leaf.Verify(opts); err != nil {
		return nil, err
	}
	return &identity{name: leaf.Subject.CommonName, groups: leaf.Subject.Organization}, nil
}

func (s *Supervisor) byBearer(r *http.Request) (*identity, error) {
	bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	kube := s.Kube()
	if !ok || kube == nil {
		return nil, nil
	}
	review, err := kube.AuthenticationV1().TokenReviews().Create(r.Context(), &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: bearer},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if !review.Status.Authenticated {
		return nil, errors.New("invalid bearer token")
	}
	return &identity{name: review.Status.User.Username, groups: review.Status.User.Groups}, nil
}

// handlerFor is a handler that knows who is asking.
type handlerFor func(w http.ResponseWriter, r *http.Request, who *identity)

// hasRole lets through who is in one of the groups.
func (s *Supervisor) hasRole(next handlerFor, groups ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.authenticate(r)
		if err != nil {
			logrus.Errorf("Failed to authenticate request from %s: %v", r.RemoteAddr, err)
			sendError(w, r, http.StatusUnauthorized, errNotAuthorized)
			return
		}
		if who == nil || !slices.ContainsFunc(who.groups, func(g string) bool { return slices.Contains(groups, g) }) {
			sendError(w, r, http.StatusForbidden, errForbidden)
			return
		}
		next(w, r, who)
	}
}

// localOr lets through who calls from the loopback, whatever they show, and
// asks all others for a role.
func (s *Supervisor) localOr(next handlerFor, groups ...string) http.HandlerFunc {
	guarded := s.hasRole(next, groups...)
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if host == "127.0.0.1" || host == "::1" {
			next(w, r, nil)
			return
		}
		guarded(w, r)
	}
}

func loadPool(path string) (*x509.CertPool, error) {
	bundle, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(bundle)
	return pool, nil
}
