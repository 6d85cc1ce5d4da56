package cloudconfig

import (
	"regexp"
	"strings"
)

// jinjaHeader makes cloud-init render the document with its instance data before it reads it.
const jinjaHeader = "## template: jinja\n"

// missing is what cloud-init puts before the name of instance data that aren't there. The bootstrap script looks for it.
const missing = "CI_MISSING_JINJA_VAR/"

const byteOrderMark = "\ufeff"

// The grammar of the expressions that are rendered: a path into the instance data, with indices, method calls and
// filters whose arguments are literals. String literals hold neither quotes nor backslashes, so that an expression,
// written with single quotes, means the same inside the double quotes of YAML.
const (
	nameForm    = `[A-Za-z_][A-Za-z0-9_]*`
	stringForm  = `(?:'[ !#-&(-\[\]-~]*'|"[ !#-&(-\[\]-~]*")`
	literalForm = `(?:` + stringForm + `|-?[0-9]+|true|True|false|False)`
	argForm     = `(?:` + nameForm + `\s*=\s*)?` + literalForm
	argsForm    = `\(\s*(?:` + argForm + `(?:\s*,\s*` + argForm + `)*)?\s*\)`
	indexForm   = `\[\s*(?:` + literalForm + `|(?:-?[0-9]+)?:(?:-?[0-9]+)?)\s*\]`
	accessForm  = `(?:\.` + nameForm + `|` + indexForm + `|` + argsForm + `)`
	filterForm  = `\s*\|\s*` + nameForm + `(?:` + argsForm + `)?`

	// rootForm are the top-level names of cloud-init's instance data and the documented aliases of its v1 keys.
	rootForm = `(?:ds|v1|sys_info|merged_cfg|merged_system_cfg|features|availability_zone|cloud_id|cloud_name|distro|` +
		`distro_release|distro_version|instance_id|kernel_release|local_hostname|machine|platform|public_ssh_keys|` +
		`python_version|region|subplatform|system_platform|variant)`
)

var (
	expression = regexp.MustCompile(`^\{\{\s*(` + rootForm + accessForm + `*(?:` + filterForm + `)*)\s*\}\}`)
	// opening finds what Jinja takes for the start of an expression, a statement or a comment.
	opening       = regexp.MustCompile(`\{[{%#]`)
	stringLiteral = regexp.MustCompile(stringForm)
)

// HasExpression says whether text holds an expression over the instance data, which cloud-init renders.
func HasExpression(text string) bool {
	found := false
	scan(text, func(string) {}, func(string) { found = true })
	return found
}

// escape returns a template whose rendering is text.
func escape(text string) string {
	return opening.ReplaceAllStringFunc(text, escapeOpening)
}

func escapeOpening(brace string) string {
	return "{{ '" + brace + "' }}"
}

// template returns a template whose rendering is text with its expressions replaced by their values. Text will stand
// between the double quotes of YAML, and in a document that itself stands between double quotes, and so on, levels
// deep: values are escaped accordingly, so that no value can break out.
func template(text string, levels int) string {
	var out strings.Builder
	if strings.HasPrefix(text, byteOrderMark) {
		// The YAML encoder escapes every character of a string that starts with this mark, those of expressions too.
		out.WriteString("{{ '' }}")
	}
	scan(text, func(part string) { out.WriteString(escape(part)) }, func(path string) {
		value := forgiving(singleQuoted(path)) + "|string"
		for range levels {
			value = "(" + value + "|tojson)[1:-1]"
		}
		out.WriteString("{{ " + value + " }}")
	})
	return out.String()
}

// scan calls expr with the inside of each expression over the instance data, and literal with what is between them.
func scan(text string, literal, expr func(string)) {
	start := 0
	for end := 0; end < len(text); {
		at := opening.FindStringIndex(text[end:])
		if at == nil {
			break
		}
		end += at[0]
		found := expression.FindStringSubmatch(text[end:])
		if found == nil {
			end += len("{{")
			continue
		}
		literal(text[start:end])
		expr(found[1])
		end += len(found[0])
		start = end
	}
	literal(text[start:])
}

var (
	root      = regexp.MustCompile(`^` + rootForm + `\b`)
	access    = regexp.MustCompile(`^` + accessForm)
	plainName = regexp.MustCompile(`[A-Za-z0-9_-]+`)
)

// forgiving returns an expression that, where a part of its path isn't there, renders as cloud-init marks what is
// missing. Jinja would fail, and cloud-init would drop the whole document, say that all is well, and leave a machine
// that does nothing.
func forgiving(path string) string {
	out := root.FindString(path)
	rest := path[len(out):]
	name := out
	for step := access.FindString(rest); step != ""; step = access.FindString(rest) {
		rest = rest[len(step):]
		switch isCall := strings.HasPrefix(access.FindString(rest), "("); {
		case strings.HasPrefix(step, "("):
		case strings.HasPrefix(step, "[") && strings.Contains(stringLiteral.ReplaceAllString(step, ""), ":"): // a slice
			out = "(" + out + "|default(['" + missing + name + "']))"
		case isCall:
			out = "(" + out + "|default('" + missing + name + "'))"
		case out != "ds" && out != "v1": // these two are always there
			out = "(" + out + "|default({}))"
		}
		out += step
		name = plainName.FindString(step)
	}
	return out + rest
}

func singleQuoted(path string) string {
	return stringLiteral.ReplaceAllStringFunc(path, func(s string) string { return "'" + s[1:len(s)-1] + "'" })
}
