// Package transporttest is the delivery suite that every stream adapter runs. It uses the real
// core, the store of the test run, and real loopback sockets. What the server sends does not depend
// on the transport (delivery.md §3), and so neither do the tests. What only one transport has, such
// as close codes, is tested in that transport's package.
//
// The test of an adapter is one line: transporttest.Run(t, transporttest.WebSocket()).
package transporttest
