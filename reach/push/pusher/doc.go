// Package pusher is the outlet that notifies the devices of those who are away. The engine (reach)
// brings it each message. It decides who is to be told, and gives the notifications to the queues
// of the providers.
//
// A message waits some seconds before anybody is told (due.go): most are read by then. It is owed
// until each queue has done with it. So a crash loses no banner, but may repeat one, which takes
// the place of the first.
//
// What a user reads on one device goes from the others (reads.go, clear.go). For that a process
// remembers what it has notified (memory.go). It is a help, and no promise: what is lost of it
// costs a banner that stays until the next one.
//
// What is promised: a notification is sent only to the devices of a user who is a member, may see
// the message, has not read it, and owns the address (rule no_push_outside_membership). It has an
// acknowledgement token only if it holds all that the token acknowledges (rule ack_token_honest).
// No banner of a message that is not read is removed (rule clear_hides_no_unread).
package pusher
