/*
 * An outlet is told every message, in order, although nobody stores who was told what.
 *
 * One chat, a log of up to MESSAGES messages, and one outlet. Outlets do not meet in the protocol:
 * another one only makes workers look for rows more often. WORKERS workers serve the chat at the
 * same time, each with what it remembers. A worker may stop anywhere: it dies, and begins anew.
 *
 * Everyone's row says from where on the chat's messages may be untold. The append writes it. If the
 * outlet does not accept a message, it gets a row of its own. A worker tells, writes that row
 * (Owe), and then removes what it has worked off (Settle).
 *
 * Budgets, 0 unless set:
 *   BORN    the outlet is not there at first
 *   REPLAY  somebody asks to tell everything again, once
 *   UNDO    the database dies, and loses a Settle
 *
 * What holds:
 *   - told_or_owed: each message was told, or a row covers it;
 *   - told_in_order: a message is told for the first time after all before it;
 *   - after a replay, each message is told again, or a row covers it.
 *
 * Each R_* is a rule; README.md says which configuration needs it. Setting one to 0 leaves it out.
 *
 *   spin -a outlet.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m300000
 */
#ifndef MESSAGES
#define MESSAGES 3
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef BORN
#define BORN 0
#endif
#ifndef REPLAY
#define REPLAY 0
#endif
#ifndef UNDO
#define UNDO 0
#endif

/* The append writes Everyone's row whether or not its node knows of an outlet. */
#ifndef R_ALWAYS
#define R_ALWAYS 1
#endif
/* Settle compares with the head in one step. */
#ifndef R_CLEAR
#define R_CLEAR 1
#endif
/* Settle leaves a row if somebody asked for a replay meanwhile. */
#ifndef R_STAMP
#define R_STAMP 1
#endif
/* A message is left to the outlet's row only by an Owe made after it was stored. */
#ifndef R_FRESH
#define R_FRESH 1
#endif
/* Settle leaves a row that is beyond what its worker saw: others have settled meanwhile. */
#ifndef R_BEYOND
#define R_BEYOND 1
#endif
/* The Owe comes before the Settle. */
#ifndef R_OWEFIRST
#define R_OWEFIRST 1
#endif
/* Settling Everyone notes whether the outlet is owed. Who begins there looks for its row first. */
#ifndef R_OWED
#define R_OWED 1
#endif
/* A worker begins at the stored row, not at the message that it was told of. */
#ifndef R_TWO
#define R_TWO 1
#endif
/* Only who works by the present list settles Everyone, and a new outlet waits for the others. */
#ifndef R_LIST
#define R_LIST 1
#endif

#define least(a, b) ((a) == 0 || ((b) != 0 && (b) < (a)) -> (b) : (a))
#define bit(n) (1 << (n))

/* The database. 0 is no row. */
byte head, first, own;
bool owed;
byte stamp;
/* The outlet is in the list; it is active. */
bool listed = !BORN, ready = !BORN;
/* A worker may settle Everyone, and by which list. */
bool permit[WORKERS] = true, list[WORKERS] = !BORN;
/* The head when the outlet became active. */
byte birth;
/* What the outlet was told, as bits, and what it was told since a replay of up to `replayed`. */
byte told, again, replayed;
/* What an undone Settle restores. */
byte wasFirst, wasOwn;
bool wasOwed, undoable;

#define due(n) (ready && (n) <= head && (n) > birth)
#define covered(n) ((first != 0 && first <= (n)) || (own != 0 && own <= (n)))

/* told_or_owed, and the same for a replay. */
inline check() {
	for (c : 1 .. MESSAGES) {
		assert(!due(c) || (told & bit(c)) || covered(c));
		assert(c > replayed || (again & bit(c)) || (own != 0 && own <= c))
	}
	c = 0
}

/* The outlet accepts a message: told_in_order. */
inline tell(n) {
	d_step {
		if
		:: !(told & bit(n)) && due(n) ->
			for (c : 1 .. n - 1) { assert(!due(c) || (told & bit(c))) }
		:: else
		fi;
		told = told | bit(n);
		again = again | bit(n);
		c = 0
	}
}

