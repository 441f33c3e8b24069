package push

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Kind says what a notification does on the device.
type Kind string

// The kinds.
const (
	// Banner shows a text. It replaces an earlier one of the same name.
	Banner Kind = "banner"
	// Summary shows one text in place of the banners of all chats.
	Summary Kind = "summary"
	// Badge sets only the number on the app's icon.
	Badge Kind = "badge"
	// Clear wakes the handler, which sets the badge, and removes the banner of the name unless that
	// has a message above To.
	Clear Kind = "clear"
)

// Silent reports whether a notification of the kind shows no text.
func (k Kind) Silent() bool { return k == Badge || k == Clear }

// Urgency says whether a device is woken for a notification.
type Urgency string

// The urgencies. The empty one is Normal.
const (
	// High wakes a sleeping device: a message for a person.
	High Urgency = "high"
	// Normal waits until the device is awake.
	Normal Urgency = "normal"
)

// Bounds of a notification.
const (
	// MaxBadge is the greatest badge; a greater count is shown as this one.
	MaxBadge = 9_999
	// MaxName is the length of a collapse name. The Topic of Web Push may have no more (RFC 8030
	// §5.4).
	MaxName = 32
	// MaxClears is the greatest number of names in Notification.Clears.
	MaxClears = 16
	// MaxTTL is the longest time for which a provider keeps a notification: FCM's four weeks.
	MaxTTL = 28 * 24 * time.Hour
)

// Cleared says up to which message a user has read what a banner shows. A banner of the name that
// has a later message stays.
type Cleared struct {
	Name string            `json:"tag"`
	To   tidemark.Sequence `json:"to_sequence"`
}

// Notification is what one device is to be told.
type Notification struct {
	Kind Kind
	// Name is the collapse name: the later of two notifications with one name replaces the
	// earlier. CollapseName makes it.
	Name string
	// Chat is the chat of the messages From to To. A Summary has none.
	Chat     tidemark.ChatID
	From, To tidemark.Sequence
	// Token acknowledges From to To, or is "" if not all of them are in the notification.
	Token string
	// Title and Body are the text that is shown.
	Title, Body string
	// Sealed hides everything but Badge and Name from the provider. The target needs a key.
	Sealed bool
	// Badge is the exact number of unread messages of the user.
	Badge int
	// Clears are banners that the handler removes: what a withheld Clear had to say.
	Clears []Cleared
	// TTL is how long the provider keeps the notification for a device that is away.
	TTL     time.Duration
	Urgency Urgency
}

// Lifetime returns the TTL within its bounds: 0 to MaxTTL, in whole seconds. Silent notifications
// are not kept: they would take the place of a banner that waits for a device.
func (n Notification) Lifetime() time.Duration {
	//rule:push_latest_replaces.silence-is-not-kept
	if n.Kind.Silent() {
		return 0
	}
	return min(max(n.TTL, 0), MaxTTL).Truncate(time.Second)
}

// Count returns the badge within its bounds: 0 to MaxBadge.
func (n Notification) Count() int { return min(max(n.Badge, 0), MaxBadge) }

// Check returns an Error if a notification is none that a provider could send: a mistake of the
// caller.
func (n Notification) Check() error {
	switch n.Kind {
	case Banner, Clear:
		if !tidemark.ValidID(string(n.Chat)) || n.From == 0 || n.From > n.To ||
			n.To > tidemark.MaxSequence {
			return tidemark.BadParam(tidemark.Invalid, "chat",
				"needs an id, and a range of messages that exist: use from 1 or above")
		}
	case Summary, Badge:
	default:
		return tidemark.BadParam(tidemark.Invalid, "kind", "is unknown: %q", n.Kind)
	}
	if n.Kind != Badge && !validName(n.Name) {
		return tidemark.BadParam(tidemark.Invalid, "name",
			"must have 1 to %d characters of base64url: use CollapseName", MaxName)
	}
	if !n.Kind.Silent() && n.Title == "" && n.Body == "" {
		return tidemark.BadParam(tidemark.Invalid, "body", "must not be empty: a banner has a text")
	}
	if len(n.Clears) > MaxClears {
		return tidemark.BadParam(tidemark.Invalid, "clears", "has more than %d names", MaxClears)
	}
	return nil
}

func validName(name string) bool {
	for _, c := range []byte(name) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') &&
			c != '-' && c != '_' {
			return false
		}
	}
	return name != "" && len(name) <= MaxName
}

// CollapseName returns the collapse name of a chat on a device: MaxName characters of base64url.
// Only those who have the secret can compute it. So providers cannot see which devices share a
// chat. A Summary's name is that of the empty chat. The secret is the same on all nodes and has at
// least 16 bytes.
func CollapseName(
	secret []byte, user tidemark.UserID, device tidemark.DeviceID, chat tidemark.ChatID,
) string {
	mac := hmac.New(sha256.New, secret)
	for _, part := range []string{"tidemark collapse name", string(user), string(device),
		string(chat)} {
		_ = binary.Write(mac, binary.BigEndian, uint32(len(part)))
		mac.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:MaxName*6/8])
}
