// Package erasure forgets users: it erases what is stored of them, and exports it.
//
// A Register knows who was erased, on each node. Register.Begin stores a document for the job, and
// a tombstone that the other nodes find within seconds. Both are named by a keyed hash of the
// user's id, so nothing names the user when the job has ended. From the tombstone on, nodes refuse
// the credentials of the user, and every request that names them.
//
// A Worker does the job in steps:
//
//	step            what it does                                              then
//	refusing        waits until every node knows the tombstone                wiping
//	wiping          ends sessions, forgets settings, goes through the audit
//	                log and all chats                                         settling
//	settling        waits for acknowledgements that were under way            wiping again
//	wiping again    as wiping: it finds what was written meanwhile. Then it
//	                removes all files of the user                             recording
//	recording       writes the ledger                                         done
//	done            the document has neither the id nor the secret
//
// A step may be repeated as a whole, so a process may end at any moment: another one goes on. The
// document has a secret from which the alias of each chat is derived. A pass that is repeated gives
// a chat the same alias. When the secret is gone, nobody can tell which aliases are of one user.
//
// When the messages of a chat are wiped, a redaction names them, so that devices drop them at once
// (Core.AnnounceErased). It is of the alias, and reads nothing and notifies nobody.
//
// If chats are on hold, the job waits in its step, and its Status says for how many.
package erasure
