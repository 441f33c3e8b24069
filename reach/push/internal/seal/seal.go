// Package seal encrypts for one device: the content coding aes128gcm of RFC 8188 with the keys of
// RFC 8291 (Web Push). It makes one record. It is pure besides crypto/rand.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/tidemark-im/tidemark/reach/push"
)

const (
	saltBytes  = 16
	pointBytes = 65
	tagBytes   = 16
	// headerBytes are the salt, the record size, the length of a key, and the key (RFC 8188 §2.1).
	headerBytes = saltBytes + 4 + 1 + pointBytes
	// recordSize is what RFC 8291 §4 demands at least of all receivers to read.
	recordSize = 4096
	// lastRecord is the delimiter that follows the plaintext of the last record (RFC 8188 §2).
	lastRecord = 0x02
	// step is what lengths are rounded up to. So a length says little about a message.
	step = 256

	// Overhead is by how much a sealed text is longer than the plain one, without padding.
	Overhead = headerBytes + 1 + tagBytes
	// MaxPlain is the greatest length of a text whose sealed form has 4,096 bytes: 3,993.
	MaxPlain = recordSize - Overhead
)

// Seal encrypts a plaintext of at most most bytes for a key. The result has at most most+Overhead
// bytes. most is at most MaxPlain.
func Seal(key push.Key, plain []byte, most int) ([]byte, error) {
	private, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	var salt [saltBytes]byte
	_, _ = rand.Read(salt[:]) // never fails
	//rule:sealed_opaque.length-in-steps
	padded := min((len(plain)/step+1)*step, max(most, len(plain)))
	return seal(key, private, salt, plain, padded+1)
}

// Text is Seal, with the result in base64url for JSON. The result has at most most characters.
func Text(key push.Key, plain []byte, most int) (string, error) {
	sealed, err := Seal(key, plain, Room(most))
	return base64.RawURLEncoding.EncodeToString(sealed), err
}

// Room returns the greatest length of a plaintext whose Text has at most most characters.
func Room(most int) int {
	return min(base64.RawURLEncoding.DecodedLen(most)-Overhead, MaxPlain)
}

// seal encrypts a text, its delimiter, and zeros behind it: length bytes, more than the text has.
func seal(
	key push.Key, private *ecdh.PrivateKey, salt [saltBytes]byte, text []byte, length int,
) ([]byte, error) {
	// RFC 8291 §3.4.
	shared, err := private.ECDH(key.Public())
	if err != nil {
		return nil, err
	}
	own := private.PublicKey().Bytes()
	info := "WebPush: info\x00" + string(key.Public().Bytes()) + string(own)
	//rule:sealed_opaque.secret-of-device-and-server
	secret, err := hkdf.Key(sha256.New, shared, key.Auth(), info, sha256.Size)
	if err != nil {
		return nil, err
	}
	// RFC 8188 §2.2 and §2.3. The nonce of the first record is the derived one.
	content, err := hkdf.Key(sha256.New, secret, salt[:], "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, secret, salt[:], "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(content)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, headerBytes+length+tagBytes)
	out = append(out, salt[:]...)
	out = binary.BigEndian.AppendUint32(out, recordSize)
	out = append(out, pointBytes)
	out = append(out, own...)
	padded := make([]byte, length)
	padded[copy(padded, text)] = lastRecord
	return gcm.Seal(out, nonce, padded, nil), nil
}
