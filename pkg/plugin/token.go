package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/token"
)

// verification is what came of verifying a token. Nothing of the token is in it.
type verification struct {
	Namespace string `json:"namespace"`
	Cluster   string `json:"cluster"`
	Secret    string `json:"secret"`
	CASecret  string `json:"caSecret"`
	Endpoint  string `json:"endpoint,omitempty"`

	// Valid says whether machines can join with what the Secrets hold.
	Valid bool `json:"valid"`

	// Reason is acceptedReason, or says why the token isn't valid, as the conditions of the control plane do.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func (v *verification) text(w io.Writer) error {
	_, err := fmt.Fprintf(w, "Cluster %s/%s: %s: %s.\n", v.Namespace, v.Cluster, v.Reason, v.Message)
	return err
}

func (c *command) verify() *cobra.Command {
	return c.about("verify", "Ask the servers whether they accept the token",
		`Ask the servers whether they accept the token of the cluster's Secret, and whether their CA is that of its Secret. They
are asked at the control plane endpoint, which must be reachable from here; a server with another CA isn't sent the
token. The exit code is 0 when machines can join, 1 when they can't, 2 when it couldn't be found out.`,
		func(ctx context.Context, s *subject) error {
			result, err := s.verification(ctx)
			if err != nil {
				return err
			}
			if err := c.print(result); err != nil {
				return err
			}
			if !result.Valid {
				return errNo
			}
			return nil
		})
}

// verification tells what a human must know of the token from what failed.
func (s *subject) verification(ctx context.Context) (*verification, error) {
	v := &verification{
		Namespace: s.cluster.Namespace, Cluster: s.cluster.Name,
		Secret: token.SecretName(s.cluster.Name), CASecret: certs.ServerCA.SecretName(s.cluster.Name),
	}
	if s.cluster.Spec.ControlPlaneEndpoint.IsValid() {
		v.Endpoint = s.cluster.Spec.ControlPlaneEndpoint.String()
	}
	err := s.verify(ctx)
	var no *custody.Error
	switch {
	case err == nil:
		v.Valid, v.Reason = true, acceptedReason
		v.Message = fmt.Sprintf("the servers at %s accept the token in Secret %s, and their CA is the one in Secret %s", v.Endpoint, v.Secret, v.CASecret)
	case errors.As(err, &no):
		v.Reason, v.Message = no.Reason, no.Message
	default:
		return nil, fmt.Errorf("the token of Cluster %s/%s couldn't be verified: %w", v.Namespace, v.Cluster, err)
	}
	return v, nil
}
