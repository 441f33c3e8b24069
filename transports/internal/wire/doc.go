// Package wire defines what travels over the transports. That is the frames that WebSocket, SSE and
// long-poll send, the frames that a WebSocket client sends, and the bodies of REST. A
// `send_message` frame and the body of POST …/messages share one decoder, and so does every other
// pair.
//
// Encoders append to a slice, use no reflection and cannot fail. Decoders return a *tidemark.Error
// whose detail begins with the name of the wrong field. They check form: types, texts and the range
// of numbers. What depends on a chat is up to the core. Decoders ignore unknown fields, and a null
// field counts as absent. All functions are pure and safe for concurrent use.
//
// openapi.yaml describes the shapes. The golden files in testdata hold an example of each, for
// clients in any language to test against.
package wire
