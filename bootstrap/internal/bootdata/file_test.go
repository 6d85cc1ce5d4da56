package bootdata

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/capk3s/capk3s/bootstrap/api/v1beta3"
)

func TestFromAPI(t *testing.T) {
	zipped, err := Compress([]byte("zipped"))
	require.NoError(t, err)
	b64 := base64.StdEncoding.EncodeToString
	fromSecret := bootstrapv1.FileSource{Secret: bootstrapv1.SecretFileSource{Name: "s", Key: "k"}}

	tests := map[string]struct {
		file   bootstrapv1.File
		secret []byte
		want   File
	}{
		"inline": {
			bootstrapv1.File{Path: "/f", Content: "c", Owner: "a:b", Permissions: "0640", Append: ptr.To(true)},
			nil,
			File{Path: "/f", Content: []byte("c"), Owner: "a:b", Permissions: "0640", Append: true, Rendered: true},
		},
		"base64": {
			bootstrapv1.File{Path: "/f", Content: b64([]byte("c")) + "\n", Encoding: bootstrapv1.Base64},
			nil,
			File{Path: "/f", Content: []byte("c")},
		},
		"gzip and base64": {
			bootstrapv1.File{Path: "/f", Content: b64(zipped), Encoding: bootstrapv1.GzipBase64},
			nil,
			File{Path: "/f", Content: zipped, Gzipped: true},
		},
		"Secret": {
			bootstrapv1.File{Path: "/f", ContentFrom: fromSecret},
			[]byte{0xff},
			File{Path: "/f", Content: []byte{0xff}, Permissions: "0600"},
		},
		"Secret with gzip and permissions": {
			bootstrapv1.File{Path: "/f", ContentFrom: fromSecret, Encoding: bootstrapv1.Gzip, Permissions: "0644"},
			zipped,
			File{Path: "/f", Content: zipped, Gzipped: true, Permissions: "0644"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := FromAPI(&tt.file, tt.secret)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestForCloudInit(t *testing.T) {
	files := []File{
		{Path: "/plain", Permissions: "0750"},
		{Path: "/it's", Owner: "a:b"},
		{Path: "/setuid", Permissions: "4755"},
		{Path: "/both", Owner: "33:33", Permissions: "02770"},
		{Path: "/more", Append: true, Content: []byte("x"), Rendered: true, Owner: "a"},
		{Path: "/more-with-a-mode", Append: true, Permissions: "0600"},
	}
	got := ForCloudInit(files, "/run/dir")
	require.Equal(t, SecretFile("/run/dir/files", []byte(strings.Join([]string{
		`boot_own '/it'\''s' 'a:b' ''`, `boot_own '/setuid' '' '4755'`, `boot_own '/both' '33:33' '02770'`,
		`boot_append '/more' '/run/dir/append/004'`, `boot_own '/more' 'a' ''`, "",
	}, "\n"))), got[6])
	require.Equal(t, File{Path: "/run/dir/append/004", Content: []byte("x"), Permissions: "0600", Rendered: true}, got[4])
	for i, file := range got[:4] {
		require.Empty(t, file.Owner)
		require.Equal(t, files[i].Path, file.Path)
	}
	require.True(t, got[5].Append)
	require.Equal(t, "a:b", files[1].Owner, "the files stay as they were")
	require.Len(t, ForCloudInit(files[:1], "/run/dir"), 1)
}

func TestFromAPI_TakesOwnersThatAMachineCanUnderstand(t *testing.T) {
	for owner, fine := range map[string]bool{"": true, "a": true, "a:b": true, ":b": true, "33:0": true, "a:b:c": false, "a b": false, "a\n": false} {
		_, err := FromAPI(&bootstrapv1.File{Path: "/f", Owner: owner}, nil)
		if fine {
			require.NoError(t, err, owner)
			continue
		}
		require.EqualError(t, err, "the owner of file /f must be user:group, each a name or a number", owner)
	}
}

func TestFromAPI_RefusesContentThatIsNotEncodedAsItSays(t *testing.T) {
	for _, encoding := range []bootstrapv1.Encoding{bootstrapv1.Base64, bootstrapv1.Gzip, bootstrapv1.GzipBase64} {
		_, err := FromAPI(&bootstrapv1.File{Path: "/f", Content: "c2VjcmV0!", Encoding: encoding}, nil)
		require.ErrorContains(t, err, "/f", encoding)
		require.NotContains(t, err.Error(), "c2VjcmV0", encoding)
	}
}
