package tidemark

import "context"

// requestIDKey is the key of a request id in a context.
type requestIDKey struct{}

// WithRequestID returns a context that carries the id of the request that it serves.
// The id is X-Request-ID of an HTTP request, or request_id of a frame.
// It follows the request through every layer, and through detached contexts.
// So an operator can find a storage error from the answer that it caused.
// Work for many requests at once, such as writing coalesced acknowledgements, carries no id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestIDOf returns the id that a context carries, or "".
func RequestIDOf(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
