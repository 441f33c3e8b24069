package tidemark

import (
	"context"
	"errors"
	"fmt"
)

// Code says what kind of failure an Error is.
// Each adapter has exactly one table that maps a Code to a status or a close code.
type Code string

// The codes. They are also the `code` values on the wire, unless an adapter's table says otherwise.
const (
	// NotFound: the chat, session or device does not exist.
	NotFound Code = "NOT_FOUND"
	// NotMember: the user is not a member of the chat (ADR-008 Appendix F).
	NotMember Code = "NOT_A_MEMBER"
	// Invalid: the input is malformed. Detail says what is wrong and how to correct it.
	Invalid Code = "INVALID"
	// TooLarge: the input exceeds a size limit. Detail names the limit.
	TooLarge Code = "TOO_LARGE"
	// InvalidSequence: a sequence is 0, or above the chat's head (ADR-008 Appendix F.2).
	InvalidSequence Code = "INVALID_SEQUENCE"
	// Conflict: the id already belongs to something else.
	Conflict Code = "CONFLICT"
	// Expired: the message was not stored before its Draft.SendBy, and never will be.
	Expired Code = "EXPIRED"
	// Unauthenticated: the credentials are missing or not valid.
	Unauthenticated Code = "UNAUTHENTICATED"
	// Denied: the caller is authenticated, but is not allowed to do this.
	Denied Code = "DENIED"
	// Exhausted: a limit on rate or number is reached. Try again later.
	Exhausted Code = "RATE_LIMITED"
	// Gone: the session has ended, or never existed.
	Gone Code = "SESSION_GONE"
	// Replaced: a newer connection owns the session.
	Replaced Code = "REPLACED"
	// Unavailable: the server is stopping, or cannot reach the storage or the registry.
	// Nothing was lost. Try again.
	Unavailable Code = "UNAVAILABLE"
	// Internal: a bug in the server.
	Internal Code = "INTERNAL"
)

// Error is the only error type that packages of Tidemark return to each other.
type Error struct {
	Code Code
	// Detail is one sentence that a person can act on. It contains no secret and no message text.
	Detail string
	// Param is the field, query parameter or header that is at fault, or "" if none is. An element
	// of a list has its index: chats[3].chat_id.
	Param string
	// Err is the cause, for logs. It never reaches a client.
	Err error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Detail, e.Err)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Detail)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error with a formatted detail.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// BadParam returns an Error about one parameter. Its detail begins with the parameter's name.
func BadParam(code Code, param, format string, args ...any) *Error {
	return &Error{Code: code, Detail: param + " " + fmt.Sprintf(format, args...), Param: param}
}

// Wrap returns an Error around a cause, or nil if the cause is nil.
func Wrap(code Code, err error, detail string) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Detail: detail, Err: err}
}

// CodeOf returns the code of the first Error in the chain of err, or "" if err is nil. For any
// other error it returns Unavailable if a context was cancelled or timed out, else Internal.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Unavailable
	default:
		return Internal
	}
}

// DetailOf returns the part of err that a client may see.
func DetailOf(err error) string {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Detail
	case CodeOf(err) == Unavailable:
		return "the request ran out of time; try again"
	default:
		//rule:nothing_leaks.hide-internal-cause
		return "the server failed to handle the request; quote the request_id when you report it"
	}
}

// ParamOf returns the parameter that err is about, or "" if it is about none.
func ParamOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Param
	}
	return ""
}
