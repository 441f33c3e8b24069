// Package bench is the load generator behind `tidemark bench`.
//
// It drives a running server through its public API only, and checks while it measures.
// Each recipient must receive every message of a chat exactly once and strictly in order.
// Only a resumed connection may bring messages again. Otherwise the run fails.
//
// A run of p2p, group, mixed, idle or catchup has these steps:
//
//  1. Create users and chats, and connect.
//  2. Take a first snapshot of the server.
//  3. Apply the load, and wait until everything expected has arrived.
//  4. Take a second snapshot, and report the difference.
//
// A curve (RunCurve) repeats steps 2 to 4 while one thing grows, such as the members of a group.
//
// Before and after, a yardstick measures what the machine does for a fixed piece of work.
// Figures of different days compare as multiples of it.
//
// CPU is user and system time of the processes whose ids the caller names.
// The load generator's own CPU is never part of those figures, but it shares the machine.
// So its clients are thin: one connection is one goroutine and one buffer.
// They read frames and events by hand, and decode only what they check.
//
// Where to find things: Run runs a mode, which has a file of its name (pairs.go for p2p).
// RunCurve measures a curve (curve.go); what each of them does is in sweeps.go and opens.go.
// A listener reads one user's stream through internal/client.
// It feeds a checker and an acknowledger of internal/device.
// A sender keeps sends outstanding.
// internal/measure measures latencies, and the CPU and memory of processes.
// internal/yardstick and internal/postgres measure the machine. report.go prints.
package bench
