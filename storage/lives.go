package storage

import (
	"context"

	"github.com/tidemark-im/tidemark"
)

// Lives tells the lives of the data apart. A copy of the data that is used in place of the data,
// such as a restored backup, gives out again the sequences that it lacks. What clients have of
// those is foreign to it. So the copy begins a new incarnation.
//
// A Store has one incarnation until Close. If the database becomes another one meanwhile, later
// calls return Unavailable, and the next Open finds the new incarnation. Closing and opening the
// same data again need not change the incarnation, but it may.
type Lives interface {
	// Incarnation returns the incarnation of the data.
	Incarnation() tidemark.Incarnation

	// Shared returns for each claim up to which sequence the messages of the claim's incarnation
	// are also messages of this one, at most Claim.Sequence. For this incarnation, and for an empty
	// one, that is Claim.Sequence itself, also above the head. For an incarnation that the data do
	// not know it is 0. A chat may be named more than once.
	Shared(ctx context.Context, claims []Claim) ([]tidemark.Sequence, error)
}

// Claim says that a client has stored the messages of a chat up to Sequence, from the server of an
// incarnation.
type Claim struct {
	Chat        tidemark.ChatID
	Incarnation tidemark.Incarnation
	Sequence    tidemark.Sequence
}
