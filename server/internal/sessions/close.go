package sessions

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/retry"
	"github.com/tidemark-im/tidemark/server/internal/session"
	"github.com/tidemark-im/tidemark/storage"
)

// Close ends sessions in the order of R_ORDER: detach, mark, release. A session leaves no proof if
// its rows could not be marked or it was incomplete. Close returns how many sessions it closed. It
// also returns the error of marking, which the retry queue repeats.
func (s *Sessions) Close(ctx context.Context, endings ...session.Ending) (closed int, err error) {
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	var rows []tidemark.PendingDelivery
	var follow []retry.Follow
	var ended []*session.Session
	for _, e := range endings {
		left, ok := e.End()
		if !ok {
			continue
		}
		//rule:resume_lossless.remember-replaced-session
		if err := e.Refusal(); tidemark.CodeOf(err) == tidemark.Replaced {
			s.replaced.remember(e.ID(), refusal{
				user: e.User(), until: time.Now().Add(s.Host.Resume), err: err,
			})
		}
		// An arriving session stays in the table until its lease is released. Otherwise another
		// resume could take that lease before the release, which could not tell the two apart
		// (R_LEASEFIRST).
		//rule:R_LEASEFIRST.leave-after-the-lease
		if !left.Unlanded {
			s.Table.Remove(e.Session)
		}
		rows = append(rows, left.Rows...)
		for _, n := range left.Marked {
			follow = append(follow, retry.Follow{
				Lease:    e.Lease,
				Chat:     n.Chat,
				Sequence: n.Sequence,
			})
		}
		ended = append(ended, e.Session)
	}
	// Sorted, so that a run of the simulation is repeatable.
	retry.Sort(rows)
	slices.SortFunc(ended, func(a, b *session.Session) int {
		return cmp.Or(cmp.Compare(a.User(), b.User()), cmp.Compare(a.Lease.Device, b.Lease.Device))
	})
	//rule:R_ORDER.mark-before-release
	err = s.Delivery.MarkOrRetry(ctx, rows)
	sideBySide(ended, func(sess *session.Session) {
		if s.Leases.Release(ctx, sess, err == nil) {
			s.Table.Remove(sess)
		}
	})
	s.Delivery.Retry.Follow(follow)
	return len(ended), err
}

// closeSuperseded closes sessions whose devices have newer ones.
func (s *Sessions) closeSuperseded(ctx context.Context, superseded []*session.Session) {
	if _, err := s.Close(ctx, session.Endings(superseded, session.Superseded)...); err != nil {
		s.Log.Warn("sessions were replaced by newer ones, and writing their pending rows failed; "+
			"the node tries again", "sessions", len(superseded), "error", err)
	}
}

// expire closes the sessions whose resume window is over.
func (s *Sessions) expire(ctx context.Context, due []session.Deadline) {
	closed, err := s.Close(ctx, session.Expired(due)...)
	s.Count.Expired.Add(int64(closed))
	if err != nil {
		s.Log.Warn("sessions expired, and writing their pending rows failed; the node tries again",
			"sessions", closed, "error", err)
	}
}

// overdue marks a row for each chat that a client did not acknowledge within the grace period.
func (s *Sessions) overdue(ctx context.Context, due []session.Deadline) {
	s.refresh(ctx, session.Unacknowledged(due))
	//rule:pending_or_delivered.mark-after-grace
	rows := session.Overdue(due)
	s.Count.GraceExpired.Add(int64(len(rows)))
	_ = s.Delivery.MarkOrRetry(ctx, rows) // the retry queue repeats it
}

// refresh reads what users have acknowledged through other nodes.
func (s *Sessions) refresh(ctx context.Context, keys []storage.StateKey) {
	if len(keys) > 0 && !s.Leases.Alone() {
		s.Receipts.Refresh(ctx, keys)
	}
}
