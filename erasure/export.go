package erasure

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Exported is what an Exporter needs of a store.
type Exported interface {
	ChatsNaming(ctx context.Context, user tidemark.UserID, after tidemark.ChatID, limit int) (
		chats []tidemark.ChatID, next tidemark.ChatID, more bool, err error)
	Chat(ctx context.Context, chat tidemark.ChatID) (tidemark.Chat, error)
	Rosters(ctx context.Context, chats []tidemark.ChatID) ([]*tidemark.Roster, error)
	States(ctx context.Context, keys []storage.StateKey) ([]tidemark.DeliveryState, error)
	Ranges(ctx context.Context, ranges []storage.Range) ([][]tidemark.Message, error)
}

// Part reads something of a user that is kept beside chats. The result becomes JSON.
type Part struct {
	Type string
	Read func(ctx context.Context, user tidemark.UserID) (any, error)
}

// Exporter writes what is stored of a user as JSON Lines. docs/privacy.md lists what it leaves out,
// such as blocks and settings of receipts. Each line is an object with a type:
//
//	user        who it is, and when the export began
//	…           one line for each Part
//	membership  a chat of the user, present or former, and their marks
//	message     a message that the user has sent
//	position    where an export goes on that ended here
//	end         the export is whole; without this line it is not
type Exporter struct {
	Store Exported
	Parts []Part
	Clock func() time.Time
}

// place is a position in an export: the page of chats after Page, and in it message After of Chat.
type place struct {
	Page  tidemark.ChatID   `json:"p,omitempty"`
	Chat  tidemark.ChatID   `json:"c,omitempty"`
	After tidemark.Sequence `json:"s,omitempty"`
}

func (p place) text() string {
	b, err := json.Marshal(p)
	if err != nil {
		return "" // Its fields are texts and a number.
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// CheckPosition returns Invalid if an export cannot go on from a position.
func CheckPosition(after string) error {
	_, err := placeOf(after)
	return err
}

func placeOf(after string) (p place, err error) {
	if after == "" {
		return p, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(after)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return p, tidemark.BadParam(tidemark.Invalid, "cursor",
			"must be the next_cursor of a line of the type position, or be left out")
	}
	return p, nil
}

const (
	// exportChats is how many chats are looked at together, and exportMessages how many messages.
	exportChats    = 100
	exportMessages = 500
	// exportBytes bounds a page of messages.
	exportBytes = 1 << 20
)

// Export passes the lines of a user to write, from a position on: "" is the beginning. If it
// returns an error, the last line was not of the type end. A line may come twice if chats have
// changed since the export that had the position.
//
// Errors: Invalid (the position), Unavailable, and those of write.
func (x *Exporter) Export(
	ctx context.Context, user tidemark.UserID, after string, write func(line []byte) error,
) error {
	from, err := placeOf(after)
	if err != nil {
		return err
	}
	w := &exporting{Exporter: x, user: user, write: write, from: from}
	if after == "" {
		if err := w.head(ctx); err != nil {
			return err
		}
	}
	if err := w.chats(ctx); err != nil {
		return err
	}
	//rule:erased_nowhere.end-of-a-whole-export
	return w.line(struct {
		Type string `json:"type"`
	}{"end"})
}

// exporting is one call of Export.
type exporting struct {
	*Exporter
	user  tidemark.UserID
	write func([]byte) error
	from  place
}

func (w *exporting) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return tidemark.Wrap(tidemark.Internal, err, "a line of the export cannot be written")
	}
	return w.write(b)
}

// head writes what belongs to no chat. It reads all of that first: if that fails, the answer has
// not begun.
func (w *exporting) head(ctx context.Context) error {
	parts := make([]any, len(w.Parts))
	for i, part := range w.Parts {
		var err error
		if parts[i], err = part.Read(ctx, w.user); err != nil {
			return err
		}
	}
	err := w.line(struct {
		Type string          `json:"type"`
		User tidemark.UserID `json:"user_id"`
		At   time.Time       `json:"exported_at"`
	}{"user", w.user, w.Clock().UTC().Truncate(time.Millisecond)})
	for i := range parts {
		if err != nil {
			return err
		}
		err = w.line(struct {
			Type string `json:"type"`
			Data any    `json:"data"`
		}{w.Parts[i].Type, parts[i]})
	}
	return err
}

