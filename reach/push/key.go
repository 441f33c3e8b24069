package push

import (
	"crypto/ecdh"

	"github.com/tidemark-im/tidemark"
)

// Key is the key of a device, for which notifications are sealed (RFC 8291): a public key on P-256,
// and a secret that only the device and this server have. The zero Key is none.
type Key struct {
	public *ecdh.PublicKey
	auth   [16]byte
}

// ParseKey returns a key from what a device registers: `p256dh`, an uncompressed point of 65 bytes,
// and `auth`, 16 bytes (RFC 8291 §3.2).
func ParseKey(p256dh, auth []byte) (Key, error) {
	public, err := ecdh.P256().NewPublicKey(p256dh)
	if err != nil {
		return Key{}, &tidemark.Error{
			Code: tidemark.Invalid, Param: "p256dh", Err: err,
			Detail: "p256dh must be a point on P-256 of 65 bytes; pass on what the browser or " +
				"app returns",
		}
	}
	k := Key{public: public}
	if len(auth) != len(k.auth) {
		return Key{}, tidemark.BadParam(tidemark.Invalid, "auth", "has %d bytes, and must have %d",
			len(auth), len(k.auth))
	}
	copy(k.auth[:], auth)
	return k, nil
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k.public == nil }

// Public returns the public key. The key must not be zero.
func (k Key) Public() *ecdh.PublicKey { return k.public }

// Auth returns the secret.
func (k Key) Auth() []byte { return k.auth[:] }
