package audit

import (
	"context"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// maxExamined is how many entries List looks at in one call, unless it finds enough before.
const maxExamined = 10 * storage.MaxAudit

// Query selects a page of entries. What is "" or zero selects all of them.
type Query struct {
	// User is who called, or whom the call concerned.
	User      tidemark.UserID
	Chat      tidemark.ChatID
	Key       string
	Operation string
	// From is the first time, and To is the first one after the last.
	From, To time.Time
	// Cursor is Page.Next of the page before.
	Cursor string
	// Limit is at least 1.
	Limit int
}

// matches reports whether a query without times selects an entry.
func (q *Query) matches(e *Entry) bool {
	return (q.User == "" || e.Names(q.User)) && (q.Chat == "" || e.Target.Chat == q.Chat) &&
		(q.Key == "" || e.Key == q.Key) && (q.Operation == "" || e.Operation == q.Operation)
}

// Page is a page of entries, the newest first. It may have fewer entries than the limit, or none,
// also if more follow.
type Page struct {
	Entries []Entry
	// Next is the cursor of the next page, or "" if there is none.
	Next string
}

// List returns a page of the entries that a query selects. It looks at a bounded number of entries,
// so a query that selects few of them takes several calls.
//
// Errors: Invalid (the cursor), Unavailable.
func (l *Log) List(ctx context.Context, q Query) (Page, error) {
	p := storage.AuditPage{Below: storage.AuditID(q.Cursor), Limit: storage.MaxAudit}
	if _, err := p.Below.At(); err != nil && q.Cursor != "" {
		return Page{}, tidemark.BadParam(tidemark.Invalid, "cursor", "is not of this list")
	}
	if !q.From.IsZero() {
		p.From = storage.AuditIDAt(q.From)
	}
	if to := storage.AuditIDAt(q.To); !q.To.IsZero() && (p.Below == "" || to < p.Below) {
		p.Below = to
	}
	if q.User == "" && q.Chat == "" && q.Key == "" && q.Operation == "" {
		p.Limit = min(q.Limit, storage.MaxAudit)
	}
	var found Page
	for examined := 0; examined < maxExamined; {
		entries, more, err := l.cfg.Store.ListAudit(ctx, p)
		if err != nil {
			return Page{}, err
		}
		examined += len(entries)
		for i := range entries {
			p.Below = entries[i].ID
			if !q.matches(&entries[i]) {
				continue
			}
			found.Entries = append(found.Entries, entries[i])
			if len(found.Entries) == q.Limit {
				if more || i+1 < len(entries) {
					found.Next = string(p.Below)
				}
				return found, nil
			}
		}
		if !more {
			return found, nil
		}
	}
	found.Next = string(p.Below)
	return found, nil
}
