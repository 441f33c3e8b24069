package importer

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// reserved reports whether an id looks like one that only the server gives. It gives such ids in
// place of the id of an erased user, and to a chat with a client_chat_id.
func reserved(id string) bool {
	rest, made := strings.CutPrefix(id, "chat_")
	return strings.HasPrefix(id, "erased:") ||
		made && len(rest) == 26 && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// ID returns the id of Tidemark for an id of a source. Different ids have different ones. An id
// that Tidemark could have is its own, unless it looks like one that ID makes:
//
//   - A byte that is not allowed becomes a colon and two lower-case hexadecimal digits, as in
//     "a:2fb" for "a/b". So does a colon before two such digits, or before an h.
//   - So does the first byte of "." and "..", of what begins with "erased:", and of "chat_" with 26
//     letters a-z and digits 2-7.
//   - What is longer than tidemark.MaxIDLength then becomes ":h" and a digest.
//
// Only a digest cannot be turned back. Invalid: the id is empty.
func ID[T ~string](id string) (T, error) {
	if id == "" {
		return "", tidemark.Errorf(tidemark.Invalid, "an id is empty")
	}
	return T(escape(id, tidemark.MaxIDLength)), nil
}

// escape returns the id of ID, of at most most bytes.
func escape(id string, most int) string {
	first := id == "." || id == ".." || reserved(id)
	var b strings.Builder
	for i := range len(id) {
		c := id[i]
		//rule:import_once.no-two-ids-become-one
		if i == 0 && first || !allowed(c) || c == ':' && marks(id[i+1:]) {
			b.WriteByte(':')
			b.WriteString(hex.EncodeToString([]byte{c}))
			continue
		}
		b.WriteByte(c)
	}
	if b.Len() <= most {
		return b.String()
	}
	sum := sha256.Sum256([]byte(id))
	return ":h" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:20]))
}

// allowed reports whether a byte may be in an id (tidemark.ValidID).
func allowed(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '.' || c == ':' || c == '-'
}

// marks reports whether what follows a colon would make it an escape.
func marks(rest string) bool {
	return strings.HasPrefix(rest, "h") || len(rest) >= 2 && isHex(rest[0]) && isHex(rest[1])
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// keyOf returns the client message id of a message. It has the position, so that no two messages of
// a chat have the same one, whatever the source says.
func keyOf(position tidemark.Sequence, id string) string {
	//rule:import_once.position-in-the-key
	prefix := strconv.FormatUint(uint64(position), 10) + ":"
	if id == "" {
		return strings.TrimSuffix(prefix, ":")
	}
	return prefix + escape(id, tidemark.MaxIDLength-len(prefix))
}

// messageID returns the id of a message: a UUIDv7 with its time. It is the same in each run.
func messageID(
	chat tidemark.ChatID, position tidemark.Sequence, at time.Time,
) tidemark.MessageID {
	text := "tidemark import\x00" + string(chat) + "\x00" +
		strconv.FormatUint(uint64(position), 10)
	sum := sha256.Sum256([]byte(text))
	id := sum[:16]
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(at.UnixMilli()))
	copy(id, millis[2:])
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	h := hex.EncodeToString(id)
	return tidemark.MessageID(
		h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}
