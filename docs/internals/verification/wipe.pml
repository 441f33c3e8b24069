/*
 * After a redaction, no node serves the text from memory.
 *
 * One chat. Message 1 has the text, and is carried to both nodes, as late as it likes. Then node A
 * stores a relation that removes the text, and tells the nodes that it knows. Node B may be new, so
 * that A does not know it yet. It may be cut off, and comes back. Telling it may fail. A may be cut
 * off, and it may die between storing and telling. Nodes may forget the chat at any time.
 *
 * What holds: when A has told everybody that it knows, or has died, and when each node that takes
 * part knows the latest epoch, no node serves the text from memory. A node that reads from storage
 * gets what is stored, so the model has memory only, and what comes into it.
 *
 *   spin -a wipe.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m300000
 */

/* A node takes no message from before the relation that it knows of. */
#ifndef R_FLOOR
#define R_FLOOR 1
#endif
/* A node that learns of the relation drops what it has. */
#ifndef R_DROP
#define R_DROP 1
#endif
/* A node remembers the relation for as long as a message may be late. */
#ifndef R_REMEMBER
#define R_REMEMBER 1
#endif
/* A node that could not tell another one joins again, which raises the epoch. Or it complains about
 * the other one in the registry, and the next heartbeat of that one finds the complaint. */
#ifndef R_REJOIN
#define R_REJOIN 1
#endif
/* A higher epoch makes each node drop what it has. */
#ifndef R_EPOCH
#define R_EPOCH 1
#endif
/* A node keeps nothing while others may not know it. */
#ifndef R_KEEP
#define R_KEEP 1
#endif
/* A node takes no message that was stored before its term. A term begins when the node begins to
 * rely on being told, or drops everything. In the first minute of a term, the code knows this only
 * of messages that follow one which it stored in the term, or the end of the chat as it read it.
 * Later no message from before the term arrives. */
#ifndef R_YOUNG
#define R_YOUNG 1
#endif
/* A node takes from storage only what it began to read in its term. */
#ifndef R_TERM
#define R_TERM 1
#endif
/* A node serves nothing from memory after its lease has ended. */
#ifndef R_SERVE
#define R_SERVE 1
#endif
/* A node that is cut off from the registry stores no relation: it could tell nobody, for ever. */
#ifndef R_CUT
#define R_CUT 1
#endif

#define A 0
#define B 1

/* What a node has of message 1: nothing, or its text. */
bool text[2];
/* The node knows of the relation. */
bool floor[2];
/* Message 1 is on its way to the node. */
bool late[2];
/* Other nodes know the node, and the node relies on that. A node that others do not know is not
 * told. */
bool known[2], trusts[2];
/* What the registry has, and what each node has noticed. */
byte epoch, noticed[2];
/* Message 1 was stored before the node's term. */
bool before[2];
/* The node has read the text from storage, and has not kept it yet. */
bool reads[2];
/* The node's term, and the term in which it began to read. */
byte term[2], since[2];
/* The message is stored, the relation is stored, and telling has ended. */
bool stored, related, told;
/* A complains about B in the registry. */
bool complained;
/* B cannot reach the registry. B has done all that it does. A cannot reach the registry. */
bool away, ended, cut;

inline put(n) {
	if
	:: (!floor[n] || !R_FLOOR) && (trusts[n] || !R_KEEP) && (!before[n] || !R_YOUNG) ->
		text[n] = 1
	:: else
	fi
}

inline tell(n) {
	floor[n] = 1;
	if
	:: R_DROP -> text[n] = 0
	:: else
	fi
}

/* The node that stores both, and is told nothing. It may be cut off from the registry for ever, and
 * it may die at any point from now on. */
