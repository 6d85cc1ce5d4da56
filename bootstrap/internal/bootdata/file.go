package bootdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
}

// secretPermissions are those of a file that holds a secret.
const secretPermissions = "0600"

// SecretFile returns a file that only root may read.
func SecretFile(path string, content []byte) File {
	return File{Path: path, Permissions: secretPermissions, Content: content}
}

// ownerForm also takes one of the two alone, as in root or :adm.
var ownerForm = regexp.MustCompile(`^[^\s:]*(:[^\s:]*)?$`)

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
	if !ownerForm.MatchString(f.Owner) {
		return File{}, fmt.Errorf("the owner of file %s must be user:group, each a name or a number", f.Path)
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

// ForCloudInit returns the files as cloud-init can write them, and in the folder dir one more that makes the bootstrap
// script do the rest. cloud-init looks an owner up before it makes any user, knows no numbers, and writes nothing more
// after one that it can't find; it drops special bits of modes; and it gives a file that it appends to to root, for
// everybody to read.
func ForCloudInit(files []File, dir string) []File {
	var calls strings.Builder
	call := func(words ...string) {
		calls.WriteString(words[0])
		for _, word := range words[1:] {
			calls.WriteString(" " + quoted(word))
		}
		calls.WriteString("\n")
	}
	written := slices.Clone(files)
	for i := range written {
		file := &written[i]
		at, mode := file.Path, ""
		if file.Append && file.Permissions == "" {
			file.Path, file.Append, file.Permissions = fmt.Sprintf("%s/append/%03d", dir, i), false, secretPermissions
			call("boot_append", at, file.Path)
		}
		if isSpecial(file.Permissions) {
			mode = file.Permissions
		}
		if file.Owner != "" || mode != "" {
			call("boot_own", at, file.Owner, mode)
		}
		file.Owner = ""
	}
	if calls.Len() == 0 {
		return written
	}
	return append(written, SecretFile(path.Join(dir, "files"), []byte(calls.String())))
}

// isSpecial says whether octal permissions have a bit besides those of reading, writing and running.
func isSpecial(permissions string) bool {
	mode, err := strconv.ParseUint(permissions, 8, 16)
	return err == nil && mode > 0o777
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

// Compress returns data gzipped.
func Compress(data []byte) ([]byte, error) {
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
