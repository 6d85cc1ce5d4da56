package controllers

import (
	"context"
	"errors"
	"fmt"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
	"github.com/capk3s/capk3s/pkg/certs"
	"github.com/capk3s/capk3s/pkg/custody"
	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/pkg/token"
)

// inputs are the secrets that bootstrap data are made from.
type inputs struct {
	token   *token.Token
	certs   *certs.Set
	content *content
}

// readInputs returns a [refusal] as long as one of them is missing.
func (r *Reconciler) readInputs(ctx context.Context, s *scope, role bootdata.Role) (*inputs, error) {
	in := &inputs{}
	key := client.ObjectKeyFromObject(s.cluster)
	var err error
	if in.certs, err = certs.Lookup(ctx, r.Client, key); err != nil {
		return nil, missing(err, bootstrapv1.CertificatesAvailableCondition, bootstrapv1.WaitingForCertificatesReason,
			"Waiting for the certificate authorities of Cluster "+s.cluster.Name)
	}
	setFound(s.config, bootstrapv1.CertificatesAvailableCondition)
	if in.token, err = token.Lookup(ctx, r.Client, key); err != nil {
		return nil, missing(err, bootstrapv1.TokenAvailableCondition, bootstrapv1.WaitingForTokenReason,
			"Waiting for the token of Cluster "+s.cluster.Name)
	}
	setFound(s.config, bootstrapv1.TokenAvailableCondition)
	in.content, err = r.readContent(ctx, s.config, role)
	return in, err
}

// missing turns the absence of a Secret, and one that nobody can use, into a refusal.
func missing(err error, condition, reason, message string) error {
	var unusable *custody.Error
	switch {
	case apierrors.IsNotFound(err):
		return &refusal{condition: condition, reason: reason, message: message}
	case errors.As(err, &unusable):
		return &refusal{condition: condition, reason: unusable.Reason, message: unusable.Message, warning: true, again: unusable.RetryAfter}
	}
	return err
}

// machine puts together what a machine of that role gets. A worker gets neither the servers' token, unless the cluster
// knows no other, nor a key; only the first server gets the certificate authorities.
func (in *inputs) machine(s *scope, role bootdata.Role) (bootdata.Machine, error) {
	endpoint := k3s.Endpoint{Host: s.cluster.Spec.ControlPlaneEndpoint.Host, Port: s.cluster.Spec.ControlPlaneEndpoint.Port}
	m := bootdata.Machine{
		Role:          role,
		Version:       s.owner.version,
		Endpoint:      endpoint,
		Registries:    in.content.registries,
		Kubelet:       s.config.Spec.AgentConfig.KubeletConfiguration.Raw,
		SettingsFiles: in.content.settingsFiles,
		Files:         in.content.files,
		Hardened:      s.config.Spec.Profile == bootstrapv1.ProfileCIS,
		Install:       s.config.Spec.Install,
		Proxy:         s.config.Spec.Proxy,
		PreCommands:   s.config.Spec.PreK3sCommands,
		PostCommands:  s.config.Spec.PostK3sCommands,
	}
	if err := in.keepSecret(&s.config.Spec); err != nil {
		return m, invalid(err)
	}
	var err error
	if role == bootdata.Worker {
		m.Config, err = in.agentConfig(endpoint, &s.config.Spec)
		return m, err
	}
	if m.Config, err = in.serverConfig(endpoint, &s.config.Spec, role == bootdata.FirstServer); err != nil {
		return m, err
	}
	if role == bootdata.FirstServer {
		for _, file := range in.certs.SeedFiles() {
			m.CAFiles = append(m.CAFiles, bootdata.File{
				Path:        path.Join(m.Config.DataDir(), file.Path),
				Permissions: fmt.Sprintf("%04o", file.Mode),
				Content:     file.Content,
			})
		}
	}
	return m, nil
}

func (in *inputs) agentConfig(endpoint k3s.Endpoint, spec *bootstrapv1.KThreesConfigSpec) (k3s.Config, error) {
	password := in.token.Agent
	if password == "" {
		password = in.token.Server
	}
	full, err := k3s.FullToken(in.certs.ServerCABundle(), k3s.NodeUser, password)
	if err != nil {
		return nil, fmt.Errorf("making the agent's token: %w", err)
	}
	taint := clusterv1.NodeUninitializedTaint
	config, err := k3s.AgentConfig(k3s.Agent{Endpoint: endpoint, Token: full, Taints: []string{taint.Key + ":" + string(taint.Effect)}}, spec)
	if err != nil {
		return nil, invalid(err)
	}
	return config, nil
}

func (in *inputs) serverConfig(endpoint k3s.Endpoint, spec *bootstrapv1.KThreesConfigSpec, first bool) (k3s.Config, error) {
	full, err := k3s.FullToken(in.certs.ServerCABundle(), k3s.ServerUser, in.token.Server)
	if err != nil {
		return nil, fmt.Errorf("making the server's token: %w", err)
	}
	config, err := k3s.ServerConfig(k3s.Server{Init: first, Endpoint: endpoint, Token: full, AgentToken: in.token.Agent, Secret: in.content.settings}, spec)
	if err != nil {
		return nil, invalid(err)
	}
	return config, nil
}
