package test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// holds checks what a member sees of a chat while nothing is sent. Its messages are exactly those
// from the floor to the head. unread_count is the number of those that the member has not read.
// (Rules: sequence_gapless, unread_exact.)
func (u user) holds(t *testing.T, chat string) {
	t.Helper()
	var c struct {
		Floor  int64 `json:"floor_sequence"`
		Head   int64 `json:"head_sequence"`
		Read   int64 `json:"last_read_sequence"`
		Unread int64 `json:"unread_count"`
	}
	u.call(t, http.MethodGet, "/chats/"+chat, nil, &c)
	unread, next := int64(0), c.Floor
	for more := true; more; {
		var page struct {
			Messages []struct {
				message
				Kind string
			}
			Pagination struct {
				HasMore bool `json:"has_more"`
			}
		}
		path := fmt.Sprintf("/chats/%s/messages?limit=1000&after_sequence=%d", chat, next-1)
		u.call(t, http.MethodGet, path, nil, &page)
		for _, m := range page.Messages {
			if m.Sequence != next {
				t.Fatalf("%s in %s: %d follows %d; the floor is %d", u.name, chat, m.Sequence,
					next-1, c.Floor)
			}
			next++
			if m.Kind == "message" && m.SenderID != u.name && m.Sequence > c.Read {
				unread++
			}
		}
		if more = page.Pagination.HasMore; more && len(page.Messages) == 0 {
			t.Fatalf("%s in %s: nothing follows %d, and there is more", u.name, chat, next-1)
		}
	}
	if next != c.Head+1 {
		t.Errorf("%s in %s: the last message is %d, and the head %d", u.name, chat, next-1, c.Head)
	}
	if unread != c.Unread {
		t.Errorf("%s in %s: %d messages are unread, and the count is %d", u.name, chat, unread,
			c.Unread)
	}
}

// ticksOf asks how far the members of a chat are until ctx ends. It returns who fell back, and how
// many answers there were. (Rule: tick_monotone.)
func (u user) ticksOf(ctx context.Context, chat string) (fell []string, answers int) {
	last := map[string]state{}
	for ; ctx.Err() == nil; <-time.After(20 * time.Millisecond) {
		status, body, err := u.try(ctx, http.MethodGet, "/chats/"+chat+"/delivery-status", nil)
		var answer struct{ Members []state }
		if err != nil || status != http.StatusOK || json.Unmarshal(body, &answer) != nil ||
			len(answer.Members) == 0 {
			continue
		}
		answers++
		for _, now := range answer.Members {
			before := last[now.UserID]
			if now.Acked < before.Acked || now.Read < before.Read {
				fell = append(fell, fmt.Sprintf("%s: %+v after %+v", chat, now, before))
			}
			last[now.UserID] = now
		}
	}
	return fell, answers
}
