package postgres

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	service "github.com/tidemark-im/tidemark/test/services/postgres"
)

// TestBehind_many_users_share_a_bounded_statement: however many users share a comparison, it looks
// at a bounded number of chats. The pages that follow have the rest, each chat once.
func TestBehind_many_users_share_a_bounded_statement(t *testing.T) {
	url := newDatabase(t, service.Shared(t))
	s := openTest(t, url)
	const chats = 60
	db, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close(context.Background()) }()
	for _, text := range []string{
		`INSERT INTO chats (id, type, history, name, created_at, activity_at, head, member_count,
				large, creation)
			SELECT 'chat' || lpad(i::text, 3, '0'), 'group', 'full', '', 1, 1, 1, 1, false, ''
			FROM generate_series(1, ` + fmt.Sprint(chats) + `) AS i`,
		`INSERT INTO members (chat, user_id, chat_id, current, role, joined_at, intervals)
			SELECT key, 'anna', id, true, 'member', 1, '1-' FROM chats`,
	} {
		if _, err := db.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	var found []tidemark.ChatID
	queries := make([]behindQuery, maxCompared)
	for after, more := tidemark.ChatID(""), true; more; {
		for i := range queries {
			queries[i] = behindQuery{"anna", storage.BehindQuery{After: after, Limit: 2 * chats}}
		}
		var pages []behindPage
		err := s.read(t.Context(), func(ctx context.Context, c *conn) (err error) {
			pages, err = readBehind(ctx, c, queries)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		looked := 0
		for _, page := range pages {
			looked += len(page.lags)
		}
		if looked > maxLooks {
			t.Fatalf("a statement looks at %d chats, want at most %d", looked, maxLooks)
		}
		page := pages[len(pages)-1]
		for _, lag := range page.lags {
			found = append(found, lag.Chat)
		}
		after, more = page.last, page.last != ""
	}
	var want []tidemark.ChatID
	for n := range chats {
		want = append(want, tidemark.ChatID(fmt.Sprintf("chat%03d", n+1)))
	}
	if !slices.Equal(found, want) {
		t.Errorf("got %v, want each chat once, in order", found)
	}
}
