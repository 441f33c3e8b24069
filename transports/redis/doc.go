// Package redis stores in Redis what several nodes share about their callers: tickets (Tickets),
// and how much of their rates users took (Rates). Each call is one script on one key, so that a
// cluster can spread the keys. Nothing here concerns messages. If Redis loses it, some clients need
// a new ticket, and some users may send one burst more.
package redis
