package stream

import (
	"errors"
	"net/http"
	"time"
)

// NewResponse returns a Conn for an answer that net/http writes.
func NewResponse(w http.ResponseWriter) Conn {
	return &response{w: w, control: http.NewResponseController(w)}
}

// response is a Conn that writes through net/http, where one connection may carry several streams.
type response struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// Write implements Conn. It flushes, so that each batch leaves at once.
func (r *response) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, r.control.Flush()
}

// SetWriteDeadline implements Conn.
func (r *response) SetWriteDeadline(t time.Time) error {
	if err := r.control.SetWriteDeadline(t); !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// Close implements Conn. It does nothing: the stream ends when the handler returns.
func (r *response) Close() error { return nil }
