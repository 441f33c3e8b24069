// Package lives tells the incarnations of a database apart (storage.Lives).
//
// A database stores a list of its lives, and with each the identity that it had then: what a copy
// of the data cannot have. If the identity at Open is another one, the data came from a copy, and
// a new life begins. Each message has the number of the life that stored it, so the data say
// themselves up to where an earlier life is part of this one. Nothing is written for that when a
// life begins, and a message of the first life stores nothing.
package lives

import (
	"crypto/rand"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// A Life is one life of the data.
type Life struct {
	// Number is 1 for the first life. Two lives that began from copies of the same data have the
	// same number.
	Number int64
	// ID is unlike that of any other life.
	ID tidemark.Incarnation
	// Identity is what the database was when the life began.
	Identity string
}

// idLetters is the length of an incarnation's id in characters of 5 bits.
const idLetters = 16

// Next returns the life that a database with this identity is in, and whether it is a new one that
// must be stored. all are the stored lives in their order.
func Next(all []Life, identity string) (life Life, begins bool) {
	if len(all) > 0 {
		life = all[len(all)-1]
	}
	//rule:restore_is_noticed.other-identity-is-new-life
	if life.Number > 0 && life.Identity == identity {
		return life, false
	}
	//rule:restore_is_noticed.no-two-lives-have-one-name
	id := tidemark.Incarnation(strings.ToLower(rand.Text()[:idLetters]))
	return Life{Number: life.Number + 1, ID: id, Identity: identity}, true
}

// numbersOf returns the numbers of lives by their ids.
func numbersOf(all []Life) map[tidemark.Incarnation]int64 {
	numbers := make(map[tidemark.Incarnation]int64, len(all))
	for _, life := range all {
		numbers[life.ID] = life.Number
	}
	return numbers
}

// The numbers of the lives of messages that are not there.
const (
	// Never is that of a message that does not exist. It is above all others.
	Never = int64(1) << 62
	// Expired is that of a message that has expired. It is below all others: the data say no more
	// which life it was of, and clients forget it.
	Expired = int64(0)
)

// A Message names a message.
type Message struct {
	Chat     tidemark.ChatID
	Sequence tidemark.Sequence
}

// Shared implements storage.Lives for a database with these lives. livesOf returns the number of
// the life that stored each message, or Never. The numbers of a chat's messages never fall, so
// Shared searches by halves.
func Shared(
	all []Life, claims []storage.Claim, livesOf func([]Message) ([]int64, error),
) ([]tidemark.Sequence, error) {
	shared := make([]tidemark.Sequence, len(claims))
	current, numbers := all[len(all)-1].ID, numbersOf(all)
	var old []int
	for i, c := range claims {
		switch {
		case c.Incarnation == "" || c.Incarnation == current:
			shared[i] = c.Sequence
		// A life that these data do not know left them at an unknown point.
		case numbers[c.Incarnation] > 0 && c.Sequence > 0:
			old = append(old, i)
		}
	}
	// Messages up to shared[i] are of the claim's life or earlier, those from above[i] on are not.
	// The first look is at the claimed message: mostly it is still there.
	above := make([]tidemark.Sequence, len(claims))
	look := make([]Message, 0, len(old))
	for _, i := range old {
		above[i] = claims[i].Sequence + 1
	}
	for first := true; len(old) > 0; first = false {
		look = look[:0]
		for _, i := range old {
			at := shared[i] + (above[i]-shared[i])/2
			if first {
				at = claims[i].Sequence
			}
			look = append(look, Message{Chat: claims[i].Chat, Sequence: at})
		}
		found, err := livesOf(look)
		if err != nil {
			return nil, err
		}
		left := old[:0]
		for n, i := range old {
			//rule:restore_is_noticed.later-life-is-not-shared
			if found[n] <= numbers[claims[i].Incarnation] {
				shared[i] = look[n].Sequence
			} else {
				above[i] = look[n].Sequence
			}
			if shared[i]+1 < above[i] {
				left = append(left, i)
			}
		}
		old = left
	}
	return shared, nil
}
