package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/custody"
)

const (
	kubeconfigKey = "value"

	// kubeconfigLifetime is Cluster API's; the certificate is renewed after half of it.
	kubeconfigLifetime = 365 * 24 * time.Hour

	adminCommonName   = "kubernetes-admin"
	adminOrganization = "system:masters"
)

// KubeconfigRenewedEvent says that the kubeconfig was made anew and why.
const KubeconfigRenewedEvent = "KubeconfigRenewed"

// KubeconfigInput is what [ReconcileKubeconfig] needs.
type KubeconfigInput struct {
	// Client reads from the cache and writes.
	Client client.Client

	// APIReader reads from the API server. It is asked only when the cache has no Secret or a write conflicts.
	APIReader client.Reader

	// Recorder takes the events, which are about ControlPlane.
	Recorder events.EventRecorder

	// Cluster gives the name and the endpoint.
	Cluster *clusterv1.Cluster

	// ControlPlane is the control plane of Cluster; it becomes the Secret's controller.
	ControlPlane *controlplanev1.KThreesControlPlane

	// Certificates are the cluster's: the server CA is trusted, the client CA signs.
	Certificates *Set

	// Now is the clock.
	Now func() time.Time
}

// KubeconfigSecretName returns the name of the Secret with a cluster's kubeconfig.
func KubeconfigSecretName(cluster string) string { return cluster + "-kubeconfig" }

// ReconcileKubeconfig keeps the Secret <cluster>-kubeconfig of Cluster API's contract: it makes it once the Cluster
// has an endpoint, and makes its content anew, by patch, when half of the certificate's year is over or when the
// endpoint or a CA changed. A Secret of another type is the user's and isn't touched, unless this control plane is its
// controller: then an older provider made it.
//
// An [*Error] says why there is no kubeconfig that could be kept.
func ReconcileKubeconfig(ctx context.Context, in KubeconfigInput) error {
	k := kubeconfig{KubeconfigInput: in, keeper: &custody.Keeper{
		Client: in.Client, APIReader: in.APIReader, Recorder: in.Recorder,
		Cluster: in.Cluster, ControlPlane: in.ControlPlane, Now: in.Now,
	}}
	if err := k.keeper.Entitled(); err != nil {
		return err
	}
	if !in.Cluster.Spec.ControlPlaneEndpoint.IsValid() {
		return nil
	}
	secret, err := k.keeper.Get(ctx, k.name())
	if err != nil {
		return err
	}
	if secret == nil {
		return k.create(ctx)
	}
	keep := k.keeper.Keep
	if !custody.Owned(secret) {
		if !custody.HasController(secret, in.ControlPlane) {
			return nil
		}
		// Older providers gave it no type.
		keep = k.keeper.Inherit
	}
	kept, err := keep(ctx, secret)
	if contested := custody.IsContested(err); contested != nil {
		return contested.WithReason(controlplanev1.ForeignSecretReason)
	}
	if err != nil {
		return err
	}
	return k.renew(ctx, kept)
}

type kubeconfig struct {
	KubeconfigInput
	keeper *custody.Keeper
}

func (k *kubeconfig) name() string { return KubeconfigSecretName(k.Cluster.Name) }

func (k *kubeconfig) create(ctx context.Context) error {
	value, err := k.generate()
	if err != nil {
		return err
	}
	_, _, err = k.keeper.Create(ctx, k.name(), map[string][]byte{kubeconfigKey: value})
	return err
}

// renew patches the content if it isn't right any more.
func (k *kubeconfig) renew(ctx context.Context, secret *corev1.Secret) error {
	config, err := clientcmd.Load(secret.Data[kubeconfigKey])
	if err != nil && !custody.IsMarked(secret) {
		return custody.Errorf(controlplanev1.ForeignSecretReason,
			"Secret %s holds no kubeconfig under the key %s and wasn't made by this operator; delete it and it is made, or give it another type than %s and it is left to you",
			secret.Name, kubeconfigKey, clusterv1.ClusterSecretType)
	}
	why := "it couldn't be read"
	if err == nil {
		why = k.outdated(config)
	}
	if why == "" {
		return nil
	}
	value, err := k.generate()
	if err != nil {
		return err
	}
	after := secret.DeepCopy()
	if after.Data == nil {
		after.Data = map[string][]byte{}
	}
	after.Data[kubeconfigKey] = value
	patch := client.MergeFromWithOptions(secret, client.MergeFromWithOptimisticLock{})
	if err := k.Client.Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("renewing the kubeconfig in Secret %s: %w", secret.Name, err)
	}
	k.Recorder.Eventf(k.ControlPlane, after, corev1.EventTypeNormal, KubeconfigRenewedEvent, "Renew",
		"made the kubeconfig in Secret %s anew because %s", secret.Name, why)
	return nil
}

// outdated says why a kubeconfig must be made anew, or nothing.
func (k *kubeconfig) outdated(config *clientcmdapi.Config) string {
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || config.AuthInfos[current.AuthInfo] == nil {
		return "it names no cluster and user"
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	certificate, err := parseCertificate(user.ClientCertificateData)
	if err != nil {
		return "it has no client certificate"
	}
	clientCA, err := parseCertificate(k.Certificates.ClientCA().Cert)
	if err != nil {
		return ""
	}
	halfway := certificate.NotBefore.Add(certificate.NotAfter.Sub(certificate.NotBefore) / 2)
	switch {
	case cluster.Server != k.server():
		return "the endpoint changed"
	case !bytes.Equal(cluster.CertificateAuthorityData, k.Certificates.ServerCABundle()):
		return "the server CA changed"
	case certificate.CheckSignatureFrom(clientCA) != nil:
		return "the client CA changed"
	case !k.Now().Before(halfway):
		return "its certificate gets old"
	case !isAdmin(certificate):
		return "its certificate isn't the administrator's"
	}
	if _, err := (KeyPair{Cert: user.ClientCertificateData, Key: user.ClientKeyData}).TLS(); err != nil {
		return "its key doesn't fit its certificate"
	}
	return ""
}

func isAdmin(certificate *x509.Certificate) bool {
	return slices.Contains(certificate.Subject.Organization, adminOrganization)
}

func (k *kubeconfig) generate() ([]byte, error) {
	pair, err := newClientPair(k.Certificates.ClientCA(), adminCommonName, []string{adminOrganization}, kubeconfigLifetime, k.Now())
	if err != nil {
		return nil, err
	}
	cluster := k.Cluster.Name
	user := cluster + "-admin"
	context := user + "@" + cluster
	value, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			cluster: {Server: k.server(), CertificateAuthorityData: k.Certificates.ServerCABundle()},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: pair.Cert, ClientKeyData: pair.Key},
		},
		Contexts:       map[string]*clientcmdapi.Context{context: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: context,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the kubeconfig of cluster %s: %w", cluster, err)
	}
	return value, nil
}

// server returns the endpoint as a URL; an IPv6 address may come with brackets or without.
func (k *kubeconfig) server() string {
	endpoint := k.Cluster.Spec.ControlPlaneEndpoint
	host := strings.TrimSuffix(strings.TrimPrefix(endpoint.Host, "["), "]")
	return "https://" + net.JoinHostPort(host, strconv.Itoa(int(endpoint.Port)))
}
