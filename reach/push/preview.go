package push

import (
	"fmt"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// Preview says how much of a message a user wants to see on a locked screen.
type Preview string

// The previews.
const (
	// PreviewFull shows who wrote, and what.
	PreviewFull Preview = "full"
	// PreviewSender shows who wrote, and not what.
	PreviewSender Preview = "sender"
	// PreviewNone shows that somebody wrote.
	PreviewNone Preview = "none"
	// PreviewSealed shows who wrote, and what. The provider sees neither.
	PreviewSealed Preview = "sealed"
)

// Hidden is the text in place of what is not shown.
const Hidden = "New message"

// Shown is the text of a banner. Sealed goes to Notification.Sealed.
type Shown struct {
	Title, Body string
	Sealed      bool
}

// Show returns what a banner shows of a message. sender is the name of who wrote, and group the
// name of the chat, or "" in a direct chat. A message that is no plain text has Hidden in place of
// its content: encrypted content looks like any other.
func (p Preview) Show(m tidemark.Message, sender, group string) (Shown, error) {
	shown := Shown{Title: sender, Body: Hidden}
	if group != "" {
		shown.Title = group
	}
	switch p {
	case PreviewNone:
		return Shown{Body: Hidden}, nil
	case PreviewSender:
		if group != "" {
			shown.Body = sender + ": " + Hidden
		}
		return shown, nil
	case PreviewFull, PreviewSealed:
		shown.Sealed = p == PreviewSealed
	default:
		return Shown{}, tidemark.BadParam(tidemark.Invalid, "preview",
			"is %q: use full, sender, none or sealed", p)
	}
	text := strings.TrimSpace(m.Content)
	if !Readable(&m) {
		text = Hidden
	}
	shown.Body = text
	if group != "" {
		shown.Body = fmt.Sprintf("%s: %s", sender, text)
	}
	return shown, nil
}

// Readable reports whether a message has a text that a banner can show.
func Readable(m *tidemark.Message) bool {
	mediaType, _, _ := strings.Cut(m.ContentType, ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), "text/plain") &&
		strings.TrimSpace(m.Content) != ""
}
