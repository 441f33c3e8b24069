package client

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tidemark-im/tidemark/test/chaos/checker"
)

// Read keeps a device without a stream up to date until ctx ends. It syncs from its cursors, and
// acknowledges each chat by PATCH.
func (d *Device) Read(ctx context.Context) {
	d.http = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for ctx.Err() == nil {
		d.sync(ctx)
		wait(ctx, 300*time.Millisecond+time.Duration(d.Random.Int64N(int64(time.Second))))
	}
}

// sync makes one sync request.
func (d *Device) sync(ctx context.Context) {
	status, answer := d.call(ctx, http.MethodPost, "/sync", map[string]any{
		"chats": d.cursors(), "limit": 200,
	})
	var synced struct {
		Chats []struct {
			ChatID   string `json:"chat_id"`
			Messages []payload
			Gaps     []payload
			Reset    *struct{ Reason string }
		}
	}
	switch {
	case status == 0:
		return
	case status != http.StatusOK || json.Unmarshal(answer, &synced) != nil:
		_ = d.refused("sync", status)
		return
	}
	for _, c := range synced.Chats {
		if c.Reset != nil {
			d.Log.Reset(c.Reset.Reason, c.ChatID, 0)
		}
		if stored := d.store(c.ChatID, c.Messages, c.Gaps); stored > 0 && !d.Mute {
			d.patch(ctx, c.ChatID, stored)
		}
	}
}

// store stores a page, and returns how far the chat is stored then. It returns 0 if the page is
// empty.
func (d *Device) store(chat string, messages, gaps []payload) (stored int64) {
	d.Log.Continue()
	for len(messages)+len(gaps) > 0 {
		if len(gaps) > 0 && (len(messages) == 0 || gaps[0].From < messages[0].Sequence) {
			d.Log.Gap(chat, gaps[0].From, gaps[0].To, 0)
			stored, gaps = gaps[0].To, gaps[1:]
			continue
		}
		m := messages[0]
		d.Log.Message(m.ChatID, m.Sequence, m.SenderID, m.ClientMessageID, 0)
		stored, messages = m.Sequence, messages[1:]
	}
	return stored
}

// patch acknowledges a chat.
func (d *Device) patch(ctx context.Context, chat string, stored int64) {
	body := map[string]any{"last_acked_sequence": stored}
	said := checker.Boundary{Acked: stored}
	if d.Random.IntN(3) == 0 {
		body["last_read_sequence"], said.Read = stored, stored
	}
	d.Ledger.Acknowledge(chat, d.Log.User, said)
	status, answer := d.call(ctx, http.MethodPatch, "/chats/"+chat+"/delivery-state", body)
	var s state
	switch {
	case status == 0, status == http.StatusForbidden && d.Ledger.Visits(chat, d.Log.User):
	case status != http.StatusOK || json.Unmarshal(answer, &s) != nil:
		_ = d.refused("acknowledging "+chat, status)
	default:
		d.Ledger.Report(chat, d.Log.User, checker.Boundary{Acked: s.Acked, Read: s.Read})
		if s.Acked < said.Acked || s.Read < said.Read {
			d.Ledger.Complain(checker.Back, "%s said %v of %s, and was answered %v",
				d.Log.Name, said, chat, s)
		}
	}
}
