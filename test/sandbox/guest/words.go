package guest

import (
	"errors"
	"os"
	"strings"
)

var errUnbalanced = errors.New("unbalanced quotes")

// splitWords splits a unit file value into words, with systemd's quoting:
// single or double quotes around a word or part of it, and a backslash before
// the next character.
func splitWords(line string) ([]string, error) {
	var (
		words  []string
		word   strings.Builder
		inWord bool
		quote  rune
		escape bool
	)
	for _, r := range line {
		switch {
		case escape:
			word.WriteRune(r)
			escape = false
		case r == '\\' && quote != '\'':
			escape, inWord = true, true
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word.WriteRune(r)
			}
		case r == '"' || r == '\'':
			quote, inWord = r, true
		case r == ' ' || r == '\t':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(r)
			inWord = true
		}
	}
	if quote != 0 || escape {
		return nil, errUnbalanced
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, nil
}

// expandWords puts in the variables of a command line as systemd does:
// ${NAME} anywhere in a word, and $NAME as a word of its own, which splits at
// spaces.
func expandWords(words []string, env map[string]string) []string {
	var out []string
	for _, word := range words {
		if name, ok := strings.CutPrefix(word, "$"); ok && isName(name) {
			out = append(out, strings.Fields(env[name])...)
			continue
		}
		out = append(out, expandBraces(word, env))
	}
	return out
}

// expandBraces replaces ${NAME}; everything else stays as it is.
func expandBraces(word string, env map[string]string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(word, "${")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, closed := strings.Cut(rest, "}")
		if !closed || !isName(name) {
			out.WriteString("${")
			word = rest
			continue
		}
		out.WriteString(env[name])
		word = after
	}
}

func isName(s string) bool {
	for i, r := range s {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// readEnvFile reads an EnvironmentFile: NAME=value lines, values possibly
// quoted, comments with # or ;.
func readEnvFile(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	env := map[string]string{}
	for line := range strings.SplitSeq(string(data), "\n") {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		env[strings.TrimSpace(name)] = unquote(strings.TrimSpace(value))
	}
	return env, nil
}

// unquote joins the quoted parts of one value; a value that can't be read that
// way is taken as it stands. Unlike in a list of words, spaces stay.
func unquote(value string) string {
	if !strings.ContainsAny(value, `'"\`) {
		return value
	}
	words, err := splitWords(value)
	if err != nil || len(words) != 1 {
		return value
	}
	return words[0]
}
