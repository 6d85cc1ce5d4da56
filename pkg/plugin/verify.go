package plugin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/pkg/token"
)

// Reasons besides those of the control plane's conditions.
const (
	acceptedReason = "Accepted"
	otherCAReason  = "OtherCA"
)

// verify returns nil when machines can join with what the Secrets hold, a [*custody.Error] when they can't, and any
// other error when it couldn't be found out.
func (s *subject) verify(ctx context.Context) error {
	key := client.ObjectKeyFromObject(s.cluster)
	stored, err := token.Stored(ctx, s.client, key)
	if err != nil {
		return s.orLost(err, controlplanev1.TokenLostReason, token.SecretName(s.cluster.Name))
	}
	ca, err := certs.LookupPair(ctx, s.client, key, certs.ServerCA)
	if err != nil {
		return s.orLost(err, controlplanev1.CertificatesLostReason, certs.ServerCA.SecretName(s.cluster.Name))
	}
	if !s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return errors.New("the Cluster has no control plane endpoint yet (spec.controlPlaneEndpoint), so there is no server to ask")
	}
	// First, so that the token is sent to no other server.
	if err := s.verifyCA(ctx, ca.Cert); err != nil {
		return err
	}
	return s.ask(ctx, ca.Cert, stored.Server)
}

// orLost says of a Secret that isn't there what it means; other errors stay as they are.
func (s *subject) orLost(err error, reason, secret string) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	return custody.Errorf(reason,
		"there is no Secret %s. The control plane makes it for a new cluster and puts a lost one back; why it hasn't is in the conditions that clusterctl k3s status %s -n %s shows",
		secret, s.cluster.Name, s.cluster.Namespace)
}

// verifyCA compares the CAs by what the tokens of joining machines name them with.
func (s *subject) verifyCA(ctx context.Context, bundle []byte) error {
	endpoint := s.cluster.Spec.ControlPlaneEndpoint.String()
	served, err := k3s.FetchCACerts(ctx, endpoint)
	if err != nil {
		return unreachable(endpoint, err)
	}
	wanted, err := k3s.CAHash(bundle)
	if err != nil {
		return err
	}
	if found, err := k3s.CAHash(served); err != nil || found != wanted {
		return custody.Errorf(otherCAReason,
			"the server at %s has another CA than the one in Secret %s, so it wasn't sent the token, and machines would refuse to join it. Either spec.controlPlaneEndpoint leads to another cluster, or the Secret holds an older CA: put the one that the servers use into it",
			endpoint, certs.ServerCA.SecretName(s.cluster.Name))
	}
	return nil
}

// ask has the servers judge the token.
func (s *subject) ask(ctx context.Context, bundle []byte, password string) error {
	endpoint := s.cluster.Spec.ControlPlaneEndpoint.String()
	servers, err := k3s.NewSupervisor(endpoint, bundle, tls.Certificate{})
	if err != nil {
		return err
	}
	defer servers.Close()
	switch verdict, err := token.Ask(ctx, servers, password); verdict {
	case token.Accepted:
		return nil
	case token.Refused:
		return custody.Errorf(controlplanev1.TokenDriftedReason,
			"the servers at %s refuse the token in Secret %s. Put back the value that they use, which ends /var/lib/rancher/k3s/server/token on each of them after the last colon; if the token was just rotated, restart K3s on the servers",
			endpoint, token.SecretName(s.cluster.Name))
	default:
		return unreachable(endpoint, err)
	}
}

func unreachable(endpoint string, err error) error {
	return fmt.Errorf("no server at %s could be asked; the control plane endpoint must be reachable from here, and K3s must run behind it: %w", endpoint, err)
}
