package cloudconfig

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"unicode/utf8"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

// File is a file of the machine. Its content arrives byte for byte.
type File struct {
	// Path is absolute.
	Path string

	// Owner as user:group; empty means root:root.
	Owner string

	// Permissions in octal notation; empty means 0644.
	Permissions string

	// Append says whether the content is added to an existing file.
	Append bool

	// Content of the file.
	Content []byte

	// Gzipped says whether the machine unpacks Content.
	Gzipped bool

	// Rendered says whether expressions over cloud-init's instance data in Content are rendered on the machine.
	Rendered bool

	// text is the content as the document has it where that isn't Content itself: a template made beforehand.
	text string
}

// secretPermissions are those of a file that holds a secret.
const secretPermissions = "0600"

// FromAPI returns a file of a KThreesConfig. A file with contentFrom gets the bytes of secret, which is what the key
// of the Secret holds. An error says which field is wrong and doesn't quote the content.
func FromAPI(file *bootstrapv1.File, secret []byte) (File, error) {
	f := File{
		Path:        file.Path,
		Owner:       file.Owner,
		Permissions: file.Permissions,
		Append:      file.Append != nil && *file.Append,
		Content:     []byte(file.Content),
		Rendered:    file.Encoding == "",
	}
	if file.ContentFrom.Secret.Name != "" {
		f.Content, f.Rendered = secret, false
		if f.Permissions == "" {
			f.Permissions = secretPermissions
		}
	}
	if file.Encoding == bootstrapv1.Base64 || file.Encoding == bootstrapv1.GzipBase64 {
		decoded, err := base64.StdEncoding.DecodeString(string(withoutSpace(f.Content)))
		if err != nil {
			return File{}, fmt.Errorf("the content of file %s isn't base64, as its encoding says", f.Path)
		}
		f.Content = decoded
	}
	if file.Encoding == bootstrapv1.Gzip || file.Encoding == bootstrapv1.GzipBase64 {
		f.Gzipped = true
		if err := checkGzip(f.Content); err != nil {
			return File{}, fmt.Errorf("the content of file %s isn't gzip, as its encoding says: %w", f.Path, err)
		}
	}
	return f, nil
}

func withoutSpace(data []byte) []byte {
	return bytes.Join(bytes.Fields(data), nil)
}

func checkGzip(data []byte) error {
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, reader)
	return err
}

// encode returns content and encoding of an entry of write_files: the text itself if it is one, unless compressing
// makes it smaller.
func (f File) encode(templated bool) (content, encoding string, err error) {
	if f.text != "" {
		return f.text, "", nil
	}
	if f.Gzipped {
		return base64.StdEncoding.EncodeToString(f.Content), "gz+b64", nil
	}
	if templated && f.Rendered && hasExpression(string(f.Content)) {
		return template(string(f.Content), 1), "", nil
	}
	compressed, err := compress(f.Content)
	if err != nil {
		return "", "", fmt.Errorf("compressing file %s: %w", f.Path, err)
	}
	best := base64.StdEncoding.EncodeToString(f.Content)
	encoding = "b64"
	if isText(f.Content) {
		best, encoding = string(f.Content), ""
		if templated {
			best = escape(best)
		}
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

func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	writer, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(data); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
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
