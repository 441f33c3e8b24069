package server

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/storage"
)

const (
	// The last message of a chat is looked for in at most lastPages pages of lastPage messages.
	lastPages = 20
	lastPage  = 100
	// A call reads a page of each of its chats, and at most furtherPages more.
	furtherPages = 200
	// A page ends at the first message with content, because it is usually the one wanted. Each
	// further page takes four times the bytes, up to lastBytes.
	lastBytes = 64 << 10
	// searchedAtOnce is how many pages are read at once.
	searchedAtOnce = 64
)

// A search finds the last shown message of a chat, among what a user may see.
type search struct {
	view   *ChatView
	roster *chat.Roster
	// before is where the next page ends.
	before tidemark.Sequence
}

// skipHidden replaces last messages that clients do not show. A chat gets none if what the user may
// see of it has only such messages, or too many of them at its end.
//
// Errors: those of reading members and messages.
func (s *Server) skipHidden(ctx context.Context, user tidemark.UserID, views []ChatView) error {
	searches, err := s.searches(ctx, user, views)
	bytes, further := 1, furtherPages
	for range lastPages {
		if err != nil || len(searches) == 0 {
			break
		}
		searches, err = s.searchPages(ctx, user, searches, bytes)
		bytes = min(4*bytes, lastBytes)
		//rule:bounded_use.limit-pages-of-last-messages
		searches = searches[:min(len(searches), further)]
		further -= len(searches)
	}
	return err
}

// searches returns a search for each chat whose last message is not shown, and leaves the chat
// without a last message.
func (s *Server) searches(
	ctx context.Context, user tidemark.UserID, views []ChatView,
) ([]search, error) {
	var all []search
	var ids []tidemark.ChatID
	for i := range views {
		if last := views[i].Last; last != nil && !last.Kind.Shown() {
			all = append(all, search{view: &views[i], before: last.Sequence})
			ids, views[i].Last = append(ids, views[i].ID), nil
		}
	}
	rosters, err := s.chats.Rosters(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i, roster := range rosters {
		if roster != nil {
			_, known := roster.Member(user)
			if known {
				all[i].roster = roster
				continue
			}
		}
		// The roster may be older than the membership.
		roster, _, err = s.chats.Member(ctx, user, ids[i])
		code := tidemark.CodeOf(err)
		if err != nil && code != tidemark.NotMember && code != tidemark.NotFound {
			return nil, err
		}
		all[i].roster = roster
	}
	return slices.DeleteFunc(all, func(one search) bool { return one.roster == nil }), nil
}

// searchPages reads the next page of each search, of about so many bytes. It sets what it finds,
// and returns the searches that go on.
func (s *Server) searchPages(
	ctx context.Context, user tidemark.UserID, searches []search, bytes int,
) (left []search, err error) {
	for some := range slices.Chunk(searches, searchedAtOnce) {
		ranges := make([]storage.Range, len(some))
		for i, one := range some {
			ranges[i] = storage.Range{
				Chat: one.view.ID, Before: one.before, Limit: lastPage, MaxBytes: bytes, Bare: true,
			}
		}
		pages, err := s.storage.Ranges(ctx, ranges)
		if err != nil {
			return nil, err
		}
		for i, page := range pages {
			one := some[i]
			//rule:nothing_outside_membership.last-message-by-current-roster
			if newest := newestOf(page); newest > one.roster.Version {
				one.roster, err = s.chats.Roster(ctx, one.view.ID, newest)
				if err != nil {
					return nil, err
				}
			}
			if one.look(user, page) {
				one.before = page[0].Sequence
				left = append(left, one)
			}
		}
	}
	return left, nil
}

// newestOf returns the highest version of the members in messages, 0 if there are none.
func newestOf(page []tidemark.Message) (version uint64) {
	for i := range page {
		version = max(version, page[i].MembersVersion)
	}
	return version
}

// look sets the last message of the chat if a page has it, and reports whether an earlier page may
// have it.
func (s search) look(user tidemark.UserID, page []tidemark.Message) (earlier bool) {
	m, _ := s.roster.Member(user)
	for _, last := range slices.Backward(page) {
		switch {
		//rule:nothing_outside_membership.last-message-within-membership
		case !m.Intervals.Contains(last.Sequence):
			return false
		case last.Kind.Shown():
			s.view.Last = &last
			return false
		}
	}
	return len(page) > 0
}
