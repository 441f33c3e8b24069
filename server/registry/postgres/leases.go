package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// step is a change of one user's row.
type step struct {
	act   act
	lease registry.Lease
	// request is what opens asks for.
	request *registry.LeaseRequest
	// proof is the proof that closes leaves, or nil.
	proof *registry.Epoch
	// ttl is the life of a lease after prolongs.
	ttl time.Duration
}

// act is what a step does with a lease.
type act uint8

const (
	opens act = iota
	closes
	// drops closes a lease without a proof, and prolongs gives one a longer life. The caller knows
	// the node, which need not have a lease of its own.
	drops
	prolongs
)

// result is the result of a step. err is NotFound if the node has no lease.
type result struct {
	opened registry.Opened
	closed bool
	fate   fate
	err    error
}

// Open implements registry.Registry.
func (r *Registry) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	if err := valid(&q.Lease); err != nil {
		return registry.Opened{}, err
	}
	done, err := r.steps.DoOne(ctx, step{act: opens, lease: q.Lease, request: &q})
	if err == nil {
		err = done.err
	}
	return done.opened, err
}

// Close implements registry.Registry.
func (r *Registry) Close(ctx context.Context, lease registry.Lease, proof *registry.Epoch) error {
	done, err := r.steps.DoOne(ctx, step{act: closes, lease: lease, proof: proof})
	if err == nil {
		err = done.err
	}
	return err
}

// The statements of a step. The users are in order, so that two steps never wait for each other.
const (
	insertUsers = `INSERT INTO leases (user_id, leases, proof, until)
SELECT id, '', '', 0 FROM unnest($1::text[]) AS n (id) ORDER BY id ON CONFLICT DO NOTHING`
	readAlive  = `SELECT id, boot FROM cluster_nodes WHERE alive AND expires >= ` + now
	writeUsers = `UPDATE leases AS l SET leases = n.leases, proof = n.proof, until = n.until
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS n (id, leases, proof, until)
WHERE l.user_id = n.id`
)

// lockUsers locks and reads the rows of users.
//
// rule:R_LAST.one-lock-for-a-user
const lockUsers = `SELECT user_id, leases, proof FROM leases
WHERE user_id = ANY($1::text[]) ORDER BY user_id FOR UPDATE`

// change does steps in one transaction, those of one user in their order.
func (r *Registry) change(ctx context.Context, steps []step) ([]result, error) {
	var all, opening []string
	for i := range steps {
		id := string(steps[i].lease.User)
		if all = append(all, id); steps[i].act == opens {
			opening = append(opening, id)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	results := make([]result, len(steps))
	err := r.transaction(ctx, func(b *pgx.Batch) {
		if len(opening) > 0 {
			b.Queue(insertUsers, opening)
		}
		b.Queue(lockUsers, all)
		b.Queue(readTime)
		b.Queue(readAlive)
	}, func(read pgx.BatchResults, b *pgx.Batch) error {
		if len(opening) > 0 {
			if _, err := read.Exec(); err != nil {
				return err
			}
		}
		s, err := readScene(read)
		if err != nil {
			return err
		}
		for i := range steps {
			results[i] = s.do(&steps[i])
		}
		s.write(b)
		return nil
	})
	return results, err
}

// scene is what steps are done on: the rows of users, and the nodes with a lease.
type scene struct {
	now     int64
	users   map[tidemark.UserID]*user
	alive   map[registry.Node]bool
	changed map[tidemark.UserID]*user
}

// readScene reads the results of lockUsers, of the time, and of readAlive.
func readScene(read pgx.BatchResults) (*scene, error) {
	s := &scene{
		users: map[tidemark.UserID]*user{}, alive: map[registry.Node]bool{},
		changed: map[tidemark.UserID]*user{},
	}
	type texts struct{ id, leases, proof string }
	rows, err := read.Query()
	if err != nil {
		return nil, err
	}
	locked, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (t texts, err error) {
		return t, row.Scan(&t.id, &t.leases, &t.proof)
	})
	if err != nil {
		return nil, err
	}
	if err := read.QueryRow().Scan(&s.now); err != nil {
		return nil, err
	}
	for _, t := range locked {
		id := tidemark.UserID(t.id)
		s.users[id] = &user{
			id: id, leases: readLeases(id, t.leases, s.now), proof: readProof(t.proof),
		}
	}
	if rows, err = read.Query(); err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, boot string
		if err := rows.Scan(&id, &boot); err != nil {
			return nil, err
		}
		s.alive[registry.Node{ID: tidemark.NodeID(id), Boot: boot}] = true
	}
	return s, rows.Err()
}

