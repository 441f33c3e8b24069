package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// patience bounds a statement, unless a test needs another one.
const patience = time.Second

// now is the time of the database in milliseconds.
const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

// Rates implements limit.Shared on Postgres. There is a row for each user who took something. It
// fills by the clock of the database, and is removed when it is full (Sweep).
type Rates struct {
	pool *pgxpool.Pool
	// Patience bounds a statement. Default 1 s.
	Patience time.Duration
}

// NewRates returns the shared buckets.
func NewRates(pool *pgxpool.Pool) *Rates { return &Rates{pool, patience} }

// take takes from the buckets of users: their name, what fills them in a second, their burst, the
// users, and how much each took. The users are in order, so two statements never wait for each
// other.
//
//rule:bounded_use.take-statement
const take = `INSERT INTO rates AS r (bucket, user_id, remains, at, until)
SELECT $1, n.user_id, $3::float8 - n.taken, t.now,
	t.now + ceil(greatest(n.taken, 0) / $2::float8 * 1000)::bigint
FROM unnest($4::text[], $5::bigint[]) AS n (user_id, taken), (SELECT ` + now + ` AS now) AS t
ORDER BY n.user_id
ON CONFLICT (bucket, user_id) DO UPDATE SET
	remains = least($3::float8, r.remains + greatest(excluded.at - r.at, 0) * $2::float8 / 1000)
		+ excluded.remains - $3::float8,
	at = greatest(excluded.at, r.at),
	until = greatest(excluded.at, r.at) + ceil(greatest($3::float8 - (
		least($3::float8, r.remains + greatest(excluded.at - r.at, 0) * $2::float8 / 1000)
		+ excluded.remains - $3::float8), 0) / $2::float8 * 1000)::bigint
RETURNING user_id, remains`

// Take implements limit.Shared.
func (r *Rates) Take(
	ctx context.Context, bucket limit.Bucket, taken []limit.Taken,
) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	users, amounts := make([]string, len(taken)), make([]int64, len(taken))
	left, places := make([]float64, len(taken)), make(map[tidemark.UserID]int, len(taken))
	for i, t := range taken {
		users[i], amounts[i] = string(t.User), int64(t.N)
		left[i], places[t.User] = math.Inf(1), i
	}
	rows, err := r.pool.Query(ctx, take,
		bucket.Name, bucket.PerSecond, float64(bucket.Burst), users, amounts)
	if err == nil {
		defer rows.Close()
		for rows.Next() {
			var user string
			var remains float64
			if err := rows.Scan(&user, &remains); err != nil {
				break
			}
			left[places[tidemark.UserID(user)]] = remains
		}
		err = rows.Err()
	}
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the shared rates cannot be reached in the database; this node limits alone")
	}
	return left, nil
}