proctype Teller() {
	if
	:: skip
	:: atomic { epoch++; trusts[A] = 0; cut = 1 }	/* its lease has ended */
	fi;
	atomic { stored = 1; late[A] = 1; late[B] = 1 }
	if
	:: atomic { cut && R_CUT -> told = 1 }	/* it refuses the relation */
	:: atomic { cut && !R_CUT -> related = 1; text[A] = 0; floor[A] = 1; told = 1 }
	:: atomic { !cut -> related = 1 }
		if
		:: atomic { epoch++; text[A] = 0; floor[A] = 1; trusts[A] = 0; told = 1 } /* it dies */
		:: atomic { tell(A) }
			if
			:: atomic { known[B] -> tell(B); told = 1 }
			:: atomic { !known[B] -> told = 1 }
			:: atomic { known[B] ->	/* the answer is lost, or the publication */
				if
				:: tell(B)
				:: skip
				fi;
				if
				:: R_REJOIN -> epoch++; told = 1
				:: R_REJOIN
				:: !R_REJOIN -> told = 1
				fi
			}
				if
				:: told
				:: atomic { !told -> complained = known[B]; told = 1 }	/* with its heartbeat */
				/* it dies */
				:: atomic { !told -> epoch++; text[A] = 0; trusts[A] = 0; told = 1 }
				fi
			fi
		fi
	fi
}

/* Message 1 reaches a node. */
proctype Carry(byte n) {
	atomic { late[n] -> put(n); late[n] = 0 }
}

/* A session of a node reads the chat. The node keeps what it has read. */
proctype Read(byte n) {
	if
	:: atomic { stored && !related && trusts[n] -> reads[n] = 1; since[n] = term[n] }
		atomic {
			if
			:: (!floor[n] || !R_FLOOR) && (trusts[n] || !R_KEEP) &&
				(term[n] == since[n] || !R_TERM) -> text[n] = 1
			:: else
			fi;
			reads[n] = 0
		}
	:: skip
	fi
}

/* A node notices an epoch. */
proctype Heartbeat(byte n) {
	do
	:: atomic { noticed[n] < epoch && !(n == B && away) ->
		noticed[n] = epoch;
		before[n] = stored;
		term[n]++;
		if
		:: R_EPOCH -> text[n] = 0
		:: else
		fi
	}
	:: atomic { n == B && complained && !away -> complained = 0; trusts[B] = 0 }
		atomic { /* it is reached again, and joins anew */
			epoch++;
			noticed[B] = epoch;
			text[B] = (text[B] && !R_EPOCH);
			trusts[B] = (known[B] && !away);
			before[B] = stored;
			term[B]++
		}
	:: atomic { ended && told && (noticed[n] == epoch && (n == A || !complained) ||
		n == B && away) -> break }
	od
}

/* A node forgets the chat. */
proctype Forget(byte n) {
	if
	:: atomic { !floor[n] || !late[n] && !reads[n] || !R_REMEMBER -> text[n] = 0; floor[n] = 0 }
	:: skip
	fi
}

/* B joins the registry, again or for the first time. Later the others know it, and still later it
 * relies on that. */
inline enter() {
	atomic {
		epoch++; noticed[B] = epoch; complained = 0;
		text[B] = (text[B] && !R_EPOCH)
	}
	atomic { known[B] = 1 }
	atomic { trusts[B] = 1; before[B] = stored; term[B]++ }
}

/* B may be cut off: it knows when its lease has ended, and the others know that later. */
proctype Life() {
	enter();
	if
	:: skip
	:: atomic { away = 1; trusts[B] = 0 }
		atomic { known[B] = 0; epoch++ }
		if
		:: skip	/* for ever */
		:: atomic { away = 0 }
			enter()
		fi
	fi;
	ended = 1
}

init {
	byte n;
	atomic { known[A] = 1; trusts[A] = 1;
		run Teller(); run Carry(A); run Carry(B); run Read(B);
		run Heartbeat(A); run Heartbeat(B);
		run Forget(A); run Forget(B); run Life()
	}
	atomic {
		_nr_pr == 1;
		n = A;
		do
		:: n <= B ->
			assert(!(related && text[n] && (trusts[n] || !R_SERVE)));
			n++
		:: else -> break
		od
	}
}
