// Package es256 makes JSON Web Tokens with the algorithm ES256 (RFC 7515, RFC 7518 §3.4), with
// deterministic signatures (RFC 6979): one key and one content have one token. It is pure.
package es256

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"

	"github.com/tidemark-im/tidemark"
)

// ParseKey returns a private key on P-256 from PEM: PKCS #8, as in the .p8 file of Apple, or SEC 1.
func ParseKey(text []byte) (*ecdsa.PrivateKey, error) {
	wrong := func(why string) error {
		return tidemark.Errorf(tidemark.Invalid,
			"the key %s; use the PEM file of an ECDSA key on P-256, such as Apple's .p8 file", why)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, wrong("is not PEM")
	}
	var key *ecdsa.PrivateKey
	if parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes); err == nil {
		key, _ = parsed.(*ecdsa.PrivateKey)
	} else if key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
		return nil, wrong("cannot be read")
	}
	if key == nil || key.Curve != elliptic.P256() {
		return nil, wrong("is of another kind")
	}
	return key, nil
}

// Token returns the token with a header and claims, which are encoded as JSON with sorted names.
func Token(key *ecdsa.PrivateKey, header, claims map[string]any) (string, error) {
	head, err := json.Marshal(header)
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString(head) + "." +
		base64.RawURLEncoding.EncodeToString(body)
	digest := sha256.Sum256([]byte(text))
	// Without a source of randomness the signature is deterministic.
	//rule:push_logins_are_shared.deterministic-signature
	der, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		return "", err
	}
	var parts struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &parts); err != nil {
		return "", err
	}
	var signature [64]byte
	parts.R.FillBytes(signature[:32])
	parts.S.FillBytes(signature[32:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature[:]), nil
}
