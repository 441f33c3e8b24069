// Package acktoken makes and verifies the tokens by which the push handler of a device acknowledges
// messages without a login. It is pure.
//
// A token says that one registration of a device got all messages From to To of a chat. A thief of
// it can say that, and nothing else, for at most a day. The caller puts it only into a notification
// that holds all these messages.
package acktoken

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// MaxLife is how long a token counts.
	MaxLife = 24 * time.Hour
	// MaxLength is the greatest length of a token in characters.
	MaxLength = 600
	// MinSecret is the least length of a secret in bytes.
	MinSecret = 32

	version  = 1
	macBytes = 16
	day      = 24 * time.Hour
)

// Claim is what a token says.
type Claim struct {
	User   tidemark.UserID
	Device tidemark.DeviceID
	// Registration is that of the device. A token of an earlier registration counts only if the
	// caller lets it.
	Registration uint64
	Chat         tidemark.ChatID
	From, To     tidemark.Sequence
}

// Signer makes and verifies tokens. All nodes have the same secret. It is safe for concurrent use.
type Signer struct{ secret []byte }

// New returns a Signer. The secret has at least MinSecret random bytes.
func New(secret []byte) (*Signer, error) {
	if len(secret) < MinSecret {
		return nil, tidemark.Errorf(tidemark.Invalid, "the secret of acknowledgement tokens has "+
			"%d bytes, and needs %d random ones", len(secret), MinSecret)
	}
	return &Signer{append([]byte(nil), secret...)}, nil
}

// Sign returns a token that counts from now until expires, or for MaxLife if that is shorter.
func (s *Signer) Sign(c Claim, now, expires time.Time) (string, error) {
	if !tidemark.ValidID(c.User) || !tidemark.ValidID(c.Device) || !tidemark.ValidID(c.Chat) ||
		c.From == 0 || c.From > c.To || c.To > tidemark.MaxSequence {
		return "", tidemark.Errorf(tidemark.Invalid, "a claim needs a user, a device, a chat, and "+
			"a range of messages from 1 or above")
	}
	//rule:ack_token_honest.ends-within-a-day
	if latest := now.Add(MaxLife); expires.After(latest) {
		expires = latest
	}
	issued := dayOf(now)
	b := make([]byte, 0, MaxLength)
	b = append(b, version)
	b = binary.BigEndian.AppendUint16(b, issued)
	b = binary.BigEndian.AppendUint32(b, uint32(expires.Unix()))
	b = binary.AppendUvarint(b, c.Registration)
	b = binary.AppendUvarint(b, uint64(c.From))
	b = binary.AppendUvarint(b, uint64(c.To))
	for _, id := range []string{string(c.User), string(c.Device), string(c.Chat)} {
		b = append(b, byte(len(id)))
		b = append(b, id...)
	}
	mac, err := s.mac(issued, b)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(append(b, mac...)), nil
}

// Verify returns what a token says, or an Error with the code Unauthenticated. It looks at nothing
// but the token, so a forged one costs no access to the storage.
func (s *Signer) Verify(token string, now time.Time) (Claim, error) {
	wrong := tidemark.Errorf(tidemark.Unauthenticated,
		"the acknowledgement token is forged or has expired; log in, and sync")
	if len(token) > MaxLength {
		return Claim{}, wrong
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) < 3+macBytes || raw[0] != version {
		return Claim{}, wrong
	}
	//rule:ack_token_honest.one-spelling
	if base64.RawURLEncoding.EncodeToString(raw) != token {
		return Claim{}, wrong // the decoder skips line ends, and bits that it does not need
	}
	body, got := raw[:len(raw)-macBytes], raw[len(raw)-macBytes:]
	issued := binary.BigEndian.Uint16(body[1:])
	want, err := s.mac(issued, body)
	if err != nil {
		return Claim{}, err
	}
	//rule:ack_token_honest.authentic
	if !hmac.Equal(got, want) {
		return Claim{}, wrong
	}
	c, expires, ok := parse(body)
	//rule:ack_token_honest.not-expired
	if !ok || !now.Before(expires) {
		return Claim{}, wrong
	}
	return c, nil
}

// parse reads what stands before the MAC.
func parse(body []byte) (c Claim, expires time.Time, ok bool) {
	if len(body) < 7 {
		return c, expires, false
	}
	expires = time.Unix(int64(binary.BigEndian.Uint32(body[3:])), 0)
	body = body[7:]
	var numbers [3]uint64
	for i := range numbers {
		n, size := binary.Uvarint(body)
		if size <= 0 {
			return c, expires, false
		}
		numbers[i], body = n, body[size:]
	}
	var ids [3]string
	for i := range ids {
		if len(body) < 1 || len(body) < 1+int(body[0]) {
			return c, expires, false
		}
		ids[i], body = string(body[1:1+body[0]]), body[1+body[0]:]
	}
	return Claim{
		User: tidemark.UserID(ids[0]), Device: tidemark.DeviceID(ids[1]),
		Chat: tidemark.ChatID(ids[2]), Registration: numbers[0],
		From: tidemark.Sequence(numbers[1]), To: tidemark.Sequence(numbers[2]),
	}, expires, len(body) == 0
}

// mac returns the first half of an HMAC-SHA256 with the key of a day. So a key that leaks forges
// tokens of one day.
func (s *Signer) mac(issued uint16, body []byte) ([]byte, error) {
	//rule:ack_token_honest.key-of-the-day
	key, err := hkdf.Key(sha256.New, s.secret, nil,
		"tidemark acknowledgement token, day "+strconv.Itoa(int(issued)), sha256.Size)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(body)
	return mac.Sum(nil)[:macBytes], nil
}

// dayOf returns the number of days since 1970.
func dayOf(t time.Time) uint16 { return uint16(t.Unix() / int64(day/time.Second)) }
