package redis

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/server/registry"
)

const (
	devicePrefix = "d:"
	separator    = "|"
)

func field(l *registry.Lease) string { return devicePrefix + string(l.Device) }

// claim returns the part of a field's value after the expiry.
func claim(l *registry.Lease) string {
	return string(l.Node) + separator + l.Boot + separator + string(l.Session)
}

func (r *Registry) key(user tidemark.UserID) string { return r.users + string(user) }

// check returns Invalid if an id of the lease contains the separator.
func check(l *registry.Lease) error {
	for _, part := range []string{string(l.Node), l.Boot, string(l.Session)} {
		if strings.Contains(part, separator) {
			return tidemark.Errorf(tidemark.Invalid, "%q is not an id", part)
		}
	}
	return nil
}

// Open implements registry.Registry.
func (r *Registry) Open(ctx context.Context, q registry.LeaseRequest) (registry.Opened, error) {
	lease := q.Lease
	if err := check(&lease); err != nil {
		return registry.Opened{}, err
	}
	held, err := r.joined(lease.Node, lease.Boot)
	if err != nil {
		return registry.Opened{}, err
	}
	r.hold(q.TTL, lease) // before the call, because its outcome may be unknown
	a, err := r.step(ctx, r.scripts.open, []string{r.key(lease.User)}, opening(&q, held.expires)...)
	switch {
	case err != nil:
		return registry.Opened{}, err
	case a.number(0) == 0:
		r.release(lease)
		return registry.Opened{}, noLease(lease.Node)
	}
	return registry.Opened{
		Others: a.number(1) == 1, Leases: int(a.number(2)), Proof: readProof(a.text(3)),
		Previous: readHolder(a.text(4)),
	}, nil
}

// opening returns the arguments of openScript.
func opening(q *registry.LeaseRequest, expires int64) []any {
	l, only := &q.Lease, 0
	if q.Continue {
		only = 1
	}
	return []any{field(l), claim(l), string(l.Session), q.TTL.Milliseconds(), expires, only}
}

// readHolder returns the node of a claim, or a zero node for "".
func readHolder(claim string) registry.Node {
	node, rest, _ := strings.Cut(claim, separator)
	boot, _, _ := strings.Cut(rest, separator)
	return registry.Node{ID: tidemark.NodeID(node), Boot: boot}
}

// Close implements registry.Registry.
func (r *Registry) Close(ctx context.Context, lease registry.Lease, proof *registry.Epoch) error {
	held, err := r.joined(lease.Node, lease.Boot)
	if err != nil {
		return err
	}
	a, err := r.step(ctx, r.scripts.close, []string{r.key(lease.User)},
		closing(&lease, held.expires, writeProof(proof))...)
	switch {
	case err != nil:
		return err
	case a.number(0) == 0:
		return noLease(lease.Node)
	}
	r.release(lease)
	return nil
}

// closing returns the arguments of closeScript.
func closing(l *registry.Lease, expires int64, proof string) []any {
	return []any{field(l), claim(l), expires, proof, ProofTTL.Milliseconds()}
}

// hold records leases of this process until they are released or expire. The lease of a session
// that moved to another node is neither released nor refreshed here.
func (r *Registry) hold(ttl time.Duration, leases ...registry.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A call that is under way may take the lease later.
	now := time.Now()
	until := now.Add(ttl + r.client.Timeout())
	for _, l := range leases {
		r.held[l] = until
	}
	if now.Sub(r.swept) < ttl {
		return
	}
	r.swept = now
	for l, until := range r.held {
		//rule:bounded_input.let-go-of-leases
		if now.After(until) {
			delete(r.held, l)
		}
	}
}

func (r *Registry) release(leases ...registry.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range leases {
		delete(r.held, l)
	}
}

func writeProof(e *registry.Epoch) string {
	if e == nil {
		return ""
	}
	return strconv.FormatUint(e.Crashes, 10) + separator + e.Incarnation
}

// readProof returns the epoch of a proof, or nil if s is not a proof.
func readProof(s string) *registry.Epoch {
	crashes, incarnation, ok := strings.Cut(s, separator)
	n, err := strconv.ParseUint(crashes, 10, 64)
	if !ok || err != nil {
		return nil
	}
	return &registry.Epoch{Crashes: n, Incarnation: incarnation}
}

// found is the result of a look-up for one user.
type found struct {
	leases []registry.Lease
	err    error
}

// Lookup implements registry.Registry.
func (r *Registry) Lookup(
	ctx context.Context, users []tidemark.UserID,
) ([][]registry.Lease, error) {
	if len(users) == 0 {
		return nil, nil
	}
	answers, err := r.lookups.Do(ctx, users)
	if err != nil {
		return nil, err
	}
	all := make([][]registry.Lease, len(users))
	for i := range answers {
		if answers[i].err != nil {
			return nil, answers[i].err
		}
		all[i] = answers[i].leases
	}
	return all, nil
}

// lookupTrip looks up users in one round trip. A script covers lookupUsers users, or one on a
// cluster.
func (r *Registry) lookupTrip(ctx context.Context, users []tidemark.UserID) ([]found, error) {
	size := lookupUsers
	if r.client.Cluster() {
		size = 1
	}
	keys := make([]string, len(users))
	for i, user := range users {
		keys[i] = r.key(user)
	}
	calls := make([]redis.Call, 0, (len(users)+size-1)/size)
	for from := 0; from < len(users); from += size {
		calls = append(calls, redis.Call{
			Script: r.scripts.lookup,
			Keys:   keys[from:min(from+size, len(users))],
		})
	}
	replies := r.client.Run(ctx, calls)
	if err := redis.AllFailed(replies); err != nil {
		return nil, err
	}
	all := make([]found, 0, len(users))
	for i, reply := range replies {
		a, err := asAnswer(reply.Value, reply.Err)
		for k := range calls[i].Keys {
			user := users[len(all)]
			if err != nil || k+1 >= len(a) {
				all = append(all, found{err: err})
				continue
			}
			fields, _ := a[k+1].([]any)
			all = append(all, found{leases: readLeases(user, fields, a.number(0))})
		}
	}
	return all, nil
}

// readLeases returns the leases in a user's key that have not expired at now, by Redis' clock.
func readLeases(user tidemark.UserID, fields answer, now int64) []registry.Lease {
	var all []registry.Lease
	for i := 0; i+1 < len(fields); i += 2 {
		device, isLease := strings.CutPrefix(fields.text(i), devicePrefix)
		if !isLease {
			continue
		}
		until, rest, _ := strings.Cut(fields.text(i+1), separator)
		node, rest, _ := strings.Cut(rest, separator)
		boot, session, ok := strings.Cut(rest, separator)
		//rule:R_NOBODY.skip-expired-leases
		if expires, err := strconv.ParseInt(until, 10, 64); err != nil || !ok || expires < now {
			continue
		}
		all = append(all, registry.Lease{
			User:    user,
			Device:  tidemark.DeviceID(device),
			Node:    tidemark.NodeID(node),
			Boot:    boot,
			Session: tidemark.SessionID(session),
		})
	}
	return all
}
