package node

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"os"
	"slices"
	"strings"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
)

// K3s' annotations about a node's configuration.
const (
	argsAnnotation = "k3s.io/node-args"
	envAnnotation  = "k3s.io/node-env"
	hashAnnotation = "k3s.io/node-config-hash"
)

const redacted = "********"

var secretFlags = []string{
	"token", "t", "agent-token", "datastore-endpoint", "etcd-s3-access-key", "etcd-s3-secret-key", "vpn-auth",
}

var secretEnv = []string{
	"K3S_TOKEN", "K3S_AGENT_TOKEN", "K3S_DATASTORE_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "K3S_VPN_AUTH",
}

// annotations describe how this K3s was started, without its secrets.
func annotations(cfg *config.Config) (map[string]string, error) {
	rawArgs, err := json.Marshal(visibleArgs(cfg.Args))
	if err != nil {
		return nil, err
	}
	rawEnv, err := json.Marshal(visibleEnv())
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	for _, arg := range cfg.Args {
		hash.Write([]byte(arg))
	}
	hash.Write(rawEnv)
	return map[string]string{
		argsAnnotation: string(rawArgs),
		envAnnotation:  string(rawEnv),
		hashAnnotation: base32.StdEncoding.EncodeToString(hash.Sum(nil)),
	}, nil
}

// visibleArgs splits `--flag=value` in two and hides secret values.
func visibleArgs(args []string) []string {
	var out []string
	hideNext := false
	for _, arg := range args {
		if hideNext {
			out, hideNext = append(out, redacted), false
			continue
		}
		name, value, hasValue := strings.Cut(arg, "=")
		if !strings.HasPrefix(arg, "-") {
			out = append(out, arg)
			continue
		}
		secret := slices.Contains(secretFlags, strings.TrimLeft(name, "-"))
		out = append(out, name)
		switch {
		case hasValue && secret:
			out = append(out, redacted)
		case hasValue:
			out = append(out, value)
		default:
			hideNext = secret
		}
	}
	return out
}

func visibleEnv() map[string]string {
	env := map[string]string{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case slices.Contains(secretEnv, name):
			env[name] = redacted
		case strings.HasPrefix(name, "K3S_"):
			env[name] = value
		}
	}
	return env
}
