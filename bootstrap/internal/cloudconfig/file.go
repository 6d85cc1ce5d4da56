package cloudconfig

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"unicode/utf8"

	"github.com/capk3s/capk3s/bootstrap/internal/bootdata"
)

// file is an entry of write_files.
type file struct {
	bootdata.File

	// text is the content as the document has it where that isn't Content itself: a template made beforehand.
	text string
}

// content returns content and encoding of an entry of write_files: the text itself if it is one, unless compressing
// makes it smaller.
func (d document) content(f file) (content, encoding string, err error) {
	if f.text != "" {
		return f.text, "", nil
	}
	if f.Gzipped {
		return base64.StdEncoding.EncodeToString(f.Content), "gz+b64", nil
	}
	if d.templated && f.Rendered && HasExpression(string(f.Content)) {
		return template(string(f.Content), 1), "", nil
	}
	best := base64.StdEncoding.EncodeToString(f.Content)
	encoding = "b64"
	if isText(f.Content) {
		best, encoding = string(f.Content), ""
		if d.templated {
			best = escape(best)
		}
	}
	if d.compressed {
		return best, encoding, nil
	}
	compressed, err := bootdata.Compress(f.Content)
	if err != nil {
		return "", "", fmt.Errorf("compressing file %s: %w", f.Path, err)
	}
	if packed := base64.StdEncoding.EncodeToString(compressed); len(packed)+worthCompressing < textSize(best) {
		return packed, "gz+b64", nil
	}
	return best, encoding, nil
}

// worthCompressing is how many bytes compression must save to be worth a content that nobody can read.
const worthCompressing = 256

// textSize is about the size of a text in the document, in which each line is indented.
func textSize(text string) int {
	const indent = 6
	return len(text) + indent*bytes.Count([]byte(text), []byte("\n"))
}

// isText says whether data consists of printable characters, tabs and newlines. Anything else is sent as base64.
func isText(data []byte) bool {
	if !utf8.Valid(data) {
		return false
	}
	for _, r := range string(data) {
		if !isTextRune(r) {
			return false
		}
	}
	return true
}

func isTextRune(r rune) bool {
	const lineSeparator, paragraphSeparator = 0x2028, 0x2029
	switch {
	case r == '\t', r == '\n', r >= ' ' && r <= '~':
		return true
	case r == lineSeparator, r == paragraphSeparator:
		return false
	}
	const firstLatin1, lastBeforeSurrogates = 0xa1, 0xd7ff
	return r >= firstLatin1 && r <= lastBeforeSurrogates
}
