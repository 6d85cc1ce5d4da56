// Package nodepassword keeps one node from taking another's name: the first to
// use a name leaves a hash of its password in a Secret.
package nodepassword

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/crypto/scrypt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/capk3s/capk3s/test/k3s/internal/config"
)

// SecretType is the type of the Secrets.
const SecretType corev1.SecretType = "k3s.cattle.io/node-password"

// The costs of the hash.
const (
	logN, blockSize, parallel, hashLen = 15, 8, 1, 64
)

// ErrVerifyFailed means that the name belongs to another node.
var ErrVerifyFailed = errors.New("hash does not match")

// File is where a node keeps its password.
func File() string { return filepath.Join(config.NodeConfigDir, "password") }

// Local returns this node's password, which it makes up at first.
func Local() (string, error) {
	raw, err := os.ReadFile(File())
	if err == nil {
		return strings.TrimSpace(string(raw)), nil
	}
	if !os.IsNotExist(err) {
		return "", err
	}
	password := config.RandomHex(16)
	if err := os.MkdirAll(filepath.Dir(File()), 0o755); err != nil {
		return "", err
	}
	return password, os.WriteFile(File(), []byte(password+"\n"), 0o600)
}

// SecretName is the name of a node's Secret in kube-system.
func SecretName(node string) string { return node + ".node-password.k3s" }

// Ensure compares a node's password with its Secret, or creates the Secret. A
// password that doesn't match is an ErrVerifyFailed.
func Ensure(ctx context.Context, kube kubernetes.Interface, node, password string) error {
	secrets := kube.CoreV1().Secrets(metav1.NamespaceSystem)
	secret, err := secrets.Get(ctx, SecretName(node), metav1.GetOptions{})
	if err == nil {
		if !verify(string(secret.Data["hash"]), password) {
			return fmt.Errorf("unable to verify hash for node '%s': %w", node, ErrVerifyFailed)
		}
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	hash, err := newHash(password)
	if err != nil {
		return err
	}
	immutable := true
	_, err = secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: SecretName(node), Namespace: metav1.NamespaceSystem},
		Type:       SecretType,
		Immutable:  &immutable,
		Data:       map[string][]byte{"hash": []byte(hash)},
	}, metav1.CreateOptions{})
	return err
}

// newHash returns `$1:salt:logN:r:p:hash`.
func newHash(password string) (string, error) {
	salt := make([]byte, 8)
	_, _ = rand.Read(salt)
	sum, err := scrypt.Key([]byte(password), salt, 1<<logN, blockSize, parallel, hashLen)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("$1:%x:%d:%d:%d:%s", salt, logN, blockSize, parallel, base64.RawStdEncoding.EncodeToString(sum)), nil
}

func verify(hash, password string) bool {
	fields := strings.Split(hash, ":")
	if len(fields) != 6 || fields[0] != "$1" {
		return false
	}
	salt, err := hex.DecodeString(fields[1])
	if err != nil {
		return false
	}
	want, err := base64.RawStdEncoding.DecodeString(fields[5])
	if err != nil {
		return false
	}
	var costs [3]int
	for i, field := range fields[2:5] {
		if costs[i], err = strconv.Atoi(field); err != nil {
			return false
		}
	}
	got, err := scrypt.Key([]byte(password), salt, 1<<costs[0], costs[1], costs[2], len(want))
	return err == nil && subtle.ConstantTimeCompare(got, want) == 1
}
