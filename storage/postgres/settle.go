package postgres

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark/storage"
)

// waitForStandbys makes a commit, which waits for the synchronous standbys and for everything before it, if there are such standbys. A commit whose
// wait was given up is visible, but only on this server: who sends the same again may not be told yet that it is stored.
const waitForStandbys = `SELECT CASE WHEN current_setting('synchronous_standby_names') <> '' THEN pg_logical_emit_message(true, 'tidemark', '') END IS NULL`

// settled is a write of a batch whose answers are safe even if the answer is what somebody wrote
// before: then nothing was committed that waits.
func settled[I, R any](
	write func(context.Context, *conn, []I) ([]R, error), answersBefore func([]R) bool,
) func(context.Context, *conn, []I) ([]R, error) {
	return func(ctx context.Context, c *conn, items []I) ([]R, error) {
		results, err := write(ctx, c, items)
		//rule:confirmed_is_durable.confirm-after-second-attempt
		if err == nil && (c.attempt > 0 || answersBefore(results)) {
			_, err = c.Exec(ctx, waitForStandbys)
		}
		return results, err
	}
}

// someDuplicate reports whether a message was stored before.
func someDuplicate(results []storage.Appended) bool {
	return slices.ContainsFunc(results, func(r storage.Appended) bool { return r.Duplicate })
}

// noneMoved reports whether all watermarks were raised before. If one was not, its own commit has waited.
func noneMoved(results []storage.Advanced) bool {
	return !slices.ContainsFunc(results, func(r storage.Advanced) bool { return r.Moved })
}
