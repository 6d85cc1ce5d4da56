package token_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/capk3s/capk3s/controlplane/api/v1beta3"
	"github.com/capk3s/capk3s/pkg/token"
	"github.com/capk3s/capk3s/test/testenv"
)

func TestToken_ShowsNothing(t *testing.T) {
	secret := token.Token{Server: oldToken, Agent: agentToken}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x", "%t"} {
		require.NotContains(t, fmt.Sprintf(verb, secret), secretPart, verb)
		require.NotContains(t, fmt.Sprintf(verb, &secret), secretPart, verb)
		require.NotContains(t, fmt.Sprintf(verb, []token.Token{secret}), secretPart, verb)
	}
	encoded, err := json.Marshal(map[string]any{"token": secret, "pointer": &secret})
	require.NoError(t, err)
	require.NotContains(t, string(encoded), secretPart)
	encoded, err = yaml.Marshal(secret)
	require.NoError(t, err)
	require.NotContains(t, string(encoded), secretPart)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("message", "token", secret, "pointer", &secret)
	require.NotContains(t, log.String(), secretPart)
}

func TestLookup(t *testing.T) {
	ctx := context.Background()
	cluster := testenv.Cluster(env.Namespace(t), "c")
	key := client.ObjectKeyFromObject(cluster)
	reader, requests := testenv.Count(env.Client)

	_, err := token.Lookup(ctx, reader, key)
	require.True(t, apierrors.IsNotFound(err))

	secret := testenv.Secret(cluster, token.SecretName("c"), map[string]string{"value": oldToken, "agent-token": agentToken})
	env.Create(t, secret)
	got, err := token.Lookup(ctx, reader, key)
	require.NoError(t, err)
	require.True(t, token.Token{Server: oldToken, Agent: agentToken} == *got)

	secret.Data["value"] = []byte(" " + oldToken)
	require.NoError(t, env.Client.Update(ctx, secret))
	_, err = token.Lookup(ctx, reader, key)
	var typed *token.Error
	require.ErrorAs(t, err, &typed)
	require.Equal(t, controlplanev1.TokenInvalidReason, typed.Reason)
	require.NotContains(t, err.Error(), secretPart)
	require.Empty(t, requests.Writes())
}

func TestDigest(t *testing.T) {
	salt := []byte("0123456789abcdef")
	digest := token.Digest(oldToken, salt)
	require.Equal(t, digest, token.Digest(oldToken, salt))
	require.NotEqual(t, digest, token.Digest(oldToken, []byte("another salt 123")))
	require.NotContains(t, digest, secretPart)
	require.True(t, token.Verify(digest, oldToken))
	require.False(t, token.Verify(digest, newToken))
	for _, broken := range []string{"", "x", "scrypt-15-8-1:!:x", "md5:a:b", digest + ":"} {
		require.False(t, token.Verify(broken, oldToken), broken)
	}
}

const hash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestFromBootstrapData(t *testing.T) {
	server := "token: K10" + hash + "::server:" + oldToken + "\nagent-token: " + agentToken + "\ncluster-init: true\n"
	worker := "server: https://10.0.0.1:6443\ntoken: K10" + hash + "::node:" + agentToken + "\n"
	legacy := "token: " + oldToken + "\nserver: https://10.0.0.1:6443\n"
	both := &token.Token{Server: oldToken, Agent: agentToken}

	for name, tc := range map[string]struct {
		data string
		want *token.Token
	}{
		"plain":                {cloudConfig(t, "", server), both},
		"base64":               {cloudConfig(t, "b64", b64(server)), both},
		"gzip and base64":      {cloudConfig(t, "gz+b64", b64(zipped(server))), both},
		"its other name":       {cloudConfig(t, "gzip+base64", b64(zipped(server))), both},
		"the whole is gzipped": {zipped(cloudConfig(t, "", server)), both},
		"jinja":                {"## template: jinja\n" + cloudConfig(t, "", server+`node-name: '{{ ds.meta_data.hostname }}'`+"\n"), both},
		"worker":               {cloudConfig(t, "", worker), &token.Token{Agent: agentToken}},
		"existing provider": {
			"## template: jinja\n#cloud-config\n\nwrite_files:\n-   path: /etc/rancher/k3s/config.yaml\n    content: |\n      token: " + oldToken +
				"\n      server: https://10.0.0.1:6443\n\nruncmd:\n  - \"curl -sfL https://get.k3s.io | sh -s - server\"\n",
			&token.Token{Server: oldToken},
		},
		"short form":         {cloudConfig(t, "", legacy), &token.Token{Server: oldToken}},
		"token of digits":    {cloudConfig(t, "", `token: "0123"`), &token.Token{Server: "0123"}},
		"colons in password": {cloudConfig(t, "", "token: 'K10"+hash+"::server:a::b:c'"), &token.Token{Server: "a::b:c"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := token.FromBootstrapData([]byte(tc.data))
			require.NoError(t, err)
			require.True(t, *tc.want == *got)
		})
	}
}

