package presence

import (
	"context"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
)

const (
	// maxAbsences is how many users who left wait until they count as absent. The time of further
	// ones is not written.
	maxAbsences = 100_000
	// absencesPerSecond is how many of them are looked up and written in a second.
	absencesPerSecond = 500
	// writers write times side by side. Stores share their commits.
	writers = 16
)

// absence is a user who left this node. If they have no session anywhere when it is due, at is
// written.
type absence struct {
	user tidemark.UserID
	at   tidemark.Millis
	due  time.Time
}

// absences has the users who left, by when they are due.
type absences struct {
	queue []absence
	// latest has the last absence of each user in queue.
	latest map[tidemark.UserID]absence
}

func newAbsences() absences { return absences{latest: make(map[tidemark.UserID]absence)} }

// begin remembers users who left. It returns how many there was no room for.
func (a *absences) begin(left []tidemark.UserID, at tidemark.Millis, now time.Time) (lost int) {
	for _, user := range left {
		if len(a.queue) >= maxAbsences {
			lost++
			continue
		}
		one := absence{user, at, now.Add(lingers)}
		a.queue = append(a.queue, one)
		a.latest[user] = one
	}
	return lost
}

// due removes and returns the users who are due, and when they left.
func (a *absences) due(now time.Time) (users []tidemark.UserID, at []tidemark.Millis) {
	n := 0
	for n < len(a.queue) && len(users) < absencesPerSecond && !now.Before(a.queue[n].due) {
		one := a.queue[n]
		//rule:presence_linear.one-write-for-an-absence
		if a.latest[one.user] == one {
			users, at = append(users, one.user), append(at, one.at)
			delete(a.latest, one.user)
		}
		n++
	}
	a.queue = a.queue[n:]
	return users, at
}

// noteAbsent writes when users were last seen who have not come back. Each absence costs one write.
func (p *Presence) noteAbsent(ctx context.Context, now time.Time) {
	p.mu.Lock()
	users, at := p.absences.due(now)
	p.mu.Unlock()
	if len(users) == 0 {
		return
	}
	leases, certain := p.cfg.Leases.Lookup(ctx, users)
	if !certain {
		p.Count.Unseen.Add(int64(len(users)))
		return
	}
	var group sync.WaitGroup
	for w := range min(writers, len(users)) {
		group.Go(func() {
			for i := w; i < len(users); i += writers {
				if len(leases[i]) == 0 {
					p.see(ctx, users[i], at[i])
				}
			}
		})
	}
	group.Wait()
}

func (p *Presence) see(ctx context.Context, user tidemark.UserID, at tidemark.Millis) {
	wrote, err := p.profiles.see(ctx, user, at)
	switch {
	case err != nil:
		p.Count.Unseen.Add(1)
		p.cfg.Log.Warn("the time when a user was last seen was not written", "error", err)
	case wrote:
		p.Count.Seen.Add(1)
	}
}
