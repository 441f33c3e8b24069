package reach

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// sealPrefix begins what a Sealer has sealed, and names how.
const sealPrefix = "v1:"

// Sealer encrypts the secrets of outlets, so that a copy of the database does not contain them. It
// uses AES-256-GCM. It is safe for concurrent use.
type Sealer struct{ aead cipher.AEAD }

// NewSealer returns a sealer with a key. Its bytes should be random and secret. Processes that
// share a store need the same one. Invalid: the key has less than 32 bytes.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) < 32 {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the key that seals the secrets of outlets has %d bytes, at least 32 are needed",
			len(key))
	}
	sum := sha256.Sum256(key)
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &Sealer{aead}, err
}

// Seal returns the sealed text. Denied: s is nil.
func (s *Sealer) Seal(text string) (string, error) {
	if s == nil {
		return "", tidemark.Errorf(tidemark.Denied,
			"outlets with a secret need a key that seals it: set TIDEMARK_OUTLET_KEY on all nodes")
	}
	nonce := make([]byte, s.aead.NonceSize())
	rand.Read(nonce)
	sealed := s.aead.Seal(nonce, nonce, []byte(text), nil)
	return sealPrefix + base64.RawStdEncoding.EncodeToString(sealed), nil
}

// Open returns the text that was sealed. Denied: s is nil or has another key.
func (s *Sealer) Open(sealed string) (string, error) {
	if s == nil {
		return "", tidemark.Errorf(tidemark.Denied,
			"the secret of an outlet is sealed: set TIDEMARK_OUTLET_KEY to the key of the other "+
				"nodes")
	}
	encoded, known := strings.CutPrefix(sealed, sealPrefix)
	data, err := base64.RawStdEncoding.DecodeString(encoded)
	if !known || err != nil || len(data) < s.aead.NonceSize() {
		return "", tidemark.Errorf(tidemark.Internal, "the secret of an outlet is damaged")
	}
	text, err := s.aead.Open(nil, data[:s.aead.NonceSize()], data[s.aead.NonceSize():], nil)
	if err != nil {
		return "", tidemark.Errorf(tidemark.Denied,
			"the secret of an outlet was sealed with another TIDEMARK_OUTLET_KEY; set that one "+
				"again, or give the outlet a new secret")
	}
	return string(text), nil
}
