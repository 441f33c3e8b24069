// Package transporttest is one delivery suite, run over every adapter of the stream, against the real core on the store of the test run and
// real loopback sockets. What is owed to a client does not depend on its transport (delivery.md §3), so neither do the tests; what only one
// transport has (close codes, headers, a lost answer) is tested beside it.
//
// The test of an adapter is one line: transporttest.Run(t, transporttest.WebSocket).
package transporttest
