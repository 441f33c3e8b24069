package webhook

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// symmetric begins a secret of HMAC-SHA256, and asymmetric the seed of an Ed25519 key.
	symmetric  = "whsec_"
	asymmetric = "whsk_"
	// The lengths of the keys of Standard Webhooks, in bytes.
	minKey, maxKey, newKey = 24, 64, 32
)

// NewSecret returns a new secret: "whsec_" and base64 of 32 random bytes.
func NewSecret() string {
	key := make([]byte, newKey)
	rand.Read(key)
	return symmetric + base64.StdEncoding.EncodeToString(key)
}

// Signers sign requests as Standard Webhooks says, each with one secret.
type Signers []signer

// NewSigners returns Signers with one signature for each secret. Invalid: there is no secret, or
// one is malformed. The error does not contain it.
func NewSigners(secrets []string) (Signers, error) {
	all := make(Signers, len(secrets))
	for i, secret := range secrets {
		var err error
		if all[i], err = newSigner(secret); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, tidemark.BadParam(tidemark.Invalid, "secret", "is missing")
	}
	return all, nil
}

// Sign sets the headers of a request with an id and a body: what it is, and the signatures at a
// time.
func (all Signers) Sign(h http.Header, id string, at time.Time, body []byte) {
	now := at.Unix()
	signatures := make([]string, len(all))
	for i := range all {
		signatures[i] = all[i].sign(id, now, body)
	}
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "Tidemark-Webhooks/1")
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(now, 10))
	h.Set("webhook-signature", strings.Join(signatures, " "))
}

// signer signs with one secret.
type signer struct {
	hmac    []byte
	private ed25519.PrivateKey
}

// newSigner reads a secret. Invalid: it is none. The error does not contain it.
func newSigner(secret string) (signer, error) {
	kind, text, _ := strings.Cut(secret, "_")
	key, err := base64.StdEncoding.DecodeString(text)
	switch {
	case kind+"_" == symmetric && err == nil && len(key) >= minKey && len(key) <= maxKey:
		return signer{hmac: key}, nil
	case kind+"_" == asymmetric && err == nil && len(key) == ed25519.SeedSize:
		return signer{private: ed25519.NewKeyFromSeed(key)}, nil
	}
	return signer{}, tidemark.BadParam(tidemark.Invalid, "secret",
		"must be whsec_ and base64 of %d to %d bytes, or whsk_ and base64 of %d bytes",
		minKey, maxKey, ed25519.SeedSize)
}

// sign returns the signature of a delivery at a time in Unix seconds.
func (s *signer) sign(id string, at int64, body []byte) string {
	signed := make([]byte, 0, len(id)+len(body)+24)
	signed = append(signed, id...)
	signed = append(signed, '.')
	signed = strconv.AppendInt(signed, at, 10)
	signed = append(signed, '.')
	//rule:webhooks_are_signed.sign-the-body
	signed = append(signed, body...)
	if s.private != nil {
		return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(s.private, signed))
	}
	mac := hmac.New(sha256.New, s.hmac)
	mac.Write(signed)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