func TestFromBootstrapData_SaysWhatIsWrongWithoutTheData(t *testing.T) {
	for name, data := range map[string]string{
		"empty":            "",
		"no YAML":          "#cloud-config\n{{ 5ec2e7",
		"no config":        "#cloud-config\nwrite_files:\n- path: /etc/other\n  content: 'token: 5ec2e7'\n",
		"no token":         cloudConfig(t, "", "server: https://5ec2e7"),
		"config no YAML":   cloudConfig(t, "", "token: [5ec2e7"),
		"token no string":  cloudConfig(t, "", "token: {5ec2e7: 1}"),
		"broken base64":    cloudConfig(t, "b64", "5ec2e7!"),
		"broken gzip":      cloudConfig(t, "gz+b64", b64("5ec2e7")),
		"broken outer":     "\x1f\x8b5ec2e7",
		"unknown encoding": cloudConfig(t, "rot13", "5ec2e7"),
		"broken full form": cloudConfig(t, "", "token: K105ec2e7"),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := token.FromBootstrapData([]byte(data))
			require.Error(t, err)
			require.Nil(t, got)
			require.NotContains(t, err.Error(), secretPart)
		})
	}
}

// Whatever the damage, there is a token or an error, and the error shows nothing of the data.
func TestFromBootstrapData_SurvivesDamagedData(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	config := "token: K10" + hash + "::server:" + oldToken + "\nagent-token: " + agentToken + "\n"
	for _, whole := range []string{cloudConfig(t, "", config), cloudConfig(t, "gz+b64", b64(zipped(config))), zipped(cloudConfig(t, "b64", b64(config)))} {
		for range 2000 {
			data := []byte(whole)
			for range 1 + random.IntN(3) {
				data[random.IntN(len(data))] = byte(random.Uint32())
			}
			data = data[:len(data)-random.IntN(2)*random.IntN(len(data))]
			got, err := token.FromBootstrapData(data)
			require.Equal(t, err == nil, got != nil)
			if err != nil {
				require.NotContains(t, err.Error(), secretPart)
			}
		}
	}
}

func TestFromPasswdFile(t *testing.T) {
	got, err := token.FromPasswdFile([]byte(`5ec2e7-agent,node,node,k3s:agent` + "\n" + `"5ec2e7-a,""b",server,server,k3s:server` + "\n"))
	require.NoError(t, err)
	require.True(t, token.Token{Server: `5ec2e7-a,"b`, Agent: agentToken} == *got)

	got, err = token.FromPasswdFile([]byte("x,node,node,k3s:agent\nx,server,server,k3s:server\n"))
	require.NoError(t, err)
	require.True(t, token.Token{Server: "x"} == *got, "one password for both is no agent token")

	for _, broken := range []string{"", "5ec2e7\n", `"5ec2e7`, "5ec2e7,node,node,k3s:agent\n"} {
		_, err = token.FromPasswdFile([]byte(broken))
		require.Error(t, err)
		require.NotContains(t, err.Error(), secretPart)
	}
}

func TestVerdicts_RemembersOnlyWhatWasAccepted(t *testing.T) {
	ctx := context.Background()
	now := time.Now()
	asked, answer := 0, token.Refused
	var verdicts token.Verdicts
	judge := verdicts.Judge("uid", func() time.Time { return now }, func(context.Context, string) (token.Verdict, error) {
		asked++
		return answer, nil
	})
	ask := func(value string, want token.Verdict, wantAsked int) {
		t.Helper()
		got, err := judge(ctx, value)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, wantAsked, asked)
	}

	ask(oldToken, token.Refused, 1)
	ask(oldToken, token.Refused, 2)
	answer = token.Accepted
	ask(oldToken, token.Accepted, 3)
	ask(oldToken, token.Accepted, 3)
	ask(newToken, token.Accepted, 4)
	now = now.Add(time.Hour)
	answer = token.Unreachable
	ask(newToken, token.Unreachable, 5)
}

func cloudConfig(t *testing.T, encoding, content string) string {
	t.Helper()
	file := map[string]string{"path": "/etc/rancher/k3s/config.yaml", "content": content}
	if encoding != "" {
		file["encoding"] = encoding
	}
	data, err := yaml.Marshal(map[string]any{
		"write_files": []any{map[string]string{"path": "/etc/motd", "content": "hello"}, file},
		"runcmd":      []string{"true"},
	})
	require.NoError(t, err)
	return "#cloud-config\n" + string(data)
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func zipped(s string) string {
	var buffer strings.Builder
	w := gzip.NewWriter(&buffer)
	_, _ = w.Write([]byte(s))
	_ = w.Close()
	return buffer.String()
}
