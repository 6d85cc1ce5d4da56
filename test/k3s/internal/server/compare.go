package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/capk3s/capk3s/test/k3s/internal/client"
	"github.com/capk3s/capk3s/test/k3s/internal/config"
	"github.com/capk3s/capk3s/test/k3s/internal/passwd"
)

var errMismatch = errors.New("critical configuration value mismatch between servers")

// compareConfig compares this server's critical settings with those of the
// server that it joins. A server that can't be asked isn't compared with.
func compareConfig(cfg *config.Config) error {
	agentToken := cfg.AgentToken
	if agentToken == "" {
		agentToken = cfg.Token
	}
	remote, err := remoteCritical(cfg.JoinURL, agentToken)
	if err != nil {
		logrus.Warnf("Skipping cluster configuration validation: %v", err)
		return nil
	}
	own, err := cfg.Server.Control.Critical.Normalized()
	if err != nil {
		return err
	}
	// Servers that don't know these settings send nothing.
	if remote.EgressSelectorMode == "" {
		remote.EgressSelectorMode = own.EgressSelectorMode
	}
	if remote.EncryptProvider == "" {
		remote.EncryptProvider = own.EncryptProvider
	}
	differences := diff("", reflect.ValueOf(own), reflect.ValueOf(*remote))
	for _, path := range differences {
		logrus.Warnf("critical configuration mismatched: %s", flagOf(path))
	}
	if len(differences) > 0 {
		return errMismatch
	}
	return nil
}

func remoteCritical(url, token string) (*config.Critical, error) {
	supervisor, err := client.New(url, token, client.Options{User: passwd.UserNode})
	if err != nil {
		return nil, err
	}
	raw, err := supervisor.Get("/v1-k3s/config")
	if err != nil {
		return nil, err
	}
	var critical config.Critical
	return &critical, json.Unmarshal(raw, &critical)
}

// flagOf is the flag of a top-level setting; what lies deeper keeps its path.
func flagOf(path string) string {
	field, found := reflect.TypeFor[config.Critical]().FieldByName(path)
	if !found {
		return path
	}
	return field.Tag.Get("cli")
}

// diff lists the paths at which two values differ, e.g.
// ClusterIPRange.IP.slice[13].
func diff(path string, a, b reflect.Value) []string {
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return differIf(path, a.IsNil() != b.IsNil())
		}
		return diff(path, a.Elem(), b.Elem())
	case reflect.Struct:
		var out []string
		for i := range a.NumField() {
			out = append(out, diff(join(path, a.Type().Field(i).Name), a.Field(i), b.Field(i))...)
		}
		return out
	case reflect.Slice:
		return diffSlices(path, a, b)
	default:
		return differIf(path, !reflect.DeepEqual(a.Interface(), b.Interface()))
	}
}

func diffSlices(path string, a, b reflect.Value) []string {
	if ip, ok := a.Interface().(net.IP); ok && ip.Equal(b.Interface().(net.IP)) {
		return nil
	}
	var out []string
	for i := range max(a.Len(), b.Len()) {
		here := join(path, fmt.Sprintf("slice[%d]", i))
		if i >= a.Len() || i >= b.Len() {
			out = append(out, here)
			continue
		}
		out = append(out, diff(here, a.Index(i), b.Index(i))...)
	}
	return out
}

func differIf(path string, differ bool) []string {
	if differ {
		return []string{path}
	}
	return nil
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }
