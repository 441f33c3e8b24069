package websocket

import (
	"crypto/sha1" //nolint:gosec // RFC 6455 §4.2.2 demands it, and no secret depends on it
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
)

// handshake checks the request of a client that wants a WebSocket, and returns the header of the
// answer (RFC 6455 §4.2).
func handshake(r *http.Request) (http.Header, error) {
	key := r.Header.Get("Sec-Websocket-Key")
	switch raw, err := base64.StdEncoding.DecodeString(key); {
	case r.ProtoMajor != 1 || r.ProtoMinor < 1:
		return nil, errors.New("the request is not HTTP/1.1")
	case r.Method != http.MethodGet:
		return nil, errors.New("the method is not GET")
	case !lists(r.Header, "Connection", "upgrade"):
		return nil, errors.New("the header Connection does not have `upgrade`")
	case !lists(r.Header, "Upgrade", "websocket"):
		return nil, errors.New("the header Upgrade does not have `websocket`")
	case !lists(r.Header, "Sec-Websocket-Version", "13"):
		return nil, errors.New("the header Sec-WebSocket-Version is not 13")
	case err != nil || len(raw) != 16:
		return nil, errors.New("the header Sec-WebSocket-Key is not 16 bytes in base64")
	}
	answer := http.Header{
		"Upgrade":              {"websocket"},
		"Connection":           {"Upgrade"},
		"Sec-WebSocket-Accept": {accept(key)},
	}
	if lists(r.Header, "Sec-Websocket-Protocol", Subprotocol) {
		answer["Sec-WebSocket-Protocol"] = []string{Subprotocol}
	}
	return answer, nil
}

// accept returns the answer to the key of a handshake.
func accept(key string) string {
	const suffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
	sum := sha1.Sum([]byte(key + suffix)) //nolint:gosec // see above
	return base64.StdEncoding.EncodeToString(sum[:])
}

// lists reports whether a header that is a list of words has a word, in any case.
func lists(h http.Header, name, word string) bool {
	for _, line := range h[name] {
		for got := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(got), word) {
				return true
			}
		}
	}
	return false
}
