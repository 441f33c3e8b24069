// Package stream is what the adapters of the stream share once they have taken a connection over from net/http: its write
// side, its heartbeat, and the group of goroutines that an adapter waits for when it stops.
//
// net/http keeps two buffers, a deep stack and a background reader for each connection, about 27 KiB. A connection that is taken
// over costs its descriptor, two goroutines with small stacks, and no buffer while it is idle.
package stream
