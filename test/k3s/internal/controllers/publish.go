package controllers

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capk3s/capk3s/test/k3s/internal/pki"
)

// Each server keeps a key with its address alive, as kube-apiserver's own
// endpoint leases do.
const (
	addressPrefix   = "k3s/apiaddresses/"
	addressTTL      = 15
	addressInterval = 10 * time.Second
)

// publishAddress keeps this server among the endpoints of the kubernetes
// Service, with the supervisor's port: kube-apiserver itself would publish a
// port that is on the loopback only.
func (c *Controllers) publishAddress(ctx context.Context) {
	for {
		if err := c.publishOnce(ctx); err != nil && ctx.Err() == nil {
			logrus.Debugf("Failed to publish server address: %v", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(addressInterval):
		}
	}
}

func (c *Controllers) publishOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, addressInterval)
	defer cancel()
	control := &c.cfg.Server.Control
	store := c.etcd.Client()
	lease, err := store.Grant(ctx, addressTTL)
	if err != nil {
		return err
	}
	if _, err := store.Put(ctx, addressPrefix+control.AdvertiseIP, "", clientv3.WithLease(lease.ID)); err != nil {
		return err
	}
	resp, err := store.Get(ctx, addressPrefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	var addresses []string
	for _, kv := range resp.Kvs {
		addresses = append(addresses, strings.TrimPrefix(string(kv.Key), addressPrefix))
	}
	return c.setEndpoints(ctx, addresses, int32(control.AdvertisePort))
}

func (c *Controllers) setEndpoints(ctx context.Context, addresses []string, port int32) error {
	slices.Sort(addresses)
	ready, name, protocol := true, "https", corev1.ProtocolTCP
	wanted := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "kubernetes", Namespace: metav1.NamespaceDefault,
			Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: addresses, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	client := c.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	current, err := client.Get(ctx, wanted.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	if len(current.Endpoints) == 1 && slices.Equal(current.Endpoints[0].Addresses, addresses) {
		return nil
	}
	wanted.ResourceVersion = current.ResourceVersion
	_, err = client.Update(ctx, wanted, metav1.UpdateOptions{})
	return err
}

// publishServingCertificate stores the supervisor's certificate in the cluster,
// once; others take it for the sign of a cluster that is up.
func (c *Controllers) publishServingCertificate(ctx context.Context) {
	certFile, keyFile := pki.NewFiles(c.cfg.ServerDir()).Leaf("k3s-serving")
	cert, err := os.ReadFile(certFile)
	if err != nil {
		logrus.Errorf("Failed to read serving certificate: %v", err)
		return
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		logrus.Errorf("Failed to read serving key: %v", err)
		return
	}
	for ctx.Err() == nil {
		_, err := c.kube.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "k3s-serving", Namespace: metav1.NamespaceSystem},
			Type:       corev1.SecretTypeTLS,
			Data:       map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key},
		}, metav1.CreateOptions{})
		if err == nil || apierrors.IsAlreadyExists(err) {
			return
		}
		time.Sleep(time.Second)
	}
}
