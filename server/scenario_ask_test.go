package server_test

import (
	"fmt"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// ask answers the commands that change nothing.
func (sc *scenario) ask(verb string, args []string) ([]string, error) {
	switch verb {
	case "pending":
		return sc.pending(tidemark.UserID(args[0]))
	case "state":
		st, err := sc.core.DeliveryState(sc.core.ctx, tidemark.UserID(args[0]),
			tidemark.ChatID(args[1]))
		if err != nil {
			return nil, err
		}
		return []string{fmt.Sprintf("acked %d, read %d", st.Acked, st.Read)}, nil
	case "ticks":
		return sc.ticks(args)
	case "status":
		return sc.deliveryStatus(args)
	case "history":
		return sc.history(args)
	case "sync":
		return sc.sync(args, "")
	case "cursors":
		c := sc.clients[args[0]]
		return sc.sync(append([]string{string(c.user)}, args[1:]...), c.Session())
	default:
		return nil, fmt.Errorf("%q is no command of a scenario", verb)
	}
}

// pending lists a user's rows: pending USER
func (sc *scenario) pending(user tidemark.UserID) ([]string, error) {
	rows, _, err := sc.store.PendingOf(sc.core.ctx, user, "", 100)
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("%d pending", len(rows))}
	for _, row := range rows {
		lines = append(lines, fmt.Sprintf("%s from %d", row.ChatID, row.FirstUndelivered))
	}
	return lines, nil
}

// ticks lists what the user sees beside their own messages: ticks USER CHAT
func (sc *scenario) ticks(args []string) ([]string, error) {
	user, chat := tidemark.UserID(args[0]), tidemark.ChatID(args[1])
	status, err := sc.core.DeliveryStatus(sc.core.ctx, server.Caller{User: user},
		server.DeliveryStatusRequest{Chat: chat, Limit: 1000})
	if err != nil {
		return nil, err
	}
	least := tidemark.Boundary{Acked: status.Sequence, Read: status.Sequence}
	for _, m := range status.Members {
		if m.UserID != user {
			least = least.Least(m.Exposed())
		}
	}
	after := tidemark.Sequence(0)
	h, err := sc.core.History(sc.core.ctx, user, server.HistoryRequest{
		Chat:  chat,
		After: &after,
		Limit: 1000,
	})
	if err != nil {
		return nil, err
	}
	signs := map[tidemark.Tick]string{
		tidemark.TickSent: "✓", tidemark.TickDelivered: "✓✓", tidemark.TickRead: "blue ✓✓",
	}
	var lines []string
	for _, m := range h.Messages {
		if m.SenderID == user {
			tick := signs[tidemark.TickOf(m.Sequence, least)]
			lines = append(lines, fmt.Sprintf("%d %q %s", m.Sequence, m.Content, tick))
		}
	}
	return lines, nil
}

// deliveryStatus shows who has a message: status USER CHAT [SEQUENCE]
func (sc *scenario) deliveryStatus(args []string) ([]string, error) {
	r := server.DeliveryStatusRequest{Chat: tidemark.ChatID(args[1]), Limit: 1000}
	if len(args) > 2 {
		n := number(args[2])
		r.ForSequence = &n
	}
	asker := server.Caller{User: tidemark.UserID(args[0])}
	status, err := sc.core.DeliveryStatus(sc.core.ctx, asker, r)
	if err != nil {
		return nil, err
	}
	lines := []string{fmt.Sprintf("sequence %d: delivered to %d of %d, read by %d",
		status.Sequence, status.Summary.Delivered, status.Summary.Members, status.Summary.Read)}
	for _, m := range status.Members {
		lines = append(lines,
			fmt.Sprintf("%s: acked %d, read %d", m.UserID, m.Exposed().Acked, m.Read))
	}
	return lines, nil
}

// history shows messages and gaps: history USER CHAT after N
func (sc *scenario) history(args []string) ([]string, error) {
	after := number(args[3])
	h, err := sc.core.History(sc.core.ctx, tidemark.UserID(args[0]), server.HistoryRequest{
		Chat: tidemark.ChatID(args[1]), After: &after, Limit: 1000,
	})
	if err != nil {
		return nil, err
	}
	return pieces(h.Messages, h.Gaps), nil
}

func pieces(messages []tidemark.Message, gaps []tidemark.Gap) []string {
	var lines []string
	for _, m := range messages {
		lines = append(lines, fmt.Sprintf("%d %s: %s", m.Sequence, m.SenderID, m.Content))
	}
	for _, g := range gaps {
		lines = append(lines, fmt.Sprintf("gap %d-%d (%s)", g.From, g.To, g.Reason))
	}
	return lines
}

// sync returns the messages after cursors: sync USER [CHAT=CURSOR]… With a session it sets the
// session's positions: cursors CLIENT [CHAT=CURSOR]…
func (sc *scenario) sync(args []string, session tidemark.SessionID) ([]string, error) {
	r := server.SyncRequest{Limit: 1000, Session: session}
	for _, word := range args[1:] {
		chat, cursor, _ := strings.Cut(word, "=")
		r.Cursors = append(r.Cursors, server.Cursor{
			Chat:  tidemark.ChatID(chat),
			Acked: number(cursor),
		})
	}
	response, err := sc.core.Sync(sc.core.ctx, tidemark.UserID(args[0]), r)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, chat := range response.Chats {
		line := fmt.Sprintf("%s: head %d", chat.Chat, chat.Head)
		if chat.Reset != "" {
			line += ", reset " + string(chat.Reset)
		}
		if chat.Err != nil {
			line += ", " + string(tidemark.CodeOf(chat.Err))
		}
		lines = append(lines, line)
		for _, piece := range pieces(chat.Messages, chat.Gaps) {
			lines = append(lines, "  "+piece)
		}
	}
	return lines, nil
}
