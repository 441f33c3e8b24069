// Package pagetoken encodes and decodes the cursors of lists. To clients they are opaque. A cursor
// is the base64url form of a kind, a bar and a position. A list refuses the cursors of other lists.
package pagetoken

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// The kinds of lists whose position is an id.
const (
	Members = "m"
	States  = "s"
	Pending = "p"
	Blocks  = "b"
	Bans    = "x"
)

// Reactions is the kind of the list of the reactions to a message. Its position is a sequence.
const Reactions = "r"

// chats is the kind of the list of chats.
const chats = "c"

// Encode returns the cursor of a position in a list of a kind.
func Encode(kind, position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + "|" + position))
}

// decode returns the position in a cursor of a kind, "" for an empty cursor. Error: Invalid.
func decode(kind, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", errCursor()
	}
	got, position, ok := strings.Cut(string(raw), "|")
	//rule:bounded_input.check-kind-and-position
	if !ok || got != kind || position == "" {
		return "", errCursor()
	}
	return position, nil
}

// DecodeID returns the id in a cursor of a kind, "" for an empty cursor. Error: Invalid.
func DecodeID[T ~string](kind, cursor string) (T, error) {
	position, err := decode(kind, cursor)
	if err == nil && position != "" && !tidemark.ValidID(position) {
		err = errCursor()
	}
	return T(position), err
}

// DecodeSequence returns the sequence in a cursor of a kind, 0 for an empty cursor. Error: Invalid.
func DecodeSequence(kind, cursor string) (tidemark.Sequence, error) {
	position, err := decode(kind, cursor)
	if err != nil || position == "" {
		return 0, err
	}
	n, err := strconv.ParseUint(position, 10, 64)
	if err != nil || n > uint64(tidemark.MaxSequence) {
		return 0, errCursor()
	}
	return tidemark.Sequence(n), nil
}

// EncodeActivity returns a cursor of the list of chats: the last activity in milliseconds, and the
// chat.
func EncodeActivity(activity time.Time, chat tidemark.ChatID) string {
	return Encode(chats, strconv.FormatInt(activity.UnixMilli(), 10)+"|"+string(chat))
}

// DecodeActivity returns what EncodeActivity was given, zero values for an empty cursor. Error:
// Invalid.
func DecodeActivity(cursor string) (activity time.Time, chat tidemark.ChatID, err error) {
	position, err := decode(chats, cursor)
	if err != nil || position == "" {
		return time.Time{}, "", err
	}
	millis, id, ok := strings.Cut(position, "|")
	n, err := strconv.ParseInt(millis, 10, 64)
	if !ok || err != nil || !tidemark.ValidID(id) {
		return time.Time{}, "", errCursor()
	}
	return time.UnixMilli(n).UTC(), tidemark.ChatID(id), nil
}

func errCursor() error {
	return tidemark.BadParam(tidemark.Invalid,
		"cursor", "does not belong to this list; leave it out to start at the beginning")
}
