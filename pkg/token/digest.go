package token

import (
	"crypto/subtle"
	"encoding/base64"
	"strings"

	"golang.org/x/crypto/scrypt"
)

// The cost of a digest: about 0.1 s and 32 MiB, each time.
const (
	scryptN, scryptR, scryptP = 1 << 15, 8, 1
	digestBytes               = 32
	digestScheme              = "scrypt-15-8-1"
)

var digestEncoding = base64.RawStdEncoding

// Digest returns a slow, salted digest of a token: enough to recognize the token, useless for finding it. It holds
// the salt, which must be random and at least 16 bytes long, so that [Verify] needs nothing else.
func Digest(token string, salt []byte) string {
	sum, err := scrypt.Key([]byte(token), salt, scryptN, scryptR, scryptP, digestBytes)
	if err != nil { // Only for impossible costs.
		panic(err)
	}
	return strings.Join([]string{digestScheme, digestEncoding.EncodeToString(salt), digestEncoding.EncodeToString(sum)}, ":")
}

// Verify says whether digest was made by [Digest] from token. It is as slow.
func Verify(digest, token string) bool {
	parts := strings.Split(digest, ":")
	if len(parts) != 3 || parts[0] != digestScheme {
		return false
	}
	salt, err := digestEncoding.DecodeString(parts[1])
	if err != nil {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(Digest(token, salt)), []byte(digest)) == 1
}
