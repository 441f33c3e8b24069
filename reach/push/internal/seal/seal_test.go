package seal

import (
	"bytes"
	"crypto/ecdh"
	"encoding/base64"
	"testing"

	"github.com/tidemark-im/tidemark/reach/push"
)

// TestSeal_is_that_of_RFC_8291_Appendix_A compares with the published intermediate values.
func TestSeal_is_that_of_RFC_8291_Appendix_A(t *testing.T) {
	key, err := push.ParseKey(
		decoded(t, "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6S"+
			"RpkNtoIAiw4"),
		decoded(t, "BTBZMqHH6r4Tts7J_aSIgg"))
	if err != nil {
		t.Fatal(err)
	}
	private, err := ecdh.P256().NewPrivateKey(
		decoded(t, "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"))
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("When I grow up, I want to be a watermelon")
	salt := [16]byte(decoded(t, "DGv6ra1nlYgDCS1FRnbzlw"))
	got, err := seal(key, private, salt, text, len(text)+1)
	if err != nil {
		t.Fatal(err)
	}
	want := decoded(t, "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDl"+
		"l6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWy"+
		"ouBWLVWGNWQexSgSxsj_Qulcy4a-fN")
	if !bytes.Equal(got, want) {
		t.Errorf("sealed is\n%x, want\n%x", got, want)
	}
}

// TestSeal_lengths: the bytes of a sealed text rise in steps, and never above the bound.
func TestSeal_lengths(t *testing.T) {
	private, err := ecdh.P256().NewPrivateKey(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	key, err := push.ParseKey(private.PublicKey().Bytes(), make([]byte, 16))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ plain, most, want int }{
		{0, MaxPlain, 256 + Overhead},
		{1, MaxPlain, 256 + Overhead},
		{255, MaxPlain, 256 + Overhead},
		{256, MaxPlain, 512 + Overhead},
		{MaxPlain, MaxPlain, 4096},
		{MaxPlain - 1, MaxPlain, 4096},
		{100, 120, 120 + Overhead},
	} {
		sealed, err := Seal(key, make([]byte, tc.plain), tc.most)
		if err != nil {
			t.Fatal(err)
		}
		if len(sealed) != tc.want {
			t.Errorf("Seal of %d bytes with room for %d has %d bytes, want %d",
				tc.plain, tc.most, len(sealed), tc.want)
		}
	}
	for most := 200; most < 300; most++ {
		text, err := Text(key, make([]byte, Room(most)), most)
		if err != nil || len(text) > most || len(text) < most-1 {
			t.Errorf("Text with room for %d has %d characters: %v", most, len(text), err)
		}
	}
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
