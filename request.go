package tidemark

import "context"

// requestIDKey is where a context carries a request id.
type requestIDKey struct{}

// WithRequestID returns a context that carries the id of the request it serves: X-Request-ID of an HTTP request, request_id of a frame. It goes with
// the request through every layer, detached contexts included, so that an error of the storage can be found from the answer that it led to. What
// is done for many requests at once, such as the writing of coalesced acknowledgements, has none.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestIDOf returns the id that a context carries, or "".
func RequestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
