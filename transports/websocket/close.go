package websocket

import (
	"fmt"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
)

// The close codes of the server, and what a client does on each.
const (
	// CloseUnsupported: the client sent a binary frame. Do not reconnect: fix the client.
	CloseUnsupported = 1003
	// CloseNotText: a text frame was not UTF-8 (RFC 6455 §8.1). Do not reconnect: fix the client.
	CloseNotText = 1007
	// CloseInvalid: the query is malformed; the reason says how. Do not reconnect: fix the client.
	CloseInvalid = 1008
	// CloseTooLarge: a frame was larger than wire.MaxBody bytes. Reconnect, and do not send it
	// again.
	CloseTooLarge = 1009
	// CloseInternal: the server has a bug. Reconnect after a growing pause.
	CloseInternal = 1011
	// CloseRestarting: the server stops or cannot serve now. Reconnect and resume after a random
	// pause of some seconds.
	CloseRestarting = 1012
	// CloseBusy: too many clients are connecting. Reconnect after the time in the reason.
	CloseBusy = 1013
	// CloseUnauthenticated: the credentials are missing, wrong or expired. Get new ones, then
	// reconnect and resume.
	CloseUnauthenticated = 4401
	// CloseDenied: the client may not connect from here. Do not reconnect.
	CloseDenied = 4403
	// CloseSilent: two pings were not answered. Reconnect and resume.
	CloseSilent = 4408
	// CloseReplaced: a newer connection owns the session. Do not reconnect automatically, which
	// would replace that one in turn.
	CloseReplaced = 4409
	// CloseTooMany: the user has too many sessions. Close one, or reconnect after a minute.
	CloseTooMany = 4429
)

// closeCode returns the close code for an error that ends a connection. An error of a single
// request does not end it.
func closeCode(err error) int {
	switch tidemark.CodeOf(err) {
	case tidemark.Unauthenticated:
		//rule:credentials_end.code-of-credentials
		return CloseUnauthenticated
	case tidemark.Denied, tidemark.NotMember:
		return CloseDenied
	case tidemark.Replaced:
		//rule:resume_lossless.code-of-newer-connection
		return CloseReplaced
	case tidemark.Exhausted:
		//rule:bounded_use.code-of-too-many
		return CloseTooMany
	case tidemark.TooLarge:
		return CloseTooLarge
	case tidemark.Unavailable, tidemark.Gone:
		if problem.Delay(err) > 0 {
			return CloseBusy
		}
		return CloseRestarting
	case tidemark.Invalid, tidemark.InvalidSequence, tidemark.NotFound, tidemark.Conflict,
		tidemark.Expired:
		return CloseInvalid
	default:
		return CloseInternal
	}
}

// closeReason returns the reason of a close frame. It is a word if the code says it all. It has the
// time to retry after, if that is known.
func closeReason(err error) string {
	delay := problem.Delay(err)
	switch code := tidemark.CodeOf(err); {
	case code == tidemark.Replaced:
		return "replaced"
	case code == tidemark.Unavailable && delay > 0:
		return withDelay("busy", delay)
	case code == tidemark.Unavailable, code == tidemark.Gone:
		return "restarting"
	default:
		return withDelay(tidemark.DetailOf(err), delay)
	}
}

// withDelay adds the time to retry after to a reason, in the words of HTTP: "restarting;
// retry-after=2.4". It cuts the reason if the whole is too long.
func withDelay(reason string, delay time.Duration) string {
	if delay <= 0 {
		return reason
	}
	const mostDigits = 16
	if most := maxReason - len("; retry-after=") - mostDigits; len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "")
	}
	return fmt.Sprintf("%s; retry-after=%.1f", reason, delay.Seconds())
}
