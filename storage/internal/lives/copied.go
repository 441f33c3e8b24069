package lives

import (
	"slices"

	"github.com/tidemark-im/tidemark"
)

// Copied returns the lives of a store into which data of some incarnations are copied, the oldest
// first. These have the numbers from 1 on, and those of the store follow. It may be called again
// with its own result.
func Copied(own []Life, of []tidemark.Incarnation) []Life {
	all := make([]Life, 0, len(of)+len(own))
	for _, id := range of {
		all = append(all, Life{ID: id})
	}
	for _, life := range own {
		//rule:copy_equal.lives-of-the-source-come-first
		if !slices.Contains(of, life.ID) {
			all = append(all, life)
		}
	}
	for i := range all {
		all[i].Number = int64(i) + 1
	}
	return all
}

// IDs returns the ids of lives, in their order.
func IDs(all []Life) []tidemark.Incarnation {
	ids := make([]tidemark.Incarnation, len(all))
	for i, life := range all {
		ids[i] = life.ID
	}
	return ids
}
