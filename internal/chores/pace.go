//go:build !quickjobs

package chores

import "time"

// Second is a second of all background jobs: what they wait for is counted in it. The tests of
// kills use a program in which it is shorter (quickjobs).
const Second = time.Second

// ClaimFor is for how long a process has a piece of work for itself, after it has said so.
const ClaimFor = 5 * time.Minute

// Again is when a job repeats what it had to leave out.
const Again = 10 * time.Minute

// Day is the time between the beginnings of two passes over all chats.
const Day = 24 * time.Hour
