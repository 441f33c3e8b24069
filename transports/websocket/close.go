package websocket

import "github.com/tidemark-im/tidemark"

// The close codes of the server, and what a client does when it gets one.
const (
	// CloseUnsupported: the client sent a binary frame. Do not reconnect: mend the client.
	CloseUnsupported = 1003
	// CloseInvalid: the query is malformed; the reason says how. Do not reconnect: mend the client.
	CloseInvalid = 1008
	// CloseTooLarge: a frame of more than wire.MaxBody bytes. Reconnect, and do not send it again.
	CloseTooLarge = 1009
	// CloseInternal: a bug of the server. Reconnect after a pause that grows.
	CloseInternal = 1011
	// CloseRestarting: the server stops, or cannot serve now. Reconnect and resume, after a random pause of some seconds.
	CloseRestarting = 1012
	// CloseUnauthenticated: no, bad or expired credentials. Get new ones, then reconnect and resume.
	CloseUnauthenticated = 4401
	// CloseDenied: may not connect from here. Do not reconnect.
	CloseDenied = 4403
	// CloseSilent: two pings were not answered. Reconnect and resume.
	CloseSilent = 4408
	// CloseReplaced: a newer connection owns the session. Do not reconnect by itself: the newer one would be replaced in turn.
	CloseReplaced = 4409
	// CloseTooMany: the user has too many sessions. Close one, or reconnect after a minute.
	CloseTooMany = 4429
)

// closeCode is the table from the code of an error to the one that a connection closes with. An error of a single request closes nothing.
func closeCode(code tidemark.Code) int {
	switch code {
	case tidemark.Unauthenticated:
		return CloseUnauthenticated
	case tidemark.Denied, tidemark.NotMember:
		return CloseDenied
	case tidemark.Replaced:
		return CloseReplaced
	case tidemark.Exhausted:
		return CloseTooMany
	case tidemark.TooLarge:
		return CloseTooLarge
	case tidemark.Unavailable, tidemark.Gone:
		return CloseRestarting
	case tidemark.Invalid, tidemark.InvalidSequence, tidemark.NotFound, tidemark.Conflict:
		return CloseInvalid
	default:
		return CloseInternal
	}
}

// closeReason is what the client may be told: one word where the code says it all.
func closeReason(err error) string {
	switch tidemark.CodeOf(err) {
	case tidemark.Replaced:
		return "replaced"
	case tidemark.Unavailable, tidemark.Gone:
		return "restarting"
	default:
		return tidemark.DetailOf(err)
	}
}
