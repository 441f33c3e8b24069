package access

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Record says whether a user may use the server. It is a document. A user without one may.
type Record struct {
	// Suspension is nil if the user is not suspended.
	Suspension *Suspension `json:"suspension,omitempty"`
	// ValidAfter is the time of the last sign-out, or 0. Credentials from then or before are
	// refused.
	ValidAfter tidemark.Millis `json:"valid_after,omitempty"`
}

// Suspension keeps a user out.
type Suspension struct {
	// Since is when it began, and Until when it ends. Until is 0 if it has no end.
	Since tidemark.Millis `json:"since"`
	Until tidemark.Millis `json:"until,omitempty"`
	// Reason is a text for the user, or "".
	Reason string `json:"reason,omitempty"`
}

// Lasts reports whether the user is suspended at a time. A nil Suspension does not last.
func (s *Suspension) Lasts(now time.Time) bool {
	return s != nil && (s.Until == 0 || now.UnixMilli() < int64(s.Until))
}

// refusal returns the error for a suspended user.
func (s *Suspension) refusal() error {
	detail := "you are suspended"
	if s.Until != 0 {
		until := time.UnixMilli(int64(s.Until)).UTC()
		detail += " until " + until.Format("2006-01-02T15:04:05.000Z")
	}
	if s.Reason != "" {
		detail += ": " + s.Reason
	}
	return &tidemark.Error{Code: tidemark.Denied, Detail: detail}
}

// Refusal returns nil if the user may use the server at a time, with credentials that were issued
// at another time. A sign-out does not concern credentials whose issued is zero.
//
// Errors: Unauthenticated (the credentials are from before a sign-out), Denied (the user is
// suspended).
func (r Record) Refusal(issued, now time.Time) error {
	//rule:signed_out_stays_out.refuse-older-credentials
	if r.ValidAfter != 0 && !issued.IsZero() && issued.UnixMilli() <= int64(r.ValidAfter) {
		return tidemark.Errorf(tidemark.Unauthenticated,
			"the user has signed out since these credentials were issued; get new ones")
	}
	//rule:suspended_does_nothing.refuse-while-it-lasts
	if r.Suspension.Lasts(now) {
		return r.Suspension.refusal()
	}
	return nil
}

// kinds is the number of kinds of documents over which users are spread. In some databases, a kind
// is a partition.
const kinds = 64

func keyOf(user tidemark.UserID) storage.DocumentKey {
	h := fnv.New32a()
	_, _ = h.Write([]byte(user))
	return storage.DocumentKey{
		Kind: kindOf(h.Sum32() % kinds), Name: string(user),
	}
}

// Kinds returns the kinds of the documents, whose names are users.
func Kinds() []string {
	all := make([]string, kinds)
	for n := range all {
		all[n] = kindOf(uint32(n))
	}
	return all
}

func kindOf(n uint32) string { return fmt.Sprintf("access.%d", n) }

// parse returns the record of a document, which may not exist.
func parse(value []byte) (read Record, err error) {
	if value == nil {
		return Record{}, nil
	}
	if err := json.Unmarshal(value, &read); err != nil {
		return Record{}, tidemark.Wrap(tidemark.Internal, err,
			"the document that says whether a user is suspended cannot be read")
	}
	return read, nil
}
