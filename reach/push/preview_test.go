package push

import (
	"testing"

	"github.com/tidemark-im/tidemark"
)

// TestShow_table: what each preview shows of each message. Content that is no plain text is never
// shown, as it may be encrypted.
func TestShow_table(t *testing.T) {
	plain := tidemark.Message{Content: " Lunch? ", ContentType: "text/plain; charset=utf-8"}
	sealed := tidemark.Message{Content: "3q2+7w==", ContentType: "application/x-encrypted"}
	picture := tidemark.Message{ContentType: tidemark.DefaultContentType}
	for _, tc := range []struct {
		preview Preview
		message tidemark.Message
		group   string
		want    Shown
	}{
		{PreviewFull, plain, "", Shown{"Alice", "Lunch?", false}},
		{PreviewFull, plain, "Team", Shown{"Team", "Alice: Lunch?", false}},
		{PreviewFull, sealed, "", Shown{"Alice", Hidden, false}},
		{PreviewFull, picture, "Team", Shown{"Team", "Alice: " + Hidden, false}},
		{PreviewSealed, plain, "", Shown{"Alice", "Lunch?", true}},
		{PreviewSealed, sealed, "Team", Shown{"Team", "Alice: " + Hidden, true}},
		{PreviewSender, plain, "", Shown{"Alice", Hidden, false}},
		{PreviewSender, plain, "Team", Shown{"Team", "Alice: " + Hidden, false}},
		{PreviewNone, plain, "", Shown{"", Hidden, false}},
		{PreviewNone, plain, "Team", Shown{"", Hidden, false}},
	} {
		got, err := tc.preview.Show(tc.message, "Alice", tc.group)
		if err != nil || got != tc.want {
			t.Errorf("%s of %q in %q shows %+v, %v; want %+v",
				tc.preview, tc.message.Content, tc.group, got, err, tc.want)
		}
	}
	if got, err := Preview("loud").Show(plain, "Alice", ""); err == nil || got != (Shown{}) {
		t.Errorf("an unknown preview shows %+v, %v", got, err)
	}
}

func TestParseKey(t *testing.T) {
	point := append([]byte{4}, make([]byte, 64)...)
	for name, tc := range map[string]struct{ p256dh, auth []byte }{
		"nothing":               {nil, nil},
		"no point of the curve": {point, make([]byte, 16)},
	} {
		if key, err := ParseKey(tc.p256dh, tc.auth); tidemark.CodeOf(err) != tidemark.Invalid ||
			!key.IsZero() {
			t.Errorf("%s: ParseKey = %v, want Invalid", name, err)
		}
	}
}
