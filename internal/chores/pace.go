//go:build !quickjobs

package chores

import "time"

// Unit is in what background jobs count their waits: a second. The tests of kills use a program in
// which it is shorter (quickjobs).
const Unit = time.Second

// ClaimFor is for how long a process has a piece of work for itself, after it has said so.
const ClaimFor = 5 * time.Minute

// Again is when a job repeats what it had to leave out.
const Again = 10 * time.Minute

// Day is the time between the beginnings of two passes over all chats.
const Day = 24 * time.Hour
