// Package transports is the HTTP face of Tidemark: it mounts the adapters, and beside them health, metrics, the API's
// description and the page.
//
// # The adapters
//
// An adapter turns one transport into calls of the delivery core, and nothing else. rest decodes a body, calls one method
// of server.Server and writes the answer; it never opens a session. websocket, sse and longpoll are streams; a fourth one would look
// like them:
//
//  1. Authenticate: auth.Authenticator.Stream takes the Authorization header or a ticket. An error is answered in the transport's
//     way: an HTTP status by returning it (package problem does the rest), or a close code.
//  2. Open: wire.OpenQuery reads the parameters that all streams share; server.Server.Open gives a *server.Connection. Tell
//     auth.Authenticator.Bind which session it is, and Leave when the connection has ended.
//  3. Write: call Next until it fails, append the events to a buffer by the functions of package wire, and write the buffer
//     with a deadline, many events at once. Payloads are shared by all sessions and must not be changed.
//  4. Read: wire.DecodeFrame, then Ack, Send, Sync or Typing of the connection.
//  5. End: Detach when the connection broke, so that the session waits for another one; Close when the client said
//     goodbye. A Replaced error means that a newer connection owns the session; tell the client not to come back by itself.
//
// An adapter that takes connections over from net/http ends them itself when the server stops: http.Server.Shutdown does not see
// them. One that does not is told by the request's context, which ends when the shutdown begins.
//
// Adapters import server and the packages below internal; never storage, and never each other.
package transports
