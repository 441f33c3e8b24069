package push

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
)

func encodeData(n Notification) ([]byte, error) { return JSON(n.Data()) }

// TestFit_order_of_what_is_cut: first the token, then the text, then what the handler can do
// without.
func TestFit_order_of_what_is_cut(t *testing.T) {
	n := Notification{
		Kind: Banner, Name: "name", Chat: "chat", From: 1, To: 2, Token: strings.Repeat("t", 50),
		Title: strings.Repeat("T", 50), Body: strings.Repeat("B", 50),
		Clears: []Cleared{{"clear", 1}},
	}
	whole, err := encodeData(n)
	if err != nil {
		t.Fatal(err)
	}
	frame := n
	frame.Title, frame.Body, frame.Token, frame.Clears = "", "", "", nil
	least, err := encodeData(frame)
	if err != nil {
		t.Fatal(err)
	}
	for limit := len(whole); limit > 0; limit-- {
		var last Notification
		got, err := Fit(n, limit, func(n Notification) ([]byte, error) {
			last = n
			return encodeData(n)
		})
		if err != nil {
			if tidemark.CodeOf(err) != tidemark.TooLarge || limit != len(least)-1 {
				t.Fatalf("limit %d: %v; %d bytes are needed", limit, err, len(least))
			}
			return
		}
		switch {
		case len(got) > limit:
			t.Errorf("limit %d: there are %d bytes", limit, len(got))
		case last.Title != n.Title && last.Body != "",
			last.Clears == nil && last.Title+last.Body != "":
			t.Errorf("limit %d: cut in another order: %+v", limit, last)
		case last.Token != "" && limit < len(whole):
			t.Errorf("limit %d: a part of the message has a token that acknowledges it", limit)
		case last.Body != n.Body && last.Body != "" && !strings.HasSuffix(last.Body, ellipsis):
			t.Errorf("limit %d: the body ends in %q", limit, last.Body)
		case last.Body != n.Body && last.Body != "" && len(got) < limit-4:
			t.Errorf("limit %d: only %d bytes are used", limit, len(got))
		}
	}
	t.Error("everything fits into nothing")
}

// FuzzCut: a cut text is valid, no longer than allowed, and a beginning of the whole.
func FuzzCut(f *testing.F) {
	f.Add("Lunch 🍜 at one?", 11)
	f.Add("é", 1)
	f.Add("日本語日本語", 8)
	f.Add("", 0)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 0 || !utf8.ValidString(text) {
			return
		}
		got := cut(text, most)
		if len(got) > most || !utf8.ValidString(got) {
			t.Errorf("cut(%q, %d) = %q", text, most, got)
		}
		if got != text && got != "" && !strings.HasPrefix(text, strings.TrimSuffix(got, ellipsis)) {
			t.Errorf("cut(%q, %d) = %q, which is another text", text, most, got)
		}
		if len(text) <= most && got != text {
			t.Errorf("cut(%q, %d) = %q, though it fits", text, most, got)
		}
	})
}