// do does a step.
func (s *scene) do(of *step) result {
	//rule:R_EPOCH.serve-joined-nodes-only-in-postgres
	if (of.act == opens || of.act == closes) && !s.alive[of.lease.Holder()] {
		return result{err: noLease(of.lease.Node)}
	}
	u := s.users[of.lease.User]
	switch {
	case u != nil:
	case of.act == opens:
		// Its row was removed between the two statements, which happens to old rows only.
		return result{err: tidemark.Errorf(tidemark.Unavailable,
			"the row of a user was removed meanwhile; try again")}
	default:
		return result{fate: lost}
	}
	var done result
	changed := false
	switch of.act {
	case opens:
		done.opened = u.open(of.request, s.now)
		changed = done.opened.Leases > 0
	case prolongs:
		done.fate = u.prolong(&of.lease, s.now+of.ttl.Milliseconds(), s.now)
		changed = done.fate == prolonged
	case closes, drops:
		done.closed = u.close(&of.lease, of.proof, s.now)
		changed = done.closed
	}
	if changed {
		s.changed[u.id] = u
	}
	return done
}

// write queues the statement that writes the rows that changed.
func (s *scene) write(b *pgx.Batch) {
	if len(s.changed) == 0 {
		return
	}
	var ids, leases, proofs []string
	var until []int64
	for id, u := range s.changed {
		ids, leases = append(ids, string(id)), append(leases, u.text())
		proofs, until = append(proofs, u.proofText()), append(until, u.until)
	}
	b.Queue(writeUsers, ids, leases, proofs, until)
}

// prolong prolongs at most maxUsers leases, and sorts the others into refreshed.
func (r *Registry) prolong(
	ctx context.Context, leases []registry.Lease, ttl time.Duration, refreshed *registry.Refreshed,
) error {
	steps := make([]step, len(leases))
	for i := range leases {
		steps[i] = step{act: prolongs, lease: leases[i], ttl: ttl}
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTime)
	defer cancel()
	results, err := r.change(ctx, steps)
	if err != nil {
		return tidemark.Wrap(tidemark.Unavailable, err,
			"some leases were not prolonged; the next heartbeat tries again")
	}
	for i, done := range results {
		switch done.fate {
		case prolonged:
		case lost:
			refreshed.Lost = append(refreshed.Lost, leases[i])
		case replaced:
			refreshed.Replaced = append(refreshed.Replaced, leases[i])
		case elsewhere:
			refreshed.Elsewhere = append(refreshed.Elsewhere, leases[i])
		}
	}
	return nil
}

// Lookup implements registry.Registry.
func (r *Registry) Lookup(
	ctx context.Context, users []tidemark.UserID,
) ([][]registry.Lease, error) {
	if len(users) == 0 {
		return nil, nil
	}
	return r.lookups.Do(ctx, users)
}

const readUsers = `SELECT user_id, leases, statement_timestamp() FROM leases
WHERE user_id = ANY($1::text[])`

// lookup looks up users in one statement. It begins after the calls did, so it sees each lease that
// was there then.
func (r *Registry) lookup(
	ctx context.Context, users []tidemark.UserID,
) ([][]registry.Lease, error) {
	ids := make([]string, len(users))
	for i, id := range users {
		ids[i] = string(id)
	}
	slices.Sort(ids)
	rows, err := r.cfg.Pool.Query(ctx, readUsers, slices.Compact(ids))
	if err != nil {
		return nil, errUnreached(err)
	}
	defer rows.Close()
	found := make(map[tidemark.UserID][]registry.Lease)
	for rows.Next() {
		var id, text string
		var at time.Time
		if err := rows.Scan(&id, &text, &at); err != nil {
			return nil, errUnreached(err)
		}
		user := tidemark.UserID(id)
		for _, h := range readLeases(user, text, at.UnixMilli()) {
			found[user] = append(found[user], h.Lease)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, errUnreached(err)
	}
	all := make([][]registry.Lease, len(users))
	for i, id := range users {
		all[i] = found[id]
	}
	return all, nil
}
