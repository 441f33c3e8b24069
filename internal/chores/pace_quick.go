//go:build quickjobs

package chores

import "time"

// In programs for tests of kills, jobs wait for a twentieth of the time, or less. No release has
// this tag. A claim ends early: two processes that do the same work do no harm.
const (
	Unit     = time.Second / 20
	ClaimFor = time.Second
	Again    = time.Second
	Day      = 2 * time.Second
)
