package acktoken

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
)

var (
	now   = time.Date(2026, 11, 27, 23, 59, 0, 0, time.UTC)
	claim = Claim{User: "bob", Device: "phone", Registration: 7, Chat: "c", From: 41, To: 42}
)

func newSigner(t testing.TB, secret string) *Signer {
	t.Helper()
	s, err := New(bytes.Repeat([]byte(secret), MinSecret))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signed(t testing.TB, s *Signer, c Claim, life time.Duration) string {
	t.Helper()
	token, err := s.Sign(c, now, now.Add(life))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestVerify_ack_token_honest: what is signed is read back, by each node and until its end.
func TestVerify_ack_token_honest(t *testing.T) {
	id := strings.Repeat("x", tidemark.MaxIDLength)
	longest := Claim{tidemark.UserID(id), tidemark.DeviceID(id), 1<<64 - 1, tidemark.ChatID(id),
		tidemark.MaxSequence, tidemark.MaxSequence}
	for _, c := range []Claim{claim, longest} {
		token := signed(t, newSigner(t, "a"), c, time.Hour)
		if len(token) > MaxLength {
			t.Errorf("the token has %d characters, want at most %d", len(token), MaxLength)
		}
		got, err := newSigner(t, "a").Verify(token, now.Add(time.Hour-1))
		if err != nil || got != c {
			t.Errorf("Verify = %+v, %v; want %+v", got, err, c)
		}
	}
}

// TestVerify_refuses: another secret, another day's key, after its end, and after a day at most.
func TestVerify_refuses(t *testing.T) {
	s := newSigner(t, "a")
	hour, week := signed(t, s, claim, time.Hour), signed(t, s, claim, 7*24*time.Hour)
	for name, tc := range map[string]struct {
		signer *Signer
		token  string
		at     time.Time
		want   bool
	}{
		"in time":        {s, hour, now, true},
		"at its end":     {s, hour, now.Add(time.Hour), false},
		"within a day":   {s, week, now.Add(MaxLife - 1), true},
		"after a day":    {s, week, now.Add(MaxLife), false},
		"another secret": {newSigner(t, "b"), hour, now, false},
		"nothing":        {s, "", now, false},
		"no base64":      {s, "?" + hour[1:], now, false},
		"a line end":     {s, hour + "\n", now, false},
		"one in it":      {s, hour[:9] + "\r\n" + hour[9:], now, false},
		"too long":       {s, hour + strings.Repeat("A", MaxLength), now, false},
	} {
		_, err := tc.signer.Verify(tc.token, tc.at)
		if (err == nil) != tc.want {
			t.Errorf("%s: Verify = %v, want it to count: %t", name, err, tc.want)
		}
		if err != nil && tidemark.CodeOf(err) != tidemark.Unauthenticated {
			t.Errorf("%s: the error is %v, want Unauthenticated", name, err)
		}
	}
}

// TestVerify_no_changed_bit_counts tries every bit of the token, and every other last character.
func TestVerify_no_changed_bit_counts(t *testing.T) {
	s := newSigner(t, "a")
	token := signed(t, s, claim, time.Hour)
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		for bit := range 8 {
			changed := bytes.Clone(raw)
			changed[i] ^= 1 << bit
			if c, err := s.Verify(base64.RawURLEncoding.EncodeToString(changed), now); err == nil {
				t.Errorf("with bit %d of byte %d changed it says %+v", bit, i, c)
			}
		}
	}
	for _, last := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		changed := token[:len(token)-1] + string(last)
		if _, err := s.Verify(changed, now); err == nil && changed != token {
			t.Errorf("it counts with %q at the end, too", last)
		}
	}
}

// TestMAC_key_of_the_day: the key of one day says nothing about another.
func TestMAC_key_of_the_day(t *testing.T) {
	s := newSigner(t, "a")
	today, err := s.mac(dayOf(now), []byte("body"))
	if err != nil {
		t.Fatal(err)
	}
	tomorrow, err := s.mac(dayOf(now.Add(time.Minute)), []byte("body"))
	if err != nil || bytes.Equal(today, tomorrow) {
		t.Errorf("two days have one key: %v", err)
	}
}

func TestSign_refuses(t *testing.T) {
	for name, change := range map[string]func(*Claim){
		"user":   func(c *Claim) { c.User = "" },
		"device": func(c *Claim) { c.Device = "a b" },
		"chat":   func(c *Claim) { c.Chat = tidemark.ChatID(strings.Repeat("x", 129)) },
		"from":   func(c *Claim) { c.From = 0 },
		"range":  func(c *Claim) { c.From = 43 },
		"to":     func(c *Claim) { c.To = tidemark.MaxSequence + 1 },
	} {
		c := claim
		change(&c)
		if token, err := newSigner(t, "a").Sign(c, now, now.Add(time.Hour)); err == nil {
			t.Errorf("%s: Sign = %q, want an error", name, token)
		}
	}
	if _, err := New([]byte("short")); tidemark.CodeOf(err) != tidemark.Invalid {
		t.Errorf("New with a short secret = %v, want Invalid", err)
	}
}

// FuzzVerify_ack_token_honest: no token but those that were signed counts.
func FuzzVerify_ack_token_honest(f *testing.F) {
	s := newSigner(f, "a")
	token := signed(f, s, claim, time.Hour)
	f.Add(token)
	f.Add(token[:len(token)-1])
	f.Add(token + "A")
	f.Add(signed(f, newSigner(f, "b"), claim, time.Hour))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := s.Verify(text, now)
		if (err == nil) != (text == token) {
			t.Errorf("Verify(%q) = %+v, %v", text, c, err)
		}
	})
}
