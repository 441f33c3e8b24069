package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/tidemark-im/tidemark/test/chaos/checker"
)

// refused returns the error of a call. It complains unless the status means that the client may try
// again.
func (d *Device) refused(what string, status int) error {
	switch status {
	case http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusConflict:
	default:
		d.Ledger.Complain(checker.Refused, "%s: %s of %s was answered %d",
			d.Log.Name, what, d.Log.User, status)
	}
	return fmt.Errorf("%s: %d", what, status)
}

// call makes a request as the device's user. Status 0 means that there was no answer.
func (d *Device) call(
	ctx context.Context, method, path string, body any,
) (status int, answer []byte) {
	return Call(ctx, d.http, d.Base, d.Log.User, method, path, body)
}

// Call makes a request for a user. Status 0 means that there was no complete answer.
func Call(
	ctx context.Context, client *http.Client, base, user, method, path string, body any,
) (status int, answer []byte) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			panic(err) // the body is our own
		}
		content = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, base+"/api/v1"+path, content)
	if err != nil {
		return 0, nil
	}
	r.Header.Set("Authorization", "Bearer dev:"+user)
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	if answer, err = io.ReadAll(response.Body); err != nil {
		return 0, nil
	}
	return response.StatusCode, answer
}

// acknowledgeLater notes that a message has to be acknowledged.
func (d *Device) acknowledgeLater(chat string, sequence int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirty[chat] = max(d.dirty[chat], sequence)
}

// acknowledge repeatedly acknowledges what is new, over the socket if there is one. From time to
// time it repeats all of it, because an acknowledgement on a stream may be lost.
func (d *Device) acknowledge(ctx context.Context, random *rand.Rand) {
	for round := 1; ctx.Err() == nil; round++ {
		wait(ctx, 300*time.Millisecond+time.Duration(random.Int64N(int64(2*time.Second))))
		if d.Log.NeedsCursors() {
			d.giveCursors(ctx) // the session's request for cursors got no answer
		}
		if d.Mute {
			continue
		}
		d.mu.Lock()
		chats := d.dirty
		d.dirty = map[string]int64{}
		for chat, sequence := range chats {
			d.acked[chat] = max(d.acked[chat], sequence)
		}
		if round%8 == 0 {
			for chat, sequence := range d.acked {
				chats[chat] = max(chats[chat], sequence)
			}
		}
		socket := d.socket
		d.mu.Unlock()
		if len(chats) > 0 && !d.sendAcknowledgements(ctx, socket, chats, random) {
			for chat, sequence := range chats {
				d.acknowledgeLater(chat, sequence)
			}
		}
	}
}

// state is an entry of an acknowledgement, and of its answer.
type state struct {
	ChatID string `json:"chat_id"`
	Acked  int64  `json:"last_acked_sequence,omitempty"`
	Read   int64  `json:"last_read_sequence,omitempty"`
}

// sendAcknowledgements acknowledges the chats, and marks a part of them as read. It reports whether
// the server took all of it.
func (d *Device) sendAcknowledgements(
	ctx context.Context, socket *websocket.Conn, chats map[string]int64, random *rand.Rand,
) bool {
	var states []state
	for chat, sequence := range chats {
		s := state{ChatID: chat, Acked: sequence}
		if random.IntN(4) == 0 {
			s.Read = max(1, sequence-random.Int64N(3))
		}
		d.Ledger.Acknowledge(chat, d.Log.User, checker.Boundary{Acked: s.Acked, Read: s.Read})
		states = append(states, s)
	}
	if socket != nil && random.IntN(4) > 0 {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		acks, err := json.Marshal(map[string]any{
			"type": "ack", "payload": map[string]any{"chats": states},
		})
		if err != nil || socket.Write(ctx, websocket.MessageText, acks) != nil {
			return false
		}
		for _, s := range states {
			if s.Read > 0 {
				read, _ := json.Marshal(map[string]any{"type": "read", "payload": map[string]any{
					"chat_id": s.ChatID, "last_read_sequence": s.Read,
				}}) // strings and numbers only
				if socket.Write(ctx, websocket.MessageText, read) != nil {
					return false
				}
			}
		}
		return true
	}
	status, answer := d.call(ctx, http.MethodPost, "/acks", map[string]any{"chats": states})
	var answered struct{ Results []struct{ State *state } }
	if status != http.StatusOK || json.Unmarshal(answer, &answered) != nil {
		if status >= 400 && status != http.StatusServiceUnavailable &&
			status != http.StatusTooManyRequests {
			d.Ledger.Complain(checker.Refused, "%s: acknowledging was answered %d %s",
				d.Log.Name, status, answer)
		}
		return false
	}
	if len(answered.Results) != len(states) {
		d.Ledger.Complain(checker.Refused, "%s acknowledged %d chats, and was answered %s",
			d.Log.Name, len(states), answer)
	}
	for _, result := range answered.Results {
		if s := result.State; s != nil {
			d.Ledger.Report(s.ChatID, d.Log.User, checker.Boundary{Acked: s.Acked, Read: s.Read})
			if s.Acked < chats[s.ChatID] {
				d.Ledger.Complain(checker.Back, "%s acknowledged %d of %s, and was answered %d",
					d.Log.Name, chats[s.ChatID], s.ChatID, s.Acked)
			}
		}
	}
	return true
}
