// Package transports serves Tidemark over HTTP. It mounts the adapters, health, metrics, the
// description of the API, and the page.
//
// # The adapters
//
// An adapter turns one transport into calls of the delivery core, and does nothing else. rest
// decodes a body, calls one method of server.Server and writes the answer; it never opens a
// session. websocket, sse and longpoll are streams. Another stream would work like them:
//
//  1. Authenticate: auth.Authenticator.Stream takes the Authorization header or a ticket. An error
//     becomes an HTTP status if the handler returns it (package problem), or a close code.
//  2. Open: wire.ParseStream reads the query that all streams share. stream.SessionOpener opens or
//     resumes the session and returns a *server.Connection. Call auth.Authenticator.Leave when the
//     connection has ended.
//  3. Write: call Next until it fails. Append the events to a buffer with package wire, and write
//     many of them at once, with a deadline. All sessions share a payload: do not change it.
//  4. Read: call wire.DecodeFrame, and then Ack, SendAll, Sync or Typing of the connection.
//  5. End: call Detach if the connection broke, so that the session waits for another one. Call
//     Close if the client ended the session. After a Replaced error a newer connection owns the
//     session: tell the client not to reconnect automatically.
//
// An adapter that takes connections over from net/http must end them when the server stops, because
// http.Server.Shutdown does not see them. For any other adapter, the request's context ends when
// the shutdown begins.
//
// Adapters import server and the packages below internal. They never import storage or each other.
package transports
