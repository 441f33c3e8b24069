package moves

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// A session's id has length characters, of which the first tag name the node of its birth.
const (
	length = 22
	tag    = 4
)

// NewSessionID returns an id that names the node. The rest of it is random, 108 bits.
func NewSessionID(n registry.Node) tidemark.SessionID {
	var b [14]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return tidemark.SessionID(tagOf(n) + base64.RawURLEncoding.EncodeToString(b[:])[:length-tag])
}

// Names reports whether an id names the node.
func Names(id tidemark.SessionID, n registry.Node) bool {
	return len(id) == length && tagOf(n) == string(id[:tag])
}

func tagOf(n registry.Node) string {
	sum := sha256.Sum256([]byte(string(n.ID) + "\x00" + n.Boot))
	return base64.RawURLEncoding.EncodeToString(sum[:3])
}
