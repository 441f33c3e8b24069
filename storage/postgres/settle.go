package postgres

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark/storage"
)

// waitForStandbys makes a commit if there are synchronous standbys. This commit waits for them and
// for every earlier commit. If the wait of an earlier commit was given up, that commit is visible,
// but only on this server. So a repeated send must wait before it is confirmed.
const waitForStandbys = `SELECT CASE
	WHEN current_setting('synchronous_standby_names') <> ''
		THEN pg_logical_emit_message(true, 'tidemark', '')
	END IS NULL`

// settled wraps a write of a batch, so that its results are on the standbys when they are returned.
// answersBefore reports whether the results confirm an earlier commit, for which this write has not
// waited.
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

// noneMoved reports whether all watermarks were raised before. If one was not, the statement's own
// commit has waited.
func noneMoved(results []storage.Advanced) bool {
	return !slices.ContainsFunc(results, func(r storage.Advanced) bool { return r.Moved })
}
