//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/test/testenv/authority"
)

// userCAs are a user's own, as a company's: RSA, each with the chain that leads to the company's root.
type userCAs struct {
	// secrets are their data.
	secrets map[string]map[string][]byte
	// hash is what joining machines know the root by.
	hash string
}

// createUserCAs creates the Secrets that docs/custody.md asks for.
func (c *cluster) createUserCAs() userCAs {
	c.t.Helper()
	expiry := time.Now().AddDate(5, 0, 0)
	root := authority.New(c.t, nil, authority.RSA(c.t), expiry)
	intermediate := authority.New(c.t, root, authority.RSA(c.t), expiry)
	sum := sha256.Sum256(root.Root.Raw)
	cas := userCAs{secrets: map[string]map[string][]byte{}, hash: hex.EncodeToString(sum[:])}
	for _, suffix := range []string{"ca", "cca", "etcd", "etcd-peer", "proxy", "sa"} {
		ca := authority.New(c.t, intermediate, authority.RSA(c.t), expiry)
		data := map[string][]byte{"tls.crt": ca.Cert, "tls.key": ca.Key}
		if suffix == "sa" {
			delete(data, "tls.crt")
		}
		name := c.name + "-" + suffix
		cas.secrets[name] = data
		c.create(context.Background(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: c.name}},
			Type:       clusterv1.ClusterSecretType, Data: data,
		})
	}
	return cas
}

// requireUserCAs checks that the CAs are the user's bytes and the cluster's own, that no root was made beside them, and
// that every machine but the one that founded the cluster joined knowing the right one.
func (c *cluster) requireUserCAs(cas userCAs) {
	c.t.Helper()
	ctx := context.Background()
	require.NoError(c.t, c.checkSecrets(ctx, cas.secrets))
	assert.NotContains(c.t, c.objectsLeft(), "secret/"+c.name+"-root")
	machines, knowing := c.machines(), 0
	for _, machine := range machines {
		withToken(c.t, c.secret(*machine.Spec.Bootstrap.DataSecretName).Data["value"], func(token string) string {
			hash, _, _, err := k3s.ParseToken(token)
			assert.NoError(c.t, err)
			if hash != "" {
				assert.Equalf(c.t, cas.hash, hash, "what Machine %s knows the CA by", machine.Name)
				knowing++
			}
			return token
		})
	}
	assert.GreaterOrEqual(c.t, knowing, len(machines)-1)
}
