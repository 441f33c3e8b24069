package server

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Cursors of lists are opaque to clients: base64url of a kind, a bar and the position. A cursor of one list is refused by another.

const (
	cursorChats   = "c"
	cursorMembers = "m"
	cursorStates  = "s"
)

func encodeCursor(kind, position string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + "|" + position))
}

// decodeCursor returns the position of a cursor of a kind; "" for "".
func decodeCursor(kind, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", errCursor()
	}
	got, position, ok := strings.Cut(string(raw), "|")
	if !ok || got != kind || position == "" {
		return "", errCursor()
	}
	return position, nil
}

// decodeIDCursor is decodeCursor for a position that is an id.
func decodeIDCursor[T ~string](kind, cursor string) (T, error) {
	position, err := decodeCursor(kind, cursor)
	if err == nil && position != "" && !tidemark.ValidID(position) {
		err = errCursor()
	}
	return T(position), err
}

// encodeActivity makes the cursor of a list of chats: the last activity in milliseconds, and the chat.
func encodeActivity(activity time.Time, chat tidemark.ChatID) string {
	return encodeCursor(cursorChats, strconv.FormatInt(activity.UnixMilli(), 10)+"|"+string(chat))
}

func decodeActivity(cursor string) (activity time.Time, chat tidemark.ChatID, err error) {
	position, err := decodeCursor(cursorChats, cursor)
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
	return tidemark.Errorf(tidemark.Invalid, "cursor is not one that this list gave; leave it out to begin anew")
}
