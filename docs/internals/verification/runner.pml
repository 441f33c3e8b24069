/*
 * What is set is looked at, although the goroutine exists only while there is something to do.
 *
 * One signal.Runner (internal/signal/runner.go), SETS goroutines that add work and call Set, and
 * one that may end the connection and call Set. Each step is one atomic operation of the code, or
 * one look at the work under the session's lock.
 *
 * What holds at rest: no work is left, or the connection has ended and the function knows. At any
 * time there is at most one goroutine.
 *
 *   spin -a runner.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m300000
 */
#ifndef SETS
#define SETS 3
#endif

/* Set notes that it came during a call. */
#ifndef R_RERUN
#define R_RERUN 1
#endif
/* The goroutine ends only if nothing was noted. */
#ifndef R_LEAVE
#define R_LEAVE 1
#endif
/* The state is running before a call looks at the work, not when it has looked. */
#ifndef R_BEFORE
#define R_BEFORE 1
#endif

mtype = { unstarted, idle, running, again, over }
mtype state = unstarted;
byte work, goroutines;
bool ended, finished;

proctype Run() {
	bool more, stop;
	goroutines++;
	assert(goroutines == 1);
next:
	if
	:: R_BEFORE -> state = running
	:: else
	fi;
	stop = ended;
	atomic {
		more = work > 0 && !stop;
		if
		:: more -> work--
		:: else
		fi
	}
	if
	:: more -> goto next
	:: stop -> atomic { finished = true; state = over; goroutines--; goto done }
	:: else
	fi;
	if
	:: !R_BEFORE -> state = running
	:: else
	fi;
	atomic {
		if
		:: state == running || !R_LEAVE -> state = idle; goroutines--; goto done
		:: else
		fi
	}
	goto next;
done:
	skip
}

inline set() {
	do
	:: true ->
		seen = state;
		if
		:: seen == idle ->
			atomic {
				if
				:: state == idle -> state = running; run Run(); break
				:: else
				fi
			}
		:: seen == running && R_RERUN ->
			atomic {
				if
				:: state == running -> state = again; break
				:: else
				fi
			}
		:: else -> break
		fi
	od
}

proctype Notify() {
	mtype seen;
	work++;
	set()
}

proctype End() {
	mtype seen;
	ended = true;
	set()
}

init {
	byte n;
	atomic {
		for (n : 1 .. SETS) { run Notify() }
		if
		:: run End()
		:: skip
		fi
	}
	/* Start. What was set before is for the first call to find. */
	atomic { state = running; run Run() }
	timeout -> assert(finished || !ended && work == 0)
}
