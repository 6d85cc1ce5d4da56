package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/pkg/token"
)

// keepCustody looks after what the cluster can't lose. A failure of one is kept in the scope, becomes a condition
// and holds back new servers; it doesn't stop the others.
func (r *Reconciler) keepCustody(ctx context.Context, s *scope) error {
	if !s.initialized {
		if err := r.confirmNotInitialized(ctx, s); err != nil {
			return err
		}
	}
	s.certificates, s.certificatesErr = certs.Reconcile(ctx, r.certificatesInput(s))
	s.token, s.tokenErr = token.Reconcile(ctx, r.tokenInput(s))
	if s.certificates != nil && (!s.initialized || s.founderReplaced()) && r.endpointIsOurs(ctx, s) {
		s.initialized, s.endpointLives = true, true
		s.evidence = "The control plane endpoint, which answers with this cluster's certificate authority,"
	}
	s.kubeconfigErr = r.reconcileKubeconfig(ctx, s)
	var expiryErr error
	s.kubeconfigExpiry, expiryErr = certs.KubeconfigExpiry(ctx, r.Client, client.ObjectKeyFromObject(s.cluster))
	return errors.Join(transient(s.certificatesErr), transient(s.tokenErr), transient(s.kubeconfigErr), expiryErr)
}

// endpointIsOurs says whether a server with this cluster's CA answers at the endpoint. It is asked only before the
// first Machine is made.
func (r *Reconciler) endpointIsOurs(ctx context.Context, s *scope) bool {
	if len(s.machines) > 0 || !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return false
	}
	bundle, err := k3s.FetchCACerts(ctx, s.cluster.Spec.ControlPlaneEndpoint.String())
	if err != nil {
		return false
	}
	fingerprint, err := certs.Fingerprint(bundle)
	return err == nil && fingerprint == s.certificates.Fingerprints()[string(certs.ServerCA)]
}

// founded says whether the cluster exists, as far as its key material is concerned: a human may let a lost one be
// founded anew.
func (s *scope) founded() bool {
	return s.initialized && (len(s.machines) > 0 || !s.initAllowed())
}

// transient is an error that another try may cure. What a human must cure is a condition, not an error.
func transient(err error) error {
	var known *custody.Error
	if errors.As(err, &known) {
		return nil
	}
	return err
}

func (r *Reconciler) certificatesInput(s *scope) certs.Input {
	return certs.Input{
		Client:       r.Client,
		APIReader:    r.APIReader,
		Recorder:     r.Recorder,
		Cluster:      s.cluster,
		ControlPlane: s.controlPlane,
		Initialized:  s.founded(),
		Fingerprints: recordedFingerprints(s.controlPlane),
		Recover: func(ctx context.Context) (map[certs.Purpose]certs.KeyPair, error) {
			return r.recoverCertificates(ctx, s)
		},
		Now: s.clock,
	}
}

func (r *Reconciler) tokenInput(s *scope) token.Input {
	return token.Input{
		Client:       r.Client,
		APIReader:    r.APIReader,
		Recorder:     r.Recorder,
		Cluster:      s.cluster,
		ControlPlane: s.controlPlane,
		Initialized:  s.founded(),
		DataTokens:   func(ctx context.Context) ([]token.Token, error) { return r.dataTokens(ctx, s) },
		Judge:        r.verdicts.Judge(s.cluster.UID, s.clock, r.judge(s)),
		Recover:      func(ctx context.Context) (*token.Token, error) { return r.recoverToken(ctx, s) },
		Now:          s.clock,
	}
}

func (r *Reconciler) reconcileKubeconfig(ctx context.Context, s *scope) error {
	if s.certificates == nil || !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return nil
	}
	return certs.ReconcileKubeconfig(ctx, certs.KubeconfigInput{
		Client:       r.Client,
		APIReader:    r.APIReader,
		Recorder:     r.Recorder,
		Cluster:      s.cluster,
		ControlPlane: s.controlPlane,
		Certificates: s.certificates,
		Now:          s.clock,
	})
}

// dataTokens reads the tokens from the bootstrap data of the servers, newest first. Data without a token, for
// example a human's, count with an empty one.
func (r *Reconciler) dataTokens(ctx context.Context, s *scope) ([]token.Token, error) {
	var tokens []token.Token
	machines := s.machines.SortedByCreationTimestamp()
	slices.Reverse(machines)
	for _, machine := range machines {
		secretName := ptr.Deref(machine.Spec.Bootstrap.DataSecretName, "")
		if secretName == "" {
			continue
		}
		secret := &corev1.Secret{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.cluster.Namespace, Name: secretName}, secret)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading bootstrap data Secret %s: %w", secretName, err)
		}
		t, err := token.FromBootstrapData(secret.Data["value"])
		if err != nil {
			t = &token.Token{}
		}
		tokens = append(tokens, *t)
	}
	return tokens, nil
}

// judge asks the servers whether they accept a token.
func (r *Reconciler) judge(s *scope) func(context.Context, string) (token.Verdict, error) {
	return func(ctx context.Context, candidate string) (token.Verdict, error) {
		supervisor, err := r.supervisor(s)
		if err != nil {
			return token.Unreachable, nil
		}
		verdict, err := token.Ask(ctx, supervisor, candidate)
		if err != nil {
			ctrl.LoggerFrom(ctx).Info("No server could judge the token", "cause", err.Error())
		}
		return verdict, nil
	}
}
