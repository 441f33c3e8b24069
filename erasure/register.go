package erasure

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/chores"
	"github.com/tidemark-im/tidemark/internal/signal"
	"github.com/tidemark-im/tidemark/storage"
)

// The kinds of the documents. A document of jobKind is named by the hash of a user. So is one of
// queueKind, which is there while the job is not done: workers look for work among these few. One
// of tombKind is named by its time and that hash, so that the latest ones are read by a range.
const (
	jobKind   = "erasure"
	queueKind = "erasing"
	tombKind  = "erased"
	keyKind   = "erasure-key"
	keyName   = "key"
)

const (
	// pollEvery is how often a node looks for tombstones of other nodes.
	pollEvery = 5 * chores.Unit
	// overlap is how much earlier than the latest tombstone it looks, because clocks differ.
	overlap = 10 * time.Minute
	// anewEvery is how often it reads all of them, in case a clock differs by more.
	anewEvery = time.Hour
	// tombsAtOnce is how many are read at once.
	tombsAtOnce = 1_000
)

// hash is a keyed hash of a user's id, in hexadecimal.
type hash string

// hashOf returns the hash of a user under a key.
func hashOf(key []byte, user tidemark.UserID) hash {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(user))
	return hash(hex.EncodeToString(h.Sum(nil)[:16]))
}

// Register knows who was erased. Create it with OpenRegister. It is safe for concurrent use.
type Register struct {
	store  storage.Documents
	ledger *Ledger
	log    *slog.Logger
	clock  func() time.Time
	// key is that of the hashes. It is stored beside them.
	key []byte
	// Wake is called by Begin.
	job chores.Job

	mu     sync.RWMutex
	erased map[hash]struct{}
	// latest is the name of the latest tombstone that was read.
	latest string
}

// OpenRegister reads who was erased. ledger may be nil.
func OpenRegister(
	ctx context.Context, store storage.Documents, ledger *Ledger, log *slog.Logger,
	clock func() time.Time,
) (*Register, error) {
	r := &Register{
		store: store, ledger: ledger, log: log, clock: clock, job: chores.New(),
		erased: map[hash]struct{}{},
	}
	var err error
	if r.key, err = keyOf(ctx, store); err != nil {
		return nil, err
	}
	return r, r.read(ctx, "")
}

// keyOf returns the key of the hashes, which the first process makes.
func keyOf(ctx context.Context, store storage.Documents) (key []byte, err error) {
	fresh := make([]byte, 32)
	_, _ = rand.Read(fresh) // never fails
	d, _, err := storage.EditDocument(ctx, store,
		storage.DocumentKey{Kind: keyKind, Name: keyName},
		func(value []byte) ([]byte, error) {
			if value != nil {
				return value, nil
			}
			return json.Marshal(fresh)
		})
	if err == nil {
		err = json.Unmarshal(d.Value, &key)
	}
	return key, tidemark.Wrap(tidemark.CodeOf(err), err, "the key of erased users cannot be read")
}

// Erased implements server.Erasures.
func (r *Register) Erased(user tidemark.UserID) error {
	r.mu.RLock()
	n := len(r.erased)
	r.mu.RUnlock()
	if n == 0 && r.ledger.empty() {
		return nil
	}
	of := hashOf(r.key, user)
	r.mu.RLock()
	_, erased := r.erased[of]
	r.mu.RUnlock()
	//rule:erased_nowhere.ledger-counts-too
	if erased || r.ledger.has(user) {
		return tidemark.Errorf(tidemark.Denied,
			"the user was erased; an id is never used again, so give the person another one")
	}
	return nil
}

// Begin records that a user is to be erased, and returns what is known of it. From then on this
// node refuses the user, and the others do within seconds. Begin may be repeated: nothing changes
// then.
//
// Errors: Invalid (the id), Unavailable.
func (r *Register) Begin(ctx context.Context, user tidemark.UserID) (Status, error) {
	if err := tidemark.CheckID("user_id", user); err != nil {
		return Status{}, err
	}
	j, err := r.begin(ctx, user, func(*job) bool { return false })
	if err != nil {
		return Status{}, err
	}
	r.job.Wake()
	return j.status(), nil
}