inline owe(n) { d_step { own = least(own, n); undoable = false } }

inline keep() { wasFirst = first; wasOwn = own; wasOwed = owed; undoable = true }

/* Settle raises a row above through, or removes it if nothing is beyond. */
#define settled(row) \
	((!R_CLEAR || head <= through) -> 0 : (row > through + 1 -> row : through + 1))

proctype Append() {
	byte c;
	do
	:: head < MESSAGES ->
		d_step {
			head++;
			undoable = false;
			if
			:: first == 0 && R_ALWAYS -> first = head
			:: else
			fi;
			check()
		}
	:: break
	od
}

proctype Worker(byte w) {
	byte from, through, since, seen, c;
	bool left, knows;
begin:
	atomic { from = 0; through = 0; since = 0; seen = 0; left = false; knows = false }
end_idle:
	if
	/* It beats with the present list, or has not beaten for too long. */
	:: atomic { BORN && (!permit[w] || list[w] != listed) ->
			permit[w] = true; list[w] = listed; goto begin }
	:: atomic { BORN && permit[w] -> permit[w] = false; goto begin }
	:: first != 0 -> goto everyone
	:: own != 0 -> goto outlet
	fi;

everyone:
	atomic {
		if
		:: first == 0 -> goto begin
		:: else
		fi;
		knows = list[w];
		from = (R_TWO -> first : head);
		through = from - 1;
		left = R_OWED && owed
	}
	/* It looks for the row of the outlet. */
	atomic {
		left = left && own != 0;
		since = (left -> from : 0)
	}
	do
	:: through < head ->
		if
		:: atomic { !knows || left -> through++ }
		:: atomic { knows && !left -> through++; tell(through) }
		/* The outlet does not accept it. */
		:: atomic {
				knows && !left -> through++; left = true; since = through;
				if
				:: !R_FRESH -> owe(since)
				:: else
				fi
			}
		fi
	:: atomic { through >= from -> break }
	:: goto begin
	od;
	if
	:: R_OWEFIRST && R_FRESH && left -> owe(since)
	:: else
	fi;
	if
	:: goto begin
	:: true
	fi;
	atomic {
		if
		:: first != 0 && !(R_BEYOND && first > through) &&
		   (!R_LIST || (permit[w] && list[w] == knows)) ->
			keep();
			first = settled(first);
			owed = left;
			d_step { check() }
		:: else
		fi
	}
	if
	:: !R_OWEFIRST && left ->
		if
		:: owe(since)
		:: goto begin
		fi
	:: else
	fi;
	goto begin;

outlet:
	atomic {
		if
		:: own == 0 -> goto begin
		:: else
		fi;
		from = own;
		through = from - 1;
		seen = stamp
	}
	do
	:: atomic { through < head -> through++; tell(through) }
	:: break
	:: goto begin
	od;
	atomic {
		if
		:: own != 0 && !(R_STAMP && stamp != seen) ->
			keep();
			own = settled(own);
			d_step { check() }
		:: else
		fi;
		goto begin
	}
}

/* The outlet is listed. It becomes active when all who may settle have the list. */
proctype Birth() {
	listed = true;
	atomic {
		!R_LIST || ((!permit[0] || list[0]) && (!permit[WORKERS - 1] || list[WORKERS - 1])) ->
			ready = true;
			birth = head
	}
}

proctype Replay() {
	d_step {
		again = 0;
		replayed = head;
		own = (head == 0 -> own : 1);
		stamp++;
		undoable = false
	}
}

proctype Undo() {
end_undo:
	d_step {
		undoable -> first = wasFirst; own = wasOwn; owed = wasOwed; undoable = false
	}
}

init {
	atomic {
		byte w;
		run Append();
		for (w : 0 .. WORKERS - 1) { run Worker(w) }
		if
		:: BORN -> run Birth()
		:: else
		fi;
		if
		:: REPLAY -> run Replay()
		:: else
		fi;
		if
		:: UNDO -> run Undo()
		:: else
		fi
	}
}
