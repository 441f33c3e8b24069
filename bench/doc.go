// Package bench is the load generator behind `tidemark bench`. It drives any running server over its public API
// only, and checks while it measures: for each recipient and chat every message must arrive exactly once and strictly in
// order (re-sends after a resumed connection excepted), or the run fails.
//
// A run of a mode (p2p, group, idle, catchup) has the same steps: create users and chats, connect, take a first Snapshot
// of the server, apply the load, wait until everything that is owed has arrived, take a second Snapshot, and report the
// difference. CPU is that of the process ids the caller names, user and system, from /proc; the load generator's
// own CPU is never part of those figures. It still shares the machine, so the clients here are thin: one connection is
// one goroutine and one buffer, frames and events are read by hand, and nothing is decoded that is not checked.
//
// To find the way: Run picks the mode (pairs.go, group.go, idle.go, catchup.go, storm.go); a listener reads one user's stream through
// internal/client, feeds a checker and an acknowledger of internal/device; a sender keeps sends outstanding; internal/measure has the latencies and what
// processes use; report.go prints.
package bench
