/*
 * A node that remembers that a pending row stands does not write it again, and loses no message.
 *
 * One chat, one reader, and NODES nodes with SENDS sends each, which are handed over at once. The
 * reader comes up to VISITS times, receives, acknowledges and goes. REST times all is acknowledged
 * outside a session. Each close leaves a valid proof, so the next open lists the row and compares
 * nothing.
 *
 * A node knows of the row by its own marks only. The append tells it the version of the rows, which
 * each removal raises. Nothing else is told to a node.
 *
 * What holds: at rest, with the reader away, the row covers what is not acknowledged.
 *
 *   spin -a stands.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m300000
 */
#ifndef NODES
#define NODES 2
#endif
#ifndef SENDS
#define SENDS 2
#endif
#ifndef VISITS
#define VISITS 1
#endif
#ifndef REST
#define REST 1
#endif

/* A removal of the row raises the version. */
#ifndef R_COUNT
#define R_COUNT 1
#endif
/* A node that learns of a higher version forgets the row. */
#ifndef R_FORGET
#define R_FORGET 1
#endif
/* A node does not remember a row of an earlier version than it knows. */
#ifndef R_ONEVERSION
#define R_ONEVERSION 1
#endif
/* A row that was marked for a later message does not cover an earlier one. */
#ifndef R_SINCE
#define R_SINCE 1
#endif
/* Clearing and the head are one step (delivery.pml). */
#ifndef R_CLEAR
#define R_CLEAR 1
#endif

/* Storage. A row of 0 is none. */
byte head, acked, row, version;
/* The lease, and that the session was notified since it last read. */
bool lease, notified;
byte got;
/* What a node knows: the row stands since a message, at a version. */
bool stands[NODES];
byte since[NODES], at[NODES];
byte left = NODES * SENDS + (REST > 0) + (VISITS > 0);

inline mark(n) {
	if
	:: row == 0 || row > n -> row = n
	:: else
	fi
}

inline clear(through, end) {
	if
	:: row != 0 && row <= through ->
		if
		:: through >= end ->
			row = 0;
			if
			:: R_COUNT -> version++
			:: else
			fi
		:: else -> row = through + 1
		fi
	:: else
	fi
}

proctype HandOver(byte node) {
	byte n, v;
	bool here, known;
	atomic { head++; n = head; v = version }
	atomic {
		if
		:: v > at[node] && R_FORGET -> at[node] = v; stands[node] = 0; since[node] = 0
		:: v > at[node] && !R_FORGET -> at[node] = v
		:: else
		fi;
		known = stands[node] && (n >= since[node] || !R_SINCE)
	}
	atomic {
		here = lease;
		notified = notified || here
	}
	if
	:: here
	:: else ->
		if
		:: known
		:: else ->
			atomic { mark(n) }
			atomic { notified = notified || lease }
			atomic {
				if
				:: v == at[node] || !R_ONEVERSION ->
					stands[node] = 1;
					if
					:: n > since[node] -> since[node] = n
					:: else
					fi
				:: else
				fi
			}
		fi
	fi;
	atomic { n = 0; v = 0; here = 0; known = 0; left-- }
}

proctype Reader() {
	byte visits, end;
	do
	:: visits == VISITS -> break
	:: visits < VISITS ->
		visits++;
		atomic { lease = 1; got = acked }
		atomic {
			if
			:: row != 0 -> got = head
			:: else
			fi
		}
		do
		:: atomic { notified -> notified = 0; got = head }
		:: atomic { got > acked -> acked = got; end = head }
			if
			:: R_CLEAR -> atomic { clear(acked, head) }
			:: else -> atomic { clear(acked, end) }
			fi
		:: break
		od;
		/* The close marks what was sent or notified, and releases the lease after that. */
		do
		:: atomic { got <= acked && !notified -> lease = 0; break }
		:: atomic { got > acked || notified ->
			mark(acked + 1); notified = 0; got = acked }
		od
	od;
	left--
}

proctype Rest() {
	byte n, times;
	do
	:: times == REST -> break
	:: times < REST ->
		times++;
		atomic {
			n = head;
			if
			:: n > acked -> acked = n
			:: else
			fi
		}
		atomic { clear(n, head) }
	od;
	left--
}

init {
	byte i, j;
	atomic {
		for (i : 0 .. NODES - 1) {
			for (j : 1 .. SENDS) { run HandOver(i) }
		}
		if
		:: VISITS > 0 -> run Reader()
		:: else
		fi;
		if
		:: REST > 0 -> run Rest()
		:: else
		fi
	}
	left == 0;
	assert(acked >= head || (row != 0 && row <= acked + 1))
}
