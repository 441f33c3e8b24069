package storage

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
)

// Audit stores who did what to others. An entry is recorded before its call changes anything, and
// finished afterwards. The ids of entries say their order, so a later entry has a greater id.
type Audit interface {
	// RecordAudit stores an entry. If there is one with its id, nothing changes.
	RecordAudit(ctx context.Context, e AuditEntry) error

	// FinishAudit finishes an entry: it becomes AuditEntry.Finish of it, and is removed if that is
	// AuditWithdrawn. If there is no such entry, nothing changes.
	FinishAudit(ctx context.Context, id AuditID, end AuditEnd) error

	// ListAudit returns a page of the entries, the greatest id first. It sees every write that
	// returned before the call. more reports whether the range has entries below the last one.
	ListAudit(ctx context.Context, page AuditPage) (entries []AuditEntry, more bool, err error)

	// RenameAudit replaces a user who was erased by an alias: the entry becomes AuditEntry.Rename
	// of it. If there is no such entry, nothing changes.
	RenameAudit(ctx context.Context, id AuditID, user, alias tidemark.UserID) error

	// TrimAudit removes entries whose ids are below an id: at most limit of them, which is from 1
	// to MaxAudit. If done is true, none is left.
	//
	// On DynamoDB each entry is a step of its own.
	TrimAudit(ctx context.Context, below AuditID, limit int) (removed int, done bool, err error)
}

// MaxAudit is the most entries that one call of Audit returns or removes.
const MaxAudit = 500

// AuditState is how far the call of an entry has come. An entry begins as AuditBegun, and the first
// FinishAudit moves it to one of the other states, which it keeps, or removes it (AuditWithdrawn).
type AuditState string

// The states of an entry.
const (
	// AuditBegun: the call is under way, or its node ended in the middle of it. It may have had an
	// effect.
	AuditBegun AuditState = "begun"
	// AuditDone: the call had its effect.
	AuditDone AuditState = "done"
	// AuditRefused: the call had no effect.
	AuditRefused AuditState = "refused"
	// AuditUnknown: the call failed, and may have had an effect all the same.
	AuditUnknown AuditState = "unknown"
	// AuditWithdrawn: the call had no effect, and nobody needs to know of it. No stored entry has
	// this state: FinishAudit removes the entry.
	AuditWithdrawn AuditState = "withdrawn"
)

// auditSteps are the states that may follow each state.
var auditSteps = map[AuditState][]AuditState{
	AuditBegun: {AuditDone, AuditRefused, AuditUnknown, AuditWithdrawn},
}

// May reports whether an entry in the state s may move to a state.
func (s AuditState) May(next AuditState) bool { return slices.Contains(auditSteps[s], next) }

// AuditID names an entry. It begins with its time, so that ids ascend as the times do. Two entries
// of a millisecond have any order.
type AuditID string

const (
	// auditTime is the number of hexadecimal digits of a time in milliseconds since 1970.
	auditTime = 12
	// auditID is the length of an id.
	auditID = auditTime + 16
)

// NewAuditID returns a new id for an entry of a time, which is after 1970.
func NewAuditID(at time.Time) AuditID {
	var some [(auditID - auditTime) / 2]byte
	_, _ = rand.Read(some[:]) // It never fails.
	return AuditIDAt(at) + AuditID(hex.EncodeToString(some[:]))
}

// AuditIDAt returns the position before all ids of a time, and after those of earlier times. A time
// before 1970 counts as 1970.
func AuditIDAt(at time.Time) AuditID {
	digits := strconv.FormatInt(max(at.UnixMilli(), 0), 16)
	const zeros = "000000000000"
	return AuditID(zeros[:max(auditTime-len(digits), 0)] + digits)
}

// At returns the time of an id or a position.
//
// Invalid: neither NewAuditID nor AuditIDAt has made it.
func (id AuditID) At() (time.Time, error) {
	bad := len(id) != auditTime && len(id) != auditID
	for i := 0; i < len(id) && !bad; i++ {
		bad = (id[i] < '0' || id[i] > '9') && (id[i] < 'a' || id[i] > 'f')
	}
	if bad {
		return time.Time{}, tidemark.Errorf(tidemark.Invalid, "%q is no id of an entry", string(id))
	}
	millis, err := strconv.ParseInt(string(id[:auditTime]), 16, 64)
	if err != nil {
		return time.Time{}, tidemark.Wrap(tidemark.Invalid, err, "it is no id of an entry")
	}
	return time.UnixMilli(millis).UTC(), nil
}

// AuditEntry says who called an operation, and whom it concerned. It has no content.
type AuditEntry struct {
	ID AuditID
	// Key is the name of the API key that called, or "" if a user called. Actor is the user who
	// called, or for whom the key did, or "". If both are "", the program itself was run.
	Key   string
	Actor tidemark.UserID
	// Request is the id of the request, or "".
	Request   string
	Operation string
	Target    AuditTarget
	State     AuditState
	// Code is that of the error after which State is AuditRefused or AuditUnknown, or "".
	Code tidemark.Code
	// EndedAt is when the entry was finished, or zero. When it was recorded is in its id.
	EndedAt time.Time
}

// AuditTarget is whom and what a call concerned. What it did not concern is "" or 0.
type AuditTarget struct {
	User     tidemark.UserID
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
	// Outlet is the id of an outlet.
	Outlet string
}

// AuditEnd is how a call ended.
type AuditEnd struct {
	State AuditState
	Code  tidemark.Code
	At    time.Time
}

// Finish returns the entry after the end of its call. An entry that is finished stays as it is.
func (e AuditEntry) Finish(end AuditEnd) AuditEntry {
	if e.State.May(end.State) {
		e.State, e.Code, e.EndedAt = end.State, end.Code, end.At
	}
	return e
}

// Names reports whether the entry names a user.
func (e AuditEntry) Names(user tidemark.UserID) bool {
	return e.Actor == user || e.Target.User == user
}

// Rename returns the entry with an alias in place of a user. Callers choose the ids of requests, so
// an entry that named the user loses one that contains theirs.
func (e AuditEntry) Rename(user, alias tidemark.UserID) AuditEntry {
	//rule:erased_nowhere.no-request-names-the-erased
	if e.Names(user) && strings.Contains(e.Request, string(user)) {
		e.Request = ""
	}
	//rule:erased_nowhere.no-entry-names-the-erased
	if e.Actor == user {
		e.Actor = alias
	}
	if e.Target.User == user {
		e.Target.User = alias
	}
	return e
}

// AuditPage names a page of entries: at most Limit of those whose ids are from From on and below
// Below. "" is no bound. Limit is from 1 to MaxAudit.
type AuditPage struct {
	From, Below AuditID
	Limit       int
}

// Check returns Invalid if the page must not be given to ListAudit. Every backend calls it at the
// start.
func (p AuditPage) Check() error {
	for _, id := range []AuditID{p.From, p.Below} {
		if id == "" {
			continue
		}
		if _, err := id.At(); err != nil {
			return err
		}
	}
	return CheckAudit(p.Limit)
}

// CheckAudit returns Invalid if a limit must not be given to a method of Audit. Every backend calls
// it at the start of TrimAudit.
func CheckAudit(limit int) error {
	if limit < 1 || limit > MaxAudit {
		return tidemark.Errorf(tidemark.Invalid,
			"%d entries are not handled in one step, only 1 to %d", limit, MaxAudit)
	}
	return nil
}
