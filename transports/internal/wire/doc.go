// Package wire is the one definition of what travels over the transports: the frames that WebSocket, SSE and long-poll
// send, the frames that a WebSocket client sends, and the bodies of REST requests and answers. A `send_message` frame and
// the body of POST …/messages are decoded by the same function, and so are all others that exist twice.
//
// Encoders append to a slice, use no reflection and cannot fail. Decoders return a *tidemark.Error whose detail begins
// with the name of the field that is wrong; they check form (types, texts, the range of numbers) and leave what
// needs knowledge of a chat to the core. Unknown fields are ignored; a field that is null counts as absent. All
// functions are pure and safe for concurrent use.
//
// The shapes are described in openapi.yaml. The golden files in testdata hold one example of each, which
// clients in other languages may test against too.
package wire
