//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capk3s/capk3s/test/sandbox/machine"
)

// TestJoin_FailsWithAWrongTokenOrCAHash boots machines outside Cluster API with the bootstrap data of a worker in
// which the token was changed.
func TestJoin_FailsWithAWrongTokenOrCAHash(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "join", 1, 1)
	c.awaitSettled(1, 1)
	data := c.workerData()

	cases := []struct {
		name   string
		change func(token string) string
		says   string
	}{
		{name: "right", change: func(token string) string { return token }},
		{name: "wrong-token", change: func(token string) string { return token[:len(token)-4] + "beef" }, says: "not authorized"},
		{
			name: "wrong-hash", change: func(token string) string { return "K10" + strings.Repeat("0", 64) + token[strings.Index(token, "::"):] },
			says: "token CA hash does not match the Cluster CA certificate hash",
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			c.t = t
			m := c.boot("join-"+tc.name, withToken(t, data, tc.change))
			c.eventually("the outcome", func(ctx context.Context) error {
				if tc.says == "" {
					return c.workload.Client.Get(ctx, client.ObjectKey{Name: m.Name()}, &corev1.Node{})
				}
				log, err := m.ReadFile("/var/log/k3s-agent.log")
				if err != nil {
					return err
				}
				if !bytes.Contains(log, []byte(tc.says)) {
					return fmt.Errorf("the log doesn't say %q yet:\n%s", tc.says, log)
				}
				return nil
			})
			if tc.says != "" {
				require.Error(t, c.workload.Client.Get(context.Background(), client.ObjectKey{Name: m.Name()}, &corev1.Node{}), "no Node")
				_, err := m.ReadFile("/run/cluster-api/bootstrap-success.complete")
				require.Error(t, err, "no sentinel")
			}
		})
	}
}

// workerData is the bootstrap data of a worker.
func (c *cluster) workerData() []byte {
	c.t.Helper()
	machines := &clusterv1.MachineList{}
	require.NoError(c.t, c.at.Client.List(context.Background(), machines, client.InNamespace(c.namespace),
		client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: c.name}))
	require.NotEmpty(c.t, machines.Items)
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: c.namespace, Name: ptr.Deref(machines.Items[0].Spec.Bootstrap.DataSecretName, "")}
	require.NoError(c.t, c.at.Client.Get(context.Background(), key, secret))
	return secret.Data["value"]
}

// boot starts a machine that Cluster API knows nothing of.
func (c *cluster) boot(name string, userData []byte) *machine.Machine {
	c.t.Helper()
	ctx := context.Background()
	m, err := c.at.Host.Create(ctx, machine.Config{
		Namespace: c.namespace, Name: name, ProviderID: "sandbox:///" + c.namespace + "/" + name, UserData: userData,
	})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, m.Delete(ctx)) })
	require.NoError(c.t, m.Start(ctx))
	return m
}

// withToken changes the token in the config.yaml of a cloud-config.
func withToken(t testing.TB, data []byte, change func(string) string) []byte {
	t.Helper()
	header, _, _ := bytes.Cut(data, []byte("\n"))
	document := map[string]any{}
	require.NoError(t, yaml.Unmarshal(data, &document))
	changed := false
	for _, entry := range document["write_files"].([]any) {
		file := entry.(map[string]any)
		if file["path"] != "/etc/rancher/k3s/config.yaml" {
			continue
		}
		content := file["content"].(string)
		if file["encoding"] == "b64" {
			decoded, err := base64.StdEncoding.DecodeString(content)
			require.NoError(t, err)
			content = string(decoded)
			delete(file, "encoding")
		}
		config := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(content), &config))
		token, ok := config["token"].(string)
		require.True(t, ok, "config.yaml has a token")
		config["token"] = change(token)
		encoded, err := yaml.Marshal(config)
		require.NoError(t, err)
		file["content"] = string(encoded)
		changed = true
	}
	require.True(t, changed, "the data have a config.yaml")
	body, err := yaml.Marshal(document)
	require.NoError(t, err)
	return slices.Concat(header, []byte("\n#cloud-config\n"), body)
}
