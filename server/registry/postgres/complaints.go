package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark/server/registry"
)

// Complain records that a publication may not have reached a node. The next heartbeat writes it
// down, and the next one of that node finds it. If no heartbeat can, this node loses its lease, and
// all nodes reconcile. Complain does not block.
func (r *Registry) Complain(of registry.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complaints[of] = struct{}{}
}

func (r *Registry) takeComplaints() []registry.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Collect(maps.Keys(r.complaints))
	clear(r.complaints)
	return all
}

// complainAgain puts complaints back whose writing has failed, or may have.
func (r *Registry) complainAgain(complaints []registry.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range complaints {
		r.complaints[of] = struct{}{}
	}
}

// doubtful records whether a heartbeat may have taken complaints although its answer was lost. It
// returns what was recorded before.
func (r *Registry) doubtful(now bool) (before bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = r.doubt
	r.doubt = now
	return before
}

const readNode = `SELECT address, alive, expires >= ` + now + ` FROM cluster_nodes
WHERE id = $1 AND boot = $2`

// Address returns where a life of a node is reached, as far as it is known here. If it is not, it
// asks the database, as Find does.
func (r *Registry) Address(ctx context.Context, node registry.Node) (string, error) {
	r.mu.Lock()
	address, known := r.addresses[node]
	r.mu.Unlock()
	if known {
		return address, nil
	}
	return r.Find(ctx, node)
}

// Find asks the database where a node is reached. NotFound says that this life of it has no lease,
// so it must join again, which raises the epoch.
func (r *Registry) Find(ctx context.Context, node registry.Node) (address string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTime)
	defer cancel()
	var alive, lasts bool
	err = r.cfg.Pool.QueryRow(ctx, readNode, string(node.ID), node.Boot).
		Scan(&address, &alive, &lasts)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", noLease(node.ID)
	case err != nil:
		return "", errUnreached(err)
	case !alive:
		return "", noLease(node.ID)
	case !lasts:
		// A heartbeat that holds the lock of the epoch may prolong the lease. So only a transaction
		// with that lock can tell that the lease is over.
		//rule:R_NOBODY.lease-ends-under-the-lock-in-postgres
		n, err := r.with(ctx, func(*nodes) {})
		if err != nil {
			return "", err
		}
		if n.joined(node) == nil {
			return "", noLease(node.ID)
		}
		return address, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addresses[node] = address
	return address, nil
}

// sweepRows is how many rows each heartbeat looks at, to remove those that are over.
const sweepRows = 500

// sweepUsers removes rows that are over among the next ones. It waits for no lock.
const sweepUsers = `WITH page AS (
	SELECT user_id, until FROM leases WHERE user_id > $1 ORDER BY user_id LIMIT $2),
over AS (
	SELECT user_id FROM leases WHERE user_id = ANY(ARRAY(
		SELECT user_id FROM page WHERE until < ` + now + `)) AND until < ` + now + `
	FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM leases WHERE user_id = ANY(ARRAY(SELECT user_id FROM over)))
SELECT coalesce(max(user_id), '') FROM page`

// sweep removes rows of users who have neither a lease nor a proof. A failure changes nothing: the
// rows wait for a later heartbeat.
func (r *Registry) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.CallTime)
	defer cancel()
	r.mu.Lock()
	after := r.swept
	r.mu.Unlock()
	if err := r.cfg.Pool.QueryRow(ctx, sweepUsers, after, sweepRows).Scan(&after); err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.swept = after
}
