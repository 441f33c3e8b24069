// Package postgres stores in Postgres what several nodes without Redis share about their callers:
// tickets (Tickets), and how much of their rates users took (Rates). The tables are unlogged.
// Nothing here concerns messages. If the database crashes, some clients need a new ticket, and some
// users may send one burst more.
package postgres
