package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// minRSABits is the smallest size of an RSA key (RFC 7518 §3.3).
const minRSABits = 2048

// key is a public key of the issuer and the one algorithm that it verifies. The algorithm that a
// token claims never chooses the key's.
type key struct {
	id     string
	alg    string
	public any
}

// keySet is what the issuer published at one time. It is immutable.
type keySet struct{ keys []key }

// find returns the key of a token, or nil if there is none. known is true if the set has a key with
// this id, for any algorithm. A token without a kid matches only if the set has a single key.
func (s *keySet) find(alg, kid string) (public any, known bool) {
	if kid == "" {
		//rule:caller_does_only_what_they_may.only-key-of-its-algorithm
		if len(s.keys) == 1 && s.keys[0].alg == alg {
			public = s.keys[0].public
		}
		return public, true
	}
	for _, k := range s.keys {
		if k.id != kid {
			continue
		}
		if k.alg == alg {
			return k.public, true
		}
		known = true
	}
	return nil, known
}

// parseKeySet reads a JSON Web Key Set (RFC 7517 §5). It leaves out keys that cannot verify tokens
// here, so that a bad key does not make the others useless. ignored has the reasons.
func parseKeySet(raw []byte) (set *keySet, ignored []error, err error) {
	var document struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, nil, fmt.Errorf("the answer is not a JSON Web Key Set: %w", err)
	}
	if document.Keys == nil {
		return nil, nil, errors.New("the answer is not a JSON Web Key Set: it has no keys; " +
			"the URL must be the jwks_uri of the issuer, not its discovery document")
	}
	set = new(keySet)
	for i, raw := range *document.Keys {
		k, err := parseKey(raw)
		if err != nil {
			ignored = append(ignored, fmt.Errorf("key %d: %w", i, err))
			continue
		}
		set.keys = append(set.keys, k)
	}
	return set, ignored, nil
}

func parseKey(raw []byte) (key, error) {
	var parsed jose.JSONWebKey
	if err := parsed.UnmarshalJSON(raw); err != nil {
		return key{}, err
	}
	var more struct {
		Operations []string `json:"key_ops"`
	}
	if err := json.Unmarshal(raw, &more); err != nil {
		return key{}, err
	}
	switch {
	//rule:caller_does_only_what_they_may.signing-keys-only
	case parsed.Use != "" && parsed.Use != "sig":
		return key{}, fmt.Errorf("%.40q: its use is %.40q, not sig", parsed.KeyID, parsed.Use)
	case more.Operations != nil && !slices.Contains(more.Operations, "verify"):
		return key{}, fmt.Errorf("%.40q: its key_ops do not name verify", parsed.KeyID)
	}
	k := key{id: parsed.KeyID, public: parsed.Key}
	switch public := parsed.Key.(type) {
	case *rsa.PublicKey:
		//rule:caller_does_only_what_they_may.minimum-key-length
		if public.N.BitLen() < minRSABits {
			return key{}, fmt.Errorf("%.40q: an RSA key of %d bits; it needs at least %d",
				parsed.KeyID, public.N.BitLen(), minRSABits)
		}
		k.alg = jwt.SigningMethodRS256.Alg()
	case *ecdsa.PublicKey:
		if public.Curve != elliptic.P256() {
			return key{}, fmt.Errorf("%.40q: a key of the curve %s; ES256 has P-256",
				parsed.KeyID, public.Curve.Params().Name)
		}
		k.alg = jwt.SigningMethodES256.Alg()
	case ed25519.PublicKey:
		k.alg = jwt.SigningMethodEdDSA.Alg()
	default: // a symmetric or private key, which an issuer must not publish
		return key{}, fmt.Errorf("%.40q: not a public key of RSA, P-256 or Ed25519", parsed.KeyID)
	}
	//rule:caller_does_only_what_they_may.algorithm-of-key
	if parsed.Algorithm != "" && parsed.Algorithm != k.alg {
		return key{}, fmt.Errorf("%.40q: it is for %.40q, which is not accepted",
			parsed.KeyID, parsed.Algorithm)
	}
	return k, nil
}
