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

	"github.com/capk3s/capk3s/pkg/k3s"
	"github.com/capk3s/capk3s/pkg/token"
)

// wordLength is how much of a secret's beginning is looked for, enough not to be met by chance. Shorter secrets are
// looked for as they are.
const wordLength = 16

// shortest is what of a short secret's base64 isn't met by chance.
const shortest = 8

// keyMark is in every private key in PEM form.
const keyMark = "PRIVATE KEY-----"

// contextLength is how much of the text before a find is shown.
const contextLength = 200

// Guard knows what may not be said, and what objects said. Its methods can be called at once.
type Guard struct {
	mu sync.Mutex
	// words are the beginnings of all secrets, with the names of these.
	words map[string]string
	// said are the texts in objects, each with the object that had it first.
	said   map[string]string
	tokens map[string]bool
}

// New returns a Guard that knows private keys in general.
func New() *Guard {
	g := &Guard{words: map[string]string{}, said: map[string]string{}, tokens: map[string]bool{}}
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

// LearnToken takes a token, in its short or full form. The hash of a CA in the latter is no secret.
func (g *Guard) LearnToken(name, value string) {
	if _, _, password, err := k3s.ParseToken(value); err == nil {
		value = password
	}
	if value == "" {
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
	g.words[beginning(secret)] = name
	for shift := range 3 {
		shifted := strings.Repeat("-", shift) + secret
		encoded := base64.StdEncoding.EncodeToString([]byte(shifted[:len(shifted)/3*3])) // the rest depends on what follows
		if shift > 0 && encoded != "" {
			encoded = encoded[4:] // not of the secret alone
		}
		if len(encoded) >= shortest {
			g.words[beginning(encoded)] = name + " in base64"
		}
	}
}

func beginning(secret string) string { return secret[:min(len(secret), wordLength)] }

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
		if _, known := g.said[value]; !known {
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
		if found := g.find(text); found != "" {
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
			if found := g.find(string(text)); found != "" {
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
	return g.find(text)
}

// find says what comes first in a text.
func (g *Guard) find(text string) string {
	first, what := len(text), ""
	for word, name := range g.words {
		if i := strings.Index(text, word); i >= 0 && i < first {
			first, what = i, name
		}
	}
	if what == "" {
		return ""
	}
	return fmt.Sprintf("%s after %q", what, text[max(0, first-contextLength):first])
}
