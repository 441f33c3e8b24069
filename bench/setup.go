package bench

import (
	"fmt"

	"github.com/tidemark-im/tidemark/bench/internal/client"
)

// setupLimit is the greatest number of concurrent setup calls.
const setupLimit = 64

// membersPerCall is the greatest number of members that one call of the API accepts.
const membersPerCall = 1000

// createChat creates a chat with all of its members, over the connection of the first one.
func (r *run) createChat(conn *client.Conn, kind, chat string, members []string) error {
	first := members[:min(len(members), membersPerCall)]
	body := appendMembers([]byte(`{"type":"`+kind+`","chat_id":"`+chat+`","member_ids":`), first)
	if err := r.post(conn, "/api/v1/chats", body); err != nil {
		return fmt.Errorf("create a chat: %w", err)
	}
	for rest := members[len(first):]; len(rest) > 0; rest = rest[min(len(rest), membersPerCall):] {
		body := appendMembers([]byte(`{"user_ids":`), rest[:min(len(rest), membersPerCall)])
		if err := r.post(conn, "/api/v1/chats/"+chat+"/members", body); err != nil {
			return fmt.Errorf("add members: %w", err)
		}
	}
	return nil
}

// post sends an object whose closing brace is missing.
func (r *run) post(conn *client.Conn, path string, open []byte) error {
	_, err := conn.Do(r.ctx, "POST", path, append(open, '}'), client.AnswerTimeout)
	return err
}

// connectAs returns a REST connection of a user, for setup.
func (r *run) connectAs(user string) *client.Conn {
	return client.NewConn(r.node(0), r.load.Token(user), &r.answerBytes, client.LargeBuffer)
}

// name returns the id of a user or chat of this run.
func (r *run) name(kind string, i int) string { return fmt.Sprintf("bench-%s-%s%d", r.id, kind, i) }

func appendMembers(b []byte, users []string) []byte {
	b = append(b, '[')
	for i, user := range users {
		if i > 0 {
			b = append(b, ',')
		}
		b = client.AppendQuoted(b, user)
	}
	return append(b, ']')
}
