// Package stream is what the stream adapters share after they take a connection over from net/http.
// It has the write side, the heartbeat, and the group of goroutines for which an adapter waits when
// it stops.
//
// net/http needs about 27 KiB for each connection: two buffers, a deep stack and a background
// reader. A connection that was taken over needs its descriptor and a goroutine with a small stack.
// While it is idle it has no buffer, and no goroutine that writes.
package stream
