package wire

import (
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server"
)

// DecodeSuspension decodes the body of PUT /users/{user_id}/suspension. ends is zero if the
// suspension has no end.
func DecodeSuspension(raw []byte) (ends time.Time, reason string, err error) {
	if err := check(raw); err != nil {
		return ends, reason, err
	}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		switch key {
		case "ends_at":
			return v.time(key, &ends)
		case "reason":
			return v.text(key, &reason)
		}
		return nil
	})
	return ends, reason, err
}

// AppendSuspension appends the answer to GET and PUT /users/{user_id}/suspension.
func AppendSuspension(b []byte, user tidemark.UserID, s server.Suspension) []byte {
	b = append(b, `{"user_id":`...)
	b = tidemark.AppendString(b, string(user))
	if !s.Suspended {
		return append(b, `,"suspended":false,"suspended_at":null,"ends_at":null,"reason":null}`...)
	}
	b = append(b, `,"suspended":true,"suspended_at":`...)
	b = tidemark.AppendTime(b, s.Since)
	b = append(b, `,"ends_at":`...)
	if s.Until.IsZero() {
		b = append(b, "null"...)
	} else {
		b = tidemark.AppendTime(b, s.Until)
	}
	b = append(b, `,"reason":`...)
	if s.Reason == "" {
		return append(b, "null}"...)
	}
	return append(tidemark.AppendString(b, s.Reason), '}')
}

// AppendSignOut appends the answer to a sign-out.
func AppendSignOut(b []byte, user tidemark.UserID, at time.Time) []byte {
	b = append(b, `{"user_id":`...)
	b = tidemark.AppendString(b, string(user))
	b = append(b, `,"signed_out_at":`...)
	return append(tidemark.AppendTime(b, at), '}')
}
