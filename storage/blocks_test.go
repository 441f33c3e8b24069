package storage_test

import (
	"testing"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

func TestCheckBlocks_bounded_use(t *testing.T) {
	for _, tc := range []struct {
		n    int
		want tidemark.Code
	}{{0, ""}, {tidemark.MaxBlocks - 1, ""}, {tidemark.MaxBlocks, tidemark.Denied}} {
		if got := tidemark.CodeOf(storage.CheckBlocks(tc.n)); got != tc.want {
			t.Errorf("a user who has blocked %d: got %q, want %q", tc.n, got, tc.want)
		}
		if got := tidemark.CodeOf(storage.CheckBans("c", tc.n)); got != tc.want {
			t.Errorf("a chat with %d bans: got %q, want %q", tc.n, got, tc.want)
		}
	}
}

func TestCloseBy_blocked_is_closed(t *testing.T) {
	for _, tc := range []struct {
		state         tidemark.ChatState
		first, second bool
		want          tidemark.ChatState
	}{
		{tidemark.ChatLive, false, false, tidemark.ChatLive},
		{tidemark.ChatLive, true, false, tidemark.ChatClosedByFirst},
		{tidemark.ChatLive, false, true, tidemark.ChatClosedBySecond},
		{tidemark.ChatClosedByFirst, true, true, tidemark.ChatClosedByBoth},
		{tidemark.ChatClosedByBoth, false, true, tidemark.ChatClosedBySecond},
		{tidemark.ChatClosedBySecond, false, false, tidemark.ChatLive},
		{tidemark.ChatImporting, true, true, tidemark.ChatImporting},
		{tidemark.ChatDeleted, true, true, tidemark.ChatDeleted},
	} {
		before := tidemark.Chat{State: tc.state, Version: 3, MembersVersion: 7}
		got, changed := storage.CloseBy(before, tc.first, tc.second)
		want := before
		if want.State = tc.want; tc.want.Closed() != tc.state.Closed() {
			want.Version, want.MembersVersion = 4, 8
		}
		if got.State != want.State || got.Version != want.Version ||
			got.MembersVersion != want.MembersVersion || changed != (tc.want != tc.state) {
			t.Errorf("%q, %v, %v: got %+v, %v, want %+v", tc.state, tc.first, tc.second, got,
				changed, want)
		}
	}
}
