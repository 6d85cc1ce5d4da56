// Package silence finds tokens and private keys where nobody may say them: in logs, events and objects.
package silence

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/capk3s/capk3s/pkg/token"
)

// word is a piece of a secret, long enough not to be met by chance.
type word [16]byte

// keyMark is in every private key in PEM form.
const keyMark = "PRIVATE KEY-----"

// contextLength is how much of the text before a find is shown.
const contextLength = 200

// Guard knows what may not be said, and what objects said. Its methods can be called at once.
type Guard struct {
	mu sync.Mutex
	// words are those of all secrets, with the names of these.
	words map[word]string
	// said are the texts in objects, each with the object that had it first.
	said   map[string]string
	tokens map[string]bool
}

// New returns a Guard that knows private keys in general.
func New() *Guard {
	g := &Guard{words: map[word]string{}, said: map[string]string{}, tokens: map[string]bool{}}
	g.learn("a private key", keyMark)
	return g
}

// Learn takes the tokens from the token Secret of a cluster; other Secrets are ignored.
func (g *Guard) Learn(secret *corev1.Secret) {
	if secret.Name != token.SecretName(secret.Labels[clusterv1.ClusterNameLabel]) {
		return
	}
	for _, value := range secret.Data {
		g.LearnToken(secret.Namespace+"/"+secret.Name, string(value))
	}
}

// LearnToken takes a token. One that is too short, which K3s would refuse, is ignored.
func (g *Guard) LearnToken(name, value string) {
	// The hash of a CA, which the full form begins with, is no secret.
	value = value[strings.LastIndex(value, ":")+1:]
	if len(value) < len(word{}) {
		return
	}
	g.learn("the token of "+name, value)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens[value] = true
}

// learn takes a secret's beginning, as it is and in base64. Where that begins in a larger text decides on how it looks.
func (g *Guard) learn(name, secret string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.words[word([]byte(secret))] = name
	for shift := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("-", shift) + secret))
		if shift > 0 {
			encoded = encoded[4:] // not of the secret alone
		}
		g.words[word([]byte(encoded))] = name + " in base64"
	}
}

// Tokens is how many tokens are known.
func (g *Guard) Tokens() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.tokens)
}

// Hear remembers the texts in an object. It must not be a Secret.
func (g *Guard) Hear(name string, object map[string]any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hear(name, object)
}

func (g *Guard) hear(name string, value any) {
	switch value := value.(type) {
	case string:
		if _, known := g.said[value]; !known && len(value) >= len(word{}) {
			g.said[value] = name
		}
	case []any:
		for _, item := range value {
			g.hear(name, item)
		}
	case map[string]any:
		for key, item := range value {
			if key != "managedFields" {
				g.hear(name, item)
			}
		}
	}
}

// Report is what was searched and found.
type Report struct {
	// Texts are those that objects had, Files and Bytes those of logs.
	Texts, Files, Bytes int
	// Found says what was said, and where.
	Found []string
}

// Search looks through all texts that objects had, and through log files, folders with all that is in them.
func (g *Guard) Search(logs ...string) (Report, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	report := Report{Texts: len(g.said)}
	for text, name := range g.said {
		if found := g.find([]byte(text)); found != "" {
			report.Found = append(report.Found, name+" says "+found)
		}
	}
	for _, log := range logs {
		err := filepath.WalkDir(log, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("reading a log: %w", err)
			}
			report.Files++
			report.Bytes += len(text)
			if found := g.find(text); found != "" {
				report.Found = append(report.Found, path+" says "+found)
			}
			return nil
		})
		if err != nil {
			return report, fmt.Errorf("searching %s: %w", log, err)
		}
	}
	slices.Sort(report.Found)
	return report, nil
}

// Find says what in a text may not be said, and after which words; empty if there is nothing.
func (g *Guard) Find(text string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.find([]byte(text))
}

func (g *Guard) find(text []byte) string {
	for i := 0; i+len(word{}) <= len(text); i++ {
		if name, found := g.words[word(text[i:])]; found {
			return fmt.Sprintf("%s after %q", name, text[max(0, i-contextLength):i])
		}
	}
	return ""
}
