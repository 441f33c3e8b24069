package http

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus/internal/frame"
	"github.com/tidemark-im/tidemark/server/registry"
)

// path is where frames are posted. The headers name the life of the node that they are for, and
// have the code of the post or the answer.
const (
	path       = "/frames"
	headerNode = "Tidemark-Node"
	headerBoot = "Tidemark-Boot"
	headerCode = "Tidemark-Code"
)

// codeOf returns the code of a post.
func (b *Bus) codeOf(node registry.Node, body []byte) string {
	h := hmac.New(sha256.New, b.cfg.Secret)
	_, _ = io.WriteString(h, "post\x00"+string(node.ID)+"\x00"+node.Boot+"\x00")
	_, _ = h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// answerTo returns the code of an answer to a post with a code.
func (b *Bus) answerTo(code string, status int) string {
	h := hmac.New(sha256.New, b.cfg.Secret)
	_, _ = io.WriteString(h, "answer\x00"+strconv.Itoa(status)+"\x00"+code)
	return hex.EncodeToString(h.Sum(nil))
}

// receive takes a post. It answers 204 if the subscriber was called, and 401 if the code is wrong.
// It answers 404 if only another life of the node is or was here, and 421 if the node never was. If
// an event could not be read, it answers 422, so that the publisher complains.
func (b *Bus) receive(w http.ResponseWriter, r *http.Request) {
	node := registry.Node{
		ID: tidemark.NodeID(r.Header.Get(headerNode)), Boot: r.Header.Get(headerBoot),
	}
	code := r.Header.Get(headerCode)
	answer := func(status int) {
		w.Header()[headerCode] = []string{b.answerTo(code, status)}
		w.WriteHeader(status)
	}
	if r.Method != http.MethodPost || r.URL.Path != path || len(code) != 2*sha256.Size {
		http.Error(w, "This is where the nodes of a Tidemark cluster reach each other.",
			http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	//rule:bounded_input.refuse-posts-of-strangers
	if !hmac.Equal([]byte(code), []byte(b.codeOf(node, body))) {
		b.count.malformed.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s, known := b.here(node)
	switch {
	case s != nil:
		if b.take(s, string(body), node) {
			answer(http.StatusNoContent)
		} else {
			answer(http.StatusUnprocessableEntity)
		}
	case known:
		answer(http.StatusNotFound)
	default:
		answer(http.StatusMisdirectedRequest)
	}
}

// take passes a frame's events to a subscriber, and ends the call that here added. It returns false
// if the frame or some events are malformed. Events of a kind that only newer nodes know are
// skipped, and that is no failure.
func (b *Bus) take(s *subscription, text string, node registry.Node) bool {
	defer s.calls.Done()
	contents, err := frame.Read(text, node)
	if err != nil {
		b.count.malformed.Add(1)
	}
	b.count.unknown.Add(int64(contents.Unknown))
	b.count.malformed.Add(int64(contents.Malformed))
	b.count.received.Add(int64(len(contents.Events)))
	for _, e := range contents.Events {
		s.subscriber.Receive(e)
	}
	//rule:R_EPOCH.refuse-what-cannot-be-read
	return err == nil && contents.Malformed == 0
}
