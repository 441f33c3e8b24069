package postgres

import (
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/registry"
)

// The columns of a user are texts. A lease is "expires|node|boot|session|device", and a space
// divides leases. Ids contain neither.
const (
	separator = "|"
	between   = " "
)

// held is a lease with the time when it ends, in milliseconds of the database's clock.
type held struct {
	registry.Lease
	expires int64
}

// user is the row of a user: their leases, and their proof of a clean close or nil.
type user struct {
	id     tidemark.UserID
	leases []held
	proof  *registry.Epoch
	until  int64
}

// valid returns Invalid if an id of a lease contains a separator.
func valid(l *registry.Lease) error {
	for _, part := range []string{string(l.Node), l.Boot, string(l.Session), string(l.Device)} {
		if strings.Contains(part, separator) || strings.Contains(part, between) {
			return tidemark.Errorf(tidemark.Invalid, "%q is not an id", part)
		}
	}
	return nil
}

// holder returns what the text of each lease of a node's life contains, and no other text.
func holder(node registry.Node) string {
	return separator + string(node.ID) + separator + node.Boot + separator
}

// readLeases returns the leases in a text that have not expired at now. Parts that are no lease are
// skipped.
func readLeases(id tidemark.UserID, text string, now int64) []held {
	var all []held
	for part := range strings.SplitSeq(text, between) {
		field := strings.SplitN(part, separator, 5)
		if len(field) < 5 {
			continue
		}
		expires, err := strconv.ParseInt(field[0], 10, 64)
		//rule:R_NOBODY.skip-expired-leases-in-postgres
		if err != nil || expires < now {
			continue
		}
		all = append(all, held{expires: expires, Lease: registry.Lease{
			User:    id,
			Node:    tidemark.NodeID(field[1]),
			Boot:    field[2],
			Session: tidemark.SessionID(field[3]),
			Device:  tidemark.DeviceID(field[4]),
		}})
	}
	return all
}

// text returns the leases as they are stored.
func (u *user) text() string {
	parts := make([]string, len(u.leases))
	for i := range u.leases {
		l := &u.leases[i]
		parts[i] = strconv.FormatInt(l.expires, 10) + holder(l.Holder()) + string(l.Session) +
			separator + string(l.Device)
	}
	return strings.Join(parts, between)
}

// readProof returns the epoch of a proof, or nil if the text is none.
func readProof(text string) *registry.Epoch {
	crashes, incarnation, ok := strings.Cut(text, separator)
	n, err := strconv.ParseUint(crashes, 10, 64)
	if !ok || err != nil {
		return nil
	}
	return &registry.Epoch{Crashes: n, Incarnation: incarnation}
}

// proofText returns the proof as it is stored.
func (u *user) proofText() string {
	if u.proof == nil {
		return ""
	}
	return strconv.FormatUint(u.proof.Crashes, 10) + separator + u.proof.Incarnation
}

// open takes a lease, as registry.Registry says.
func (u *user) open(q *registry.LeaseRequest, now int64) registry.Opened {
	var opened registry.Opened
	kept := make([]held, 0, len(u.leases)+1)
	for _, h := range u.leases {
		//rule:R_LAST.same-device-same-session-in-postgres
		same := h.Session == q.Lease.Session && h.Device == q.Lease.Device
		//rule:R_LAST.see-other-leases-in-postgres
		opened.Others = opened.Others || !same
		if same && h.Lease != q.Lease {
			opened.Previous = h.Holder()
		}
		//rule:R_ADDR.replace-older-lease-in-postgres
		if h.Device != q.Lease.Device {
			kept = append(kept, h)
		}
	}
	//rule:R_LEASEFIRST.continue-a-lease-only-in-postgres
	if q.Continue && opened.Previous == (registry.Node{}) {
		return registry.Opened{}
	}
	u.leases = append(kept, held{q.Lease, now + q.TTL.Milliseconds()})
	opened.Leases = len(u.leases)
	//rule:R_PROOF.consume-proof-in-postgres
	opened.Proof, u.proof = u.proof, nil
	u.keep(now)
	return opened
}

// close releases a lease that is unchanged. If it was the last one, it leaves the proof. It reports
// whether the lease was there.
func (u *user) close(lease *registry.Lease, proof *registry.Epoch, now int64) bool {
	for i := range u.leases {
		//rule:R_LAST.close-held-lease-only-in-postgres
		if u.leases[i].Lease != *lease {
			continue
		}
		u.leases = append(u.leases[:i:i], u.leases[i+1:]...)
		//rule:R_LAST.no-proof-beside-another-lease-in-postgres
		if len(u.leases) == 0 && proof != nil {
			u.proof = proof
		}
		u.keep(now)
		return true
	}
	return false
}

// fate says what became of a lease that is refreshed.
type fate int

const (
	prolonged fate = iota
	lost
	replaced
	elsewhere
)

// prolong prolongs a lease that is unchanged until a time.
func (u *user) prolong(lease *registry.Lease, until, now int64) fate {
	is := lost
	for i := range u.leases {
		h := &u.leases[i]
		switch {
		case h.Lease == *lease:
			h.expires = until
			u.keep(now)
			return prolonged
		case h.Device == lease.Device && h.Session == lease.Session:
			is = elsewhere
		//rule:R_ADDR.moved-device-is-not-lost-in-postgres
		case h.Device == lease.Device:
			is = replaced
		}
	}
	return is
}

// keep sets until when the row is needed.
func (u *user) keep(now int64) {
	u.until = 0
	for i := range u.leases {
		u.until = max(u.until, u.leases[i].expires)
	}
	if u.proof != nil {
		u.until = max(u.until, now+ProofTTL.Milliseconds())
	}
}
