package stream

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// TakeOver takes the connection of an HTTP/1 request over from net/http. ok is false if that is
// impossible: the request came by HTTP/2, or a test's recorder answers it. Then nothing has
// changed, and the handler answers as usual. If ok is true, the caller may still use w.Header,
// which middleware may have filled, and nothing else of w.
//
// It drops bytes that the client sent after the request: on these routes a client sends nothing
// more.
func TakeOver(w http.ResponseWriter, r *http.Request) (conn net.Conn, ok bool) {
	if r.ProtoMajor != 1 {
		return nil, false
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	return conn, err == nil
}

// AppendHead appends the head of an HTTP/1 answer, with the empty line that ends it. The head has
// the status, the date, the fields of h, and `Connection: close` unless h has another. The version
// is 1.1 whatever the request's was (RFC 9110 §2.5). A client of 1.0 understands the head if h has
// no Transfer-Encoding.
func AppendHead(b []byte, status int, h http.Header) []byte {
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(status)...)
	b = append(b, "\r\nDate: "...)
	b = time.Now().UTC().AppendFormat(b, http.TimeFormat)
	b = append(b, "\r\n"...)
	if h["Connection"] == nil {
		b = append(b, "Connection: close\r\n"...)
	}
	for name, values := range h {
		//rule:caller_does_only_what_they_may.copy-all-headers
		for _, v := range values {
			b = append(b, name...)
			b = append(b, ": "...)
			b = append(b, oneLine(v)...)
			b = append(b, "\r\n"...)
		}
	}
	return append(b, "\r\n"...)
}

// oneLine replaces line breaks, so that a value cannot add lines to a head.
func oneLine(v string) string {
	if !strings.ContainsAny(v, "\r\n") {
		return v
	}
	//rule:bounded_input.header-without-line-breaks
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(v)
}