// chats writes the chats of the user.
func (w *exporting) chats(ctx context.Context) error {
	for more := true; more; {
		var chats []tidemark.ChatID
		var next tidemark.ChatID
		var err error
		chats, next, more, err = w.Store.ChatsNaming(ctx, w.user, w.from.Page, exportChats)
		if err != nil {
			return err
		}
		for _, id := range w.left(chats) {
			// NotFound: the chat was removed meanwhile.
			if err := w.chat(ctx, id); err != nil && tidemark.CodeOf(err) != tidemark.NotFound {
				return err
			}
		}
		if w.from = (place{Page: next}); !more {
			break // A position would lead to the beginning.
		}
		if err := w.position(); err != nil {
			return err
		}
	}
	return nil
}

// left returns the chats of a page from the one on in which the export ended. If that is gone, it
// returns all.
func (w *exporting) left(chats []tidemark.ChatID) []tidemark.ChatID {
	for i, id := range chats {
		if id == w.from.Chat {
			return chats[i:]
		}
	}
	w.from.Chat, w.from.After = "", 0
	return chats
}

func (w *exporting) position() error {
	return w.line(struct {
		Type string `json:"type"`
		Next string `json:"next_cursor"`
	}{"position", w.from.text()})
}

// chat writes a chat of the user, from the position on if the export ended in it.
func (w *exporting) chat(ctx context.Context, id tidemark.ChatID) error {
	if w.from.Chat != id {
		w.from.Chat, w.from.After = id, 0
		if err := w.membership(ctx, id); err != nil {
			return err
		}
	}
	for {
		pages, err := w.Store.Ranges(ctx, []storage.Range{{
			Chat: id, After: w.from.After, Limit: exportMessages, MaxBytes: exportBytes, Bare: true,
		}})
		if err != nil || len(pages[0]) == 0 {
			return err
		}
		for i := range pages[0] {
			m := &pages[0][i]
			if w.from.After = m.Sequence; m.SenderID != w.user {
				continue
			}
			if err := w.line(struct {
				Type    string          `json:"type"`
				Message json.RawMessage `json:"message"`
			}{"message", m.AppendJSON(nil)}); err != nil {
				return err
			}
		}
		if err := w.position(); err != nil {
			return err
		}
	}
}

// membership is a line about a chat.
type membership struct {
	Type     string            `json:"type"`
	ChatID   tidemark.ChatID   `json:"chat_id"`
	ChatType tidemark.ChatType `json:"chat_type"`
	ChatName string            `json:"chat_name"`
	Member   bool              `json:"member"`
	Role     tidemark.Role     `json:"role"`
	JoinedAt *time.Time        `json:"joined_at"`
	Metadata json.RawMessage   `json:"metadata"`
	Acked    tidemark.Sequence `json:"last_acked_sequence"`
	Read     tidemark.Sequence `json:"last_read_sequence"`
	AckedAt  *time.Time        `json:"acked_at"`
	ReadAt   *time.Time        `json:"read_at"`
}

func (w *exporting) membership(ctx context.Context, id tidemark.ChatID) error {
	chat, err := w.Store.Chat(ctx, id)
	if err != nil {
		return err
	}
	rosters, err := w.Store.Rosters(ctx, []tidemark.ChatID{id})
	if err != nil {
		return err
	}
	states, err := w.Store.States(ctx, []storage.StateKey{{User: w.user, Chat: id}})
	if err != nil {
		return err
	}
	line := membership{
		Type: "membership", ChatID: id, ChatType: chat.Type, ChatName: chat.Name,
		Acked: states[0].Acked, Read: states[0].Read,
		AckedAt: timeOrNull(states[0].AckedAt), ReadAt: timeOrNull(states[0].ReadAt),
	}
	if rosters[0] != nil {
		var m tidemark.Member
		if m, line.Member = rosters[0].Member(w.user); line.Member {
			line.Role, line.Metadata, line.JoinedAt = m.Role, m.Metadata, timeOrNull(m.JoinedAt)
		}
	}
	return w.line(line)
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
