// Package reach delivers what happens in chats to outlets: to webhooks, topics of Kafka, and
// pushers. It stands beside the core, which imports none of it.
//
// An Engine runs in each process. The processes share the chats by shards (processes.go). For each
// chat with news (storage.Outbox), one of them reads the news and delivers it to all outlets at
// once (tasks.go, round.go). An outlet that does not accept them in time gets a backlog of its own
// for the chat. Its backlogs are worked off beside, so the others do not wait for it.
//
// What is promised, for each outlet and chat:
//
//   - Each event is accepted at least once, unless it is parked. A repetition has the same id.
//   - A message is accepted for the first time after all earlier ones.
//   - Of the changes of a chat's name and of a member, the last one comes. Others may be left out.
//   - The last state of a member's watermarks comes, if the outlet wants receipts (ahead.go,
//     receipts.go).
//   - If a member of a chat that is not Large misses messages, the event of the first one comes, if
//     the outlet wants it (pending.go).
//   - A notice about another outlet comes at least once (notices.go).
//
// Nothing is promised about the order between chats.
//
// The rules are those of docs/internals/verification: R_ALWAYS and R_CLEAR are the store's. The
// engine keeps R_FRESH and R_OWED (round), R_LIST (Engine.trust, Engine.advance), R_AHEAD (ahead)
// and R_QUIET (mark.quiet).
package reach
