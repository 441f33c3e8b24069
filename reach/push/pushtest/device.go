package pushtest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"

	"github.com/tidemark-im/tidemark/reach/push"
)

// Device has the private key of a device, and opens what is sealed for it.
type Device struct {
	private *ecdh.PrivateKey
	auth    []byte
}

// NewDevice returns a device with a new key.
func NewDevice(t *testing.T) *Device {
	t.Helper()
	private, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	d := &Device{private: private, auth: make([]byte, 16)}
	_, _ = rand.Read(d.auth)
	return d
}

// Key returns what the device registers.
func (d *Device) Key() push.Key {
	key, err := push.ParseKey(d.private.PublicKey().Bytes(), d.auth)
	if err != nil {
		panic(err) // it made the key itself
	}
	return key
}

// Secrets returns the device's private key and secret in base64url, for another implementation.
func (d *Device) Secrets() (private, auth string) {
	return base64.RawURLEncoding.EncodeToString(d.private.Bytes()),
		base64.RawURLEncoding.EncodeToString(d.auth)
}

// Open decrypts one record of aes128gcm (RFC 8188) with the keys of RFC 8291, as a user agent does.
// It shares no code with the side that encrypts.
func (d *Device) Open(sealed []byte) (push.Data, error) {
	var data push.Data
	if len(sealed) < 21 || len(sealed) < 21+int(sealed[20])+17 {
		return data, errors.New("the record is too short")
	}
	salt, size := sealed[:16], binary.BigEndian.Uint32(sealed[16:20])
	id := sealed[21 : 21+int(sealed[20])]
	record := sealed[21+len(id):]
	if uint64(len(record)) > uint64(size) {
		return data, errors.New("there is more than one record")
	}
	sender, err := ecdh.P256().NewPublicKey(id)
	if err != nil {
		return data, err
	}
	shared, err := d.private.ECDH(sender)
	if err != nil {
		return data, err
	}
	mac := func(key []byte, parts ...[]byte) []byte {
		m := hmac.New(sha256.New, key)
		for _, part := range parts {
			m.Write(part)
		}
		return m.Sum(nil)
	}
	// RFC 8291 §3.3 and §3.4, by HMAC as §3.4 writes it out.
	keyInfo := append([]byte("WebPush: info\x00"), d.private.PublicKey().Bytes()...)
	keyInfo = append(keyInfo, id...)
	secret := mac(mac(d.auth, shared), keyInfo, []byte{1})
	pseudorandom := mac(salt, secret)
	content := mac(pseudorandom, []byte("Content-Encoding: aes128gcm\x00\x01"))[:16]
	nonce := mac(pseudorandom, []byte("Content-Encoding: nonce\x00\x01"))[:12]
	block, err := aes.NewCipher(content)
	if err != nil {
		return data, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return data, err
	}
	plain, err := gcm.Open(nil, nonce, record, nil)
	if err != nil {
		return data, err
	}
	end := len(plain) - 1
	for end >= 0 && plain[end] == 0 {
		end--
	}
	if end < 0 || plain[end] != 2 {
		return data, errors.New("the last record has another delimiter than 2")
	}
	return data, json.Unmarshal(plain[:end], &data)
}

// OpenText is Open for base64url.
func (d *Device) OpenText(sealed string) (push.Data, error) {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil {
		return push.Data{}, err
	}
	return d.Open(raw)
}
