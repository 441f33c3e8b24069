package erasure

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/chores"
	"github.com/tidemark-im/tidemark/storage"
)

// step is how far a job has come.
type step string

// The steps, in their order (doc.go).
const (
	refusing    step = "refusing"
	wiping      step = "wiping"
	settling    step = "settling"
	wipingAgain step = "wiping_again"
	recording   step = "recording"
	done        step = "done"
)

// next returns the step after s.
func (s step) next() step {
	return map[step]step{
		refusing: wiping, wiping: settling, settling: wipingAgain, wipingAgain: recording,
		recording: done, done: done,
	}[s]
}

// rest is for how long a job rests in a step before it leaves it.
func (s step) rest() time.Duration {
	switch s {
	case refusing:
		return refuseFor
	case settling:
		//rule:erased_nowhere.wait-for-late-writes
		return settleFor
	case wiping, wipingAgain, recording, done:
	}
	return 0
}

const (
	// refuseFor is how long nodes have to read the tombstone.
	refuseFor = 30 * chores.Unit
	// settleFor is how long acknowledgements may be under way in another process.
	settleFor = 60 * chores.Unit
	// againAfter is when a pass is repeated that had to leave chats out.
	againAfter = chores.Again
)

// job is the value of a document. The times are in milliseconds since 1970, and 0 for none.
type job struct {
	// User and Secret are gone when the job is done.
	User   tidemark.UserID `json:"user,omitempty"`
	Secret []byte          `json:"secret,omitempty"`
	Step   step            `json:"step"`
	// AskedAt is when Begin was called, and StepAt when the step began.
	AskedAt int64 `json:"asked_at"`
	StepAt  int64 `json:"step_at"`
	// ClaimedUntil is when another process may take the job over. RestUntil is when a pass is
	// repeated.
	ClaimedUntil int64 `json:"claimed_until,omitempty"`
	RestUntil    int64 `json:"rest_until,omitempty"`
	// After is the position of the pass among all chats. Held and Left are the chats that it had to
	// leave out: those on hold, and others.
	After tidemark.ChatID `json:"after,omitempty"`
	Held  int             `json:"held,omitempty"`
	Left  int             `json:"left,omitempty"`
	// Entry is the position of the step in the audit log. A pass that is repeated keeps it: the
	// entries above it name the user no more.
	//rule:erased_nowhere.go-on-in-the-audit-log
	Entry storage.AuditID `json:"entry,omitempty"`
	// Chats, Wiped and Renamed count what the job has done.
	Chats   int `json:"chats"`
	Wiped   int `json:"wiped"`
	Renamed int `json:"renamed"`
}

// alias returns what takes the place of the user's id in a chat.
func (j *job) alias(chat tidemark.ChatID) tidemark.UserID {
	//rule:erased_nowhere.another-alias-in-each-chat
	h := hmac.New(sha256.New, j.Secret)
	h.Write([]byte(chat))
	return tidemark.ErasedID(hex.EncodeToString(h.Sum(nil)[:16]))
}

// announcement returns the idempotency key under which a part of the wiped messages of a chat is
// announced.
func (j *job) announcement(chat tidemark.ChatID, wiped []tidemark.Sequence) string {
	h := hmac.New(sha256.New, j.Secret)
	//rule:erasure_is_announced.key-of-what-is-named
	fmt.Fprintln(h, chat, wiped)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// advance moves the job to its next step. At the end it forgets who was erased.
func (j *job) advance(now int64) {
	// Each pass reads all chats and the whole audit log: a node may have written late.
	//rule:erased_nowhere.audit-log-in-both-passes
	*j = job{
		User: j.User, Secret: j.Secret, Step: j.Step.next(), AskedAt: j.AskedAt, StepAt: now,
		Chats: j.Chats, Wiped: j.Wiped, Renamed: j.Renamed,
	}
	if j.Step == done {
		//rule:erased_nowhere.forget-the-mapping
		j.User, j.Secret = "", nil
	}
}

// Status says how far an erasure has come. The counts are what was found: if a process ended in the
// middle of a page of chats, what it did there is not counted.
type Status struct {
	// State is erasing, waiting (HeldChats are on hold) or erased.
	State string
	// Step is that of the job (doc.go).
	Step string
	// AskedAt is when the erasure was asked for, and CompletedAt when it ended, or zero.
	AskedAt, CompletedAt time.Time
	// HeldChats is how many chats keep the job waiting because they are on hold.
	HeldChats int
	// Chats is how many chats had something of the user. MessagesWiped is how many messages say
	// nothing any more, and MessagesRenamed how many others named the user.
	Chats, MessagesWiped, MessagesRenamed int
}

func (j *job) status() Status {
	s := Status{
		State: "erasing", Step: string(j.Step), AskedAt: time.UnixMilli(j.AskedAt).UTC(),
		HeldChats: j.Held, Chats: j.Chats, MessagesWiped: j.Wiped, MessagesRenamed: j.Renamed,
	}
	switch {
	case j.Step == done:
		s.State, s.CompletedAt = "erased", time.UnixMilli(j.StepAt).UTC()
	//rule:held_is_kept.wait-only-after-a-whole-pass
	case j.Held > 0 && j.RestUntil != 0:
		s.State = "waiting"
	}
	return s
}