// begin is Begin. A job that is there is replaced if anew says so.
func (r *Register) begin(
	ctx context.Context, user tidemark.UserID, anew func(*job) bool,
) (j job, err error) {
	of := hashOf(r.key, user)
	// A crash must not leave a job that no worker finds.
	if err := r.queue(ctx, of); err != nil {
		return j, err
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	_, _, err = storage.EditDocument(ctx, r.store, jobKey(of), func(value []byte) ([]byte, error) {
		j = job{}
		if err := json.Unmarshal(value, &j); value != nil && (err != nil || !anew(&j)) {
			return value, err
		}
		now := r.millis()
		j = job{User: user, Secret: secret, Step: refusing, AskedAt: now, StepAt: now}
		return json.Marshal(j)
	})
	if err == nil && j.Step != done {
		// A worker that has read a job before it was replaced must not take the new one off.
		err = r.queue(ctx, of)
	}
	if err == nil {
		err = r.bury(ctx, of, &j)
	}
	return j, err
}

// queue makes workers look at the job of a user. The document gets another version each time, so a
// worker that takes it off has read the job after that.
func (r *Register) queue(ctx context.Context, of hash) error {
	_, _, err := storage.EditDocument(ctx, r.store,
		storage.DocumentKey{Kind: queueKind, Name: string(of)},
		func([]byte) ([]byte, error) { return json.Marshal(rand.Text()) })
	return err
}

// bury stores the tombstone of a user, unless it is there.
func (r *Register) bury(ctx context.Context, of hash, j *job) error {
	key := tombKey(of, j)
	//rule:erased_nowhere.tombstone
	_, err := r.store.PutDocument(ctx, storage.Document{
		Kind: key.Kind, Name: key.Name, Value: []byte(`{}`),
	})
	if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
		return err
	}
	r.add(of)
	return nil
}

// buried reports whether the tombstone of a user is there.
func (r *Register) buried(ctx context.Context, of hash, j *job) (bool, error) {
	found, err := r.store.DocumentsOf(ctx, []storage.DocumentKey{tombKey(of, j)})
	return err == nil && found[0].Value != nil, err
}

// add notes that a user was erased.
func (r *Register) add(of hash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.erased[of] = struct{}{}
}

// Status returns what is known of the erasure of a user. NotFound: nobody has asked for it.
func (r *Register) Status(ctx context.Context, user tidemark.UserID) (Status, error) {
	if err := tidemark.CheckID("user_id", user); err != nil {
		return Status{}, err
	}
	found, err := r.store.DocumentsOf(ctx, []storage.DocumentKey{jobKey(hashOf(r.key, user))})
	if err != nil {
		return Status{}, err
	}
	if found[0].Value == nil {
		return Status{}, tidemark.Errorf(tidemark.NotFound,
			"nobody has asked for the erasure of this user")
	}
	var j job
	if err := json.Unmarshal(found[0].Value, &j); err != nil {
		return Status{}, damaged(err)
	}
	return j.status(), nil
}

// Run reads what other nodes have begun until ctx ends.
func (r *Register) Run(ctx context.Context) {
	all := r.clock()
	for signal.Pause(ctx, pollEvery) {
		from := r.from()
		if now := r.clock(); now.Sub(all) > anewEvery {
			all, from = now, ""
		}
		if err := r.read(ctx, from); err != nil && ctx.Err() == nil {
			r.log.Warn("who was erased cannot be read; it is tried again", "error", err)
		}
	}
}

// from returns the name from which on tombstones are read.
func (r *Register) from() string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var at int64
	if _, err := fmt.Sscanf(r.latest, "%d-", &at); err != nil {
		return ""
	}
	// A node whose clock is ahead must not hide the tombstones of the others.
	at = min(at, r.millis())
	return fmt.Sprintf("%013d", max(0, at-overlap.Milliseconds()))
}

// read reads the tombstones above a name.
func (r *Register) read(ctx context.Context, after string) error {
	for more := true; more; {
		var found []storage.Document
		var err error
		found, more, err = r.store.Documents(ctx, tombKind, after, tombsAtOnce)
		if err != nil {
			return err
		}
		r.mu.Lock()
		for _, d := range found {
			after = d.Name
			r.latest = max(r.latest, d.Name)
			if len(d.Name) > 14 {
				r.erased[hash(d.Name[14:])] = struct{}{}
			}
		}
		r.mu.Unlock()
	}
	return nil
}

func (r *Register) millis() int64 { return r.clock().UnixMilli() }

func jobKey(of hash) storage.DocumentKey {
	return storage.DocumentKey{Kind: jobKind, Name: string(of)}
}

func tombKey(of hash, j *job) storage.DocumentKey {
	return storage.DocumentKey{
		Kind: tombKind, Name: fmt.Sprintf("%013d-%s", j.AskedAt, of),
	}
}

func damaged(err error) error {
	return tidemark.Wrap(tidemark.Internal, err, "the document of an erasure is damaged")
}
