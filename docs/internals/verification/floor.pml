/*
 * Old messages expire: what is below the floor of a chat is gone, and nothing else is.
 *
 * One chat. It has messages 1 and 2, and gets message 3 at any time. Message 2 is a relation whose
 * target is message 1. Which messages are old is arbitrary, because the clocks of nodes differ.
 * Sweepers look for old messages from the floor on, raise the floor, and then delete what is below
 * it, one message in a step. Two run, and each may die at any point. An operator may place a
 * hold. A reader reads one row after another, since not every store has snapshots.
 *
 * What holds:
 *   - a message that a reader does not find is below the floor that they read;
 *   - a reader gets nothing that was below the floor when they began to read;
 *   - only old messages expire, and none that was at or above the floor when a hold was placed;
 *   - a client that repeats a send whose message has expired stores no second one.
 *
 *   spin -a floor.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m300000
 */

/* The floor rises before anything below it is deleted. */
#ifndef R_FIRST
#define R_FIRST 1
#endif
/* A reader reads the rows and the targets of relations before the floor. */
#ifndef R_ROWSFIRST
#define R_ROWSFIRST 1
#endif
/* A reader leaves out what is below the floor, although its row may still be there. */
#ifndef R_HIDE
#define R_HIDE 1
#endif
/* The step that raises the floor checks that there is no hold. */
#ifndef R_HOLD
#define R_HOLD 1
#endif
/* A floor never falls. */
#ifndef R_GROW
#define R_GROW 1
#endif
/* A sweeper deletes below the floor that is stored, not below the one that it wanted. */
#ifndef R_BELOW
#define R_BELOW 1
#endif
/* A sweeper stops at the first message that is not old. */
#ifndef R_STOP
#define R_STOP 1
#endif
/* The key of a message stays when its row is deleted. */
#ifndef R_KEY
#define R_KEY 1
#endif

#define LAST 3

/* By sequence: the row is there, the key is there, the message is old. */
bool row[5], key[5], old[5];
byte head = 2, floor = 1;
/* From which message on the hold keeps all, or 0. */
byte held;
bool twice;

/* A sweep that may end at any point. Ages do not change, so it reads them in one step. */
proctype Sweeper() {
	byte to, at, until, seen;
	bool may;
	/* It looks for the new floor. */
	atomic {
		to = floor;
		do
		:: to <= head && old[to] -> to++
		:: to <= head && !old[to] && !R_STOP && to < head && old[to + 1] -> to = to + 2
		:: else -> break
		od;
		may = (held == 0);
		at = floor;
		seen = floor
	}
	if
	:: skip
	:: goto dead
	fi;
	if
	:: !R_FIRST -> goto delete
	:: else
	fi;
raise:
	atomic {
		if
		:: R_HOLD -> may = (held == 0)
		:: else
		fi;
		if
		:: may && (to > floor || !R_GROW) -> floor = to
		:: else
		fi;
		seen = floor
	}
	if
	:: skip
	:: goto dead
	fi;
	if
	:: !R_FIRST -> goto dead
	:: else
	fi;
delete:
	at = 1;
	do
	:: atomic { /* the lowest row that is there, if it is below the floor */
			until = (R_BELOW && R_FIRST -> floor : to);
			do
			:: at < until && !row[at] -> at++
			:: else -> break
			od;
			if
			:: at < until ->
				row[at] = 0;
				if
				:: !R_KEY -> key[at] = 0
				:: else
				fi
			:: else -> break
			fi
		}
	:: goto dead
	od;
	if
	:: !R_FIRST && may -> goto raise
	:: else
	fi;
dead:
	skip
}

proctype Appender() {
	atomic { head = LAST; row[LAST] = 1; key[LAST] = 1 }
}

/* The client of message 1 got no answer, and sends it again. */
proctype Resend() {
	atomic {
		if
		:: key[1]
		:: else -> twice = 1
		fi
	}
}

proctype Hold() {
	if
	:: atomic { held = floor }
	:: skip
	fi
}

/* Reads the chat from its beginning, one row in a step, and message 1 again as a target. */
proctype Reader() {
	bool got[5], target;
	byte n, to, begun, below;
	atomic {
		to = head;
		begun = floor;
		below = floor
	}
	n = 1;
	do
	:: n <= to ->
		atomic { got[n] = row[n]; n++ }
	:: else -> break
	od;
	target = row[1];
	if
	:: R_ROWSFIRST -> below = floor
	:: else
	fi;
	atomic {
		n = 1;
		do
		:: n <= to ->
			/* Missing, and not expired: the store is damaged. */
			assert(got[n] || n < below);
			/* It is answered, although it had expired. */
			assert(!got[n] || n >= begun || (R_HIDE && n < below));
			n++
		:: else -> break
		od;
		/* The relation is answered without its target only if that has expired. */
		assert(!got[2] || (R_HIDE && 2 < below) || target || 1 < below)
	}
}

init {
	byte n;
	atomic {
		row[1] = 1; row[2] = 1; key[1] = 1; key[2] = 1;
		n = 1;
		do
		:: n <= LAST ->
			if
			:: old[n] = 1
			:: skip
			fi;
			n++
		:: else -> break
		od;
		run Sweeper(); run Sweeper(); run Appender(); run Resend(); run Hold(); run Reader()
	}
	atomic {
		_nr_pr == 1;
		assert(!twice);
		n = 1;
		do
		:: n <= head ->
			/* What is gone was old, and so was all before it. */
			assert(row[n] || n < floor);
			assert(n >= floor || old[n]);
			/* The hold keeps what was there. */
			assert(held == 0 || n < held || (row[n] && n >= floor));
			n++
		:: else -> break
		od
	}
}
