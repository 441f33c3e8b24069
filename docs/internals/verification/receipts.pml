/*
 * A watermark that rises is told, although the raise writes no row.
 *
 * One chat, one watermark that rises up to RAISES times, NODES nodes that raise it, and one worker.
 * A node stamps the chat's row, and may then raise the watermark for a while. The worker tells the
 * watermark once no node may raise it by the stamp that it saw, and then removes the row. Time is
 * not in the model: that a node's time is over is a step of its own, as late as it likes.
 *
 * What holds: the watermark is told, or the row stands.
 *
 *   spin -a receipts.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m300000
 */
#ifndef RAISES
#define RAISES 3
#endif
#ifndef NODES
#define NODES 2
#endif

/* A node raises a watermark only within the time of its stamp. */
#ifndef R_AHEAD
#define R_AHEAD 1
#endif
/* The worker waits until the time of every stamp that it saw is over. */
#ifndef R_QUIET
#define R_QUIET 1
#endif
/* Settle leaves a row that was stamped meanwhile. */
#ifndef R_STAMP
#define R_STAMP 1
#endif

/* The row: its stamp, 0 is no row. Stamps only grow. */
byte row, last;
byte mark, told;
/* The stamp by which a node may raise, 0 is none. */
byte by[NODES];

#define toldOrOwed (told == mark || row != 0)

proctype Node(byte n) {
end_node:
	do
	:: atomic { by[n] == 0 && last < RAISES -> last++; row = last; by[n] = last }
	:: atomic { (by[n] != 0 || !R_AHEAD) && mark < RAISES -> mark++; assert(toldOrOwed) }
	:: atomic { by[n] != 0 -> by[n] = 0 }
	od
}

proctype Worker() {
	byte seen, what;
end_worker:
	do
	:: atomic { row != 0 -> seen = row }
		if
		:: !R_QUIET
		:: (by[0] == 0 || by[0] > seen) && (by[NODES - 1] == 0 || by[NODES - 1] > seen)
		fi;
		what = mark;
		told = what;
		atomic {
			if
			:: row == seen || !R_STAMP -> row = 0; assert(toldOrOwed)
			:: else
			fi
		}
	od
}

init {
	atomic {
		byte n;
		for (n : 0 .. NODES - 1) { run Node(n) }
		run Worker()
	}
}
