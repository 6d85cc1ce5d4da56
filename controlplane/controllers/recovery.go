package controllers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/pkg/token"
)

// recoverToken reads the token from the password file of a live server; nil when no server gives it.
func (r *Reconciler) recoverToken(ctx context.Context, s *scope) (*token.Token, error) {
	supervisor, err := r.supervisor(s)
	if err != nil {
		return nil, nil
	}
	bootstrap, err := supervisor.ServerBootstrap(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("No server could give the token back", "cause", err.Error())
		return nil, nil
	}
	return token.FromPasswdFile(bootstrap["PasswdFile"].Content)
}

// bootstrapKeys are the names of the CAs in the supervisor's bootstrap answer; those of the keys end in "Key".
var bootstrapKeys = map[certs.Purpose]string{
	certs.ServerCA:        "ServerCA",
	certs.ClientCA:        "ClientCA",
	certs.EtcdCA:          "ETCDServerCA",
	certs.EtcdPeerCA:      "ETCDPeerCA",
	certs.RequestHeaderCA: "RequestHeaderCA",
}

// recoverCertificates reads the CAs back from a live server.
func (r *Reconciler) recoverCertificates(ctx context.Context, s *scope) (map[certs.Purpose]certs.KeyPair, error) {
	bootstrap, err := r.askForBootstrap(ctx, s)
	if err != nil {
		return nil, err
	}
	pairs := map[certs.Purpose]certs.KeyPair{}
	for purpose, key := range bootstrapKeys {
		if cert := bootstrap[key].Content; cert != nil {
			pairs[purpose] = certs.KeyPair{Cert: cert, Key: bootstrap[key+"Key"].Content}
		}
	}
	if key := bootstrap["ServiceKey"].Content; key != nil {
		pairs[certs.ServiceAccount] = certs.KeyPair{Key: key}
	}
	return pairs, nil
}

// askForBootstrap asks a server whose CA has the fingerprint that was recorded when the cluster was founded: with a
// client certificate, unless the client CA is lost, and else with a token, which is sent to no other server.
func (r *Reconciler) askForBootstrap(ctx context.Context, s *scope) (k3s.Bootstrap, error) {
	recorded := recordedEvidence(s.controlPlane)
	if recorded == nil || !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return nil, errors.New("no fingerprint was recorded by which a server could be trusted")
	}
	bundle, err := k3s.FetchCACerts(ctx, s.cluster.Spec.ControlPlaneEndpoint.String())
	if err != nil {
		return nil, err
	}
	fingerprint, err := certs.Fingerprint(bundle)
	if err != nil {
		return nil, fmt.Errorf("reading the server's CA: %w", err)
	}
	if fingerprint != recorded.Certificates[string(certs.ServerCA)] {
		return nil, errors.New("the server behind the endpoint has another CA than the one this cluster was founded with")
	}
	if bootstrap, err := r.bootstrapByCertificate(ctx, s, bundle); err == nil {
		return bootstrap, nil
	}
	return r.bootstrapByAnyToken(ctx, s, bundle)
}

// bootstrapByCertificate works without any token.
func (r *Reconciler) bootstrapByCertificate(ctx context.Context, s *scope, bundle []byte) (k3s.Bootstrap, error) {
	clientCA, err := certs.LookupPair(ctx, r.Client, client.ObjectKeyFromObject(s.cluster), certs.ClientCA)
	if err != nil {
		return nil, err
	}
	certificate, err := supervisorCertificate(clientCA, s.now)
	if err != nil {
		return nil, err
	}
	supervisor, err := k3s.NewSupervisor(s.cluster.Spec.ControlPlaneEndpoint.String(), bundle, certificate)
	if err != nil {
		return nil, err
	}
	defer supervisor.Close()
	return supervisor.ServerBootstrap(ctx)
}

// bootstrapByAnyToken tries the token of the Secret, then those of the servers' bootstrap data.
func (r *Reconciler) bootstrapByAnyToken(ctx context.Context, s *scope, bundle []byte) (k3s.Bootstrap, error) {
	supervisor, err := k3s.NewSupervisor(s.cluster.Spec.ControlPlaneEndpoint.String(), bundle, tls.Certificate{})
	if err != nil {
		return nil, err
	}
	defer supervisor.Close()
	candidates, err := r.dataTokens(ctx, s)
	if err != nil {
		return nil, err
	}
	if t, lookupErr := token.Lookup(ctx, r.Client, client.ObjectKeyFromObject(s.cluster)); lookupErr == nil {
		candidates = append([]token.Token{*t}, candidates...)
	}
	lastErr := errors.New("no token is known with which a server could be asked")
	for _, candidate := range candidates {
		if candidate.Server == "" {
			continue
		}
		bootstrap, err := supervisor.ServerBootstrapByToken(ctx, candidate.Server)
		if err == nil {
			return bootstrap, nil
		}
		lastErr = err
	}
	return nil, lastErr
}
