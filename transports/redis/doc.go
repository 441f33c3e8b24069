// Package redis keeps in Redis what several nodes share for their callers: tickets (Tickets), and how much users took of their rates (Rates). Each call is one
// script on one key, so that a cluster can spread them. Nothing here is a fact about messages: if Redis loses it, some ask for a ticket again, and some may send
// a burst more.
package redis
