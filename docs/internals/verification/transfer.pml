/*
 * A session that moves between nodes by one-way events, Request and Transfer, loses nothing.
 *
 * One chat and one user with one device. The device has one session, live on node 0. RESUMES
 * attempts to resume it run at any time, each on any node, side by side or one after the other,
 * also on the node that the session has just left. SENDERS senders append, look up, and notify the
 * holder of the lease or mark a row. Every event is as late as it likes.
 *
 * A node takes the lease, holds an arriving session, and publishes a Request to the previous holder
 * of the lease. That node freezes its session and publishes a Transfer. An arriving session keeps
 * the Request and passes it on. Nobody answers: a node that gets no Transfer in time gives up.
 *
 * FIRST=1: a message is there already, its row is marked, and a notification of the row is on its
 * way to node 0.
 *
 * Budgets of faults, 0 unless set:
 *   DUP      a Request or a Transfer arrives twice
 *   FAIL     a publication fails, and may have arrived all the same
 *   LOST     a Transfer is lost; the node that missed it joins anew, which raises the epoch
 *   EARLY    an attempt gives up while something is on its way
 *   SILENT   the registry does not answer; a lease may be taken all the same, or later
 *   REFUSE   a session is too large to freeze
 *   NCRASH   a node dies
 *   SCRASH   a sender dies between append and look-up
 *   EAGER=1  a node takes a lease back from a node on which the session is arriving
 *   ACK=1    the user acknowledges, once
 *
 * What holds:
 *   - the session is live on at most one node, and none goes on from an old snapshot;
 *   - in the end, when the client stays, it has received every message;
 *   - in the end, when the client is gone, a row says what it has not acknowledged, unless an epoch
 *     was raised and no proof of a clean close is left;
 *   - without faults but DUP, no attempt ends without the session, except one that was overtaken;
 *   - at rest, an attempt gets the session if it is anywhere;
 *   - with TRUE_ROWS=1, no row names what is acknowledged.
 *
 * Each R_* is a rule; README.md says which configuration needs it. Setting one to 0 leaves it out.
 *
 *   spin -a transfer.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m300000
 */
#ifndef NODES
#define NODES 2
#endif
#ifndef RESUMES
#define RESUMES 2
#endif
#ifndef SENDERS
#define SENDERS 1
#endif
#ifndef FIRST
#define FIRST 0
#endif
#ifndef DUP
#define DUP 0
#endif
#ifndef FAIL
#define FAIL 0
#endif
#ifndef LOST
#define LOST 0
#endif
#ifndef EARLY
#define EARLY 0
#endif
#ifndef SILENT
#define SILENT 0
#endif
#ifndef REFUSE
#define REFUSE 0
#endif
#ifndef NCRASH
#define NCRASH 0
#endif
#ifndef SCRASH
#define SCRASH 0
#endif
#ifndef EAGER
#define EAGER 0
#endif
#ifndef ACK
#define ACK 0
#endif
#ifndef HOPS
#define HOPS 3
#endif
#ifndef TRUE_ROWS
#define TRUE_ROWS 0
#endif
/* The receiver of a Request serves it while the registry is silent. */
#ifndef SERVE_SILENT
#define SERVE_SILENT 1
#endif

/* The lease is taken before the session is asked for. */
#ifndef R_LEASEFIRST
#define R_LEASEFIRST 1
#endif
/* The arriving session is in the table before the lease is taken. */
#ifndef R_TABLEFIRST
#define R_TABLEFIRST 1
#endif
/* One that does not land leaves the table after its lease is released. */
#ifndef R_TABLELAST
#define R_TABLELAST 1
#endif
/* What arrives for an arriving session is kept. */
#ifndef R_KEEP
#define R_KEEP 1
#endif
/* A notification for a session that is not here is marked. */
#ifndef R_ADDR
#define R_ADDR 1
#endif
/* After a mark, look up once more. */
#ifndef R_RELOOK
#define R_RELOOK 1
#endif
/* A marked notification for a session that is not here is looked up again. */
#ifndef R_FOLLOW
#define R_FOLLOW 1
#endif
/* If that finds the lease here, the session that is here now is notified ... */
#ifndef R_HERE
#define R_HERE 1
#endif
/* ... and if there is none, it is looked up again. */
#ifndef R_AGAIN
#define R_AGAIN 1
#endif
/* A Request is dropped unless its sender holds the lease. */
#ifndef R_HOLDS
#define R_HOLDS 1
#endif
/* An arriving session passes a Request on to the node that it asked itself. */
#ifndef R_PASS
#define R_PASS 1
#endif
/* One that came before the answer of the registry is passed on with it. */
#ifndef R_PASSLATE
#define R_PASSLATE 1
#endif
/* An arriving session serves the Request when it has landed. */
#ifndef R_SERVE
#define R_SERVE 1
#endif
/* A resume whose arriving session got a Request is told to come back, not to begin anew. */
#ifndef R_OVERTAKEN
#define R_OVERTAKEN 1
#endif
/* Only the arriving session that asked lands a Transfer. */
#ifndef R_ID
#define R_ID 1
#endif
/* Any other Transfer is marked ... */
#ifndef R_UNLANDED
#define R_UNLANDED 1
#endif
/* ... but not the one by which the session that is live here has landed. */
#ifndef R_LANDED
#define R_LANDED 1
#endif
/* A Transfer whose publication fails is marked. */
#ifndef R_PUBLISHED
#define R_PUBLISHED 1
#endif
/* What was kept for a session that does not land is marked ... */
#ifndef R_WAKESET
#define R_WAKESET 1
#endif
/* ... and what was marked already is looked up again: the session may be elsewhere. */
#ifndef R_KEPTMARKED
#define R_KEPTMARKED 1
#endif
/* A session that takes a lost lease again reconciles ... */
#ifndef R_RETAKEN
#define R_RETAKEN 1
#endif
/* ... and a snapshot that is taken meanwhile says so. */
#ifndef R_PENDING
#define R_PENDING 1
#endif
/* A session that lands in another epoch than that of its snapshot reconciles. */
#ifndef R_EPOCH
#define R_EPOCH 1
#endif
/* An epoch that is noticed while the session arrives counts. */
#ifndef R_NOTICED
#define R_NOTICED 1
#endif

#define ABSENT 0
#define ARRIVING 1
#define LIVE 2
#define ENDED 3             /* an arriving session that did not land, and still has a lease */
#define NONE 3              /* no node */
#define MARKED 1            /* bit 0 of notes: a row stands; bit n: message n */
#define BIT(n) (1 << (n))
#define ALL RESUMES         /* the last attempt, at rest */
#define FAULTY (FAIL || LOST || EARLY || SILENT || REFUSE || NCRASH || EAGER)

/* storage */
byte head, acked, first;
/* registry */
byte lease = 0;             /* the holder */
byte whose = 1;             /* of which session: 1, or 2, which the client opened later */
byte epoch;
/* nodes */
bool down[3];
byte state[3];              /* of session 1 */
byte notes[3];              /* on their way to a lease of session 1 */
byte kept[3];               /* for the arriving session */
byte arrival[3];            /* the attempt that it belongs to; if live: that it landed by */
byte asked[3];              /* whom it has asked */
byte request[3];            /* the Requests that it keeps */
byte began[3];              /* the epoch when it began to arrive */
byte beat[3];               /* the epoch that the node knows */
byte follow, here;          /* nodes that look up a marked notification; that found it here */
/* session 1; it is in one place only */
byte next = 1, woken, since, version;
bool toend, pending;
/* session 2 */
bool second; byte notes2;
/* attempts */
byte at[RESUMES + 1];       /* its node */
byte outcome[RESUMES + 1];  /* 1: landed, 2: ended */
bool overtaken[RESUMES + 1];
byte requests[RESUMES + 1]; /* nodes to which its Request is on its way */
byte hops[RESUMES + 1];
byte transfer[RESUMES + 1]; /* version of the snapshot that is on its way to it */
byte unacked[RESUMES + 1];  /* the row that the snapshot leaves, 0: none */
/* the rest */
byte rcv, marks, busy, running = SENDERS + ACK, resuming = RESUMES;
bool relook, resumed, rest;
byte dup = DUP, fail = FAIL, lost = LOST, early = EARLY, silent = SILENT, refuse = REFUSE;
byte ncrash = NCRASH, scrash = SCRASH;

#if NODES == 3
#define ANY(p, v) (p[0] == (v) || p[1] == (v) || p[2] == (v))
#define NOTES (notes[0] | notes[1] | notes[2])
#define BEATEN(d) (down[d] || beat[d] == epoch)
#define ALLBEATEN (BEATEN(0) && BEATEN(1) && BEATEN(2))
#else
#define ANY(p, v) (p[0] == (v) || p[1] == (v))
#define NOTES (notes[0] | notes[1])
#define BEATEN(d) (down[d] || beat[d] == epoch)
#define ALLBEATEN (BEATEN(0) && BEATEN(1))
#endif
#if RESUMES == 3
#define FLYING (requests[0] | requests[1] | requests[2] | requests[3] | \
  transfer[0] | transfer[1] | transfer[2] | transfer[3])
#elif RESUMES == 2
#define FLYING (requests[0] | requests[1] | requests[2] | transfer[0] | transfer[1] | transfer[2])
#else
#define FLYING (requests[0] | requests[1] | transfer[0] | transfer[1])
#endif

#define HELD(d) (lease == (d) && whose == 1)
#define HOME (state[0] == LIVE -> 0 : (state[1] == LIVE -> 1 : (state[2] == LIVE -> 2 : NONE)))
#define SILENCE (busy == 0 && FLYING == 0)
#define QUIET (SILENCE && NOTES == 0 && notes2 == 0 && marks == 0 && !relook && follow == 0 && \
  here == 0 && ALLBEATEN && (HOME == NONE || (HELD(HOME) && next > woken && !toend)) && \
  !(HOME == NONE && whose == 1 && lease != NONE))

inline max(v, n) { if :: (n > v) -> v = n :: else -> skip fi }
inline mark(n) { if :: (first == 0 || first > n) -> first = n :: else -> skip fi }
/* The holder of the lease is notified. If that is not possible, the messages are marked. */
inline notify(bits) {
  if
  :: (lease == NONE || down[lease]) -> marks = marks | (bits & ~MARKED)
  :: else ->
     if :: whose == 1 -> notes[lease] = notes[lease] | (bits) :: else -> notes2 = notes2 | (bits) fi
  fi
}
inline take(d) { lease = d; whose = 1 }
inline release(d) { if :: HELD(d) -> lease = NONE :: else -> skip fi }
inline begin2(d) {          /* a new session of the device compares */
  lease = d; whose = 2; second = true; notes2 = 0; woken2(d)
}
inline woken2(d) { rcv = (1 << (head + 1)) - 2 }

proctype Sender() {
  byte s;
  atomic { head++; s = BIT(head) };
  atomic {
    if
    :: scrash > 0 -> scrash--; epoch++
    :: notify(s)
    fi;
    running--; s = 0
  }
}

/* The user acknowledges what the client has received. */
proctype Ack() {
  atomic {
    if
    :: rcv & 2 -> acked = 1; if :: (rcv & 4) -> acked = 2 :: else -> skip fi;
       if
       :: (first != 0 && first <= acked) -> first = (head == acked -> 0 : acked + 1)
       :: else -> skip
       fi
    :: true -> skip
    fi;
    running--
  }
}

inline pass(i, on) {         /* a Request, on to another node */
  if
  :: (on != at[i] && hops[i] < HOPS && !down[on]) -> hops[i]++; requests[i] = requests[i] | BIT(on)
  :: else -> skip
  fi
}
inline arrived(d, s) {      /* the notification of message s */
  atomic { (notes[d] & BIT(s)) -> notes[d] = notes[d] & ~BIT(s);
    if
    :: state[d] == LIVE -> max(woken, s)
    :: state[d] == ARRIVING -> if :: R_KEEP -> kept[d] = kept[d] | BIT(s) :: else -> skip fi
    :: else -> if :: R_ADDR -> marks = marks | BIT(s) :: else -> skip fi
    fi }
}
inline arrivedmarked(d) {
  atomic { (notes[d] & MARKED) -> notes[d] = notes[d] & ~MARKED;
    if
    :: state[d] == LIVE -> toend = true
    :: state[d] == ARRIVING -> if :: R_KEEP -> kept[d] = kept[d] | MARKED :: else -> skip fi
    :: else -> if :: R_FOLLOW -> follow = follow | BIT(d) :: else -> skip fi
    fi }
}
inline followed(d) {        /* the same session is looked up, since it takes no other look */
  atomic { (follow & BIT(d)) -> follow = follow & ~BIT(d);
    if
    :: (lease == NONE || whose != 1 || down[lease]) -> skip
    :: (whose == 1 && lease == d) -> if :: R_HERE -> here = here | BIT(d) :: else -> skip fi
    :: else -> notes[lease] = notes[lease] | MARKED
    fi }
}
inline found(d) {
  atomic { (here & BIT(d)) -> here = here & ~BIT(d);
    if
    :: (state[d] == ARRIVING || state[d] == LIVE) -> notes[d] = notes[d] | MARKED
    :: else -> if :: R_AGAIN -> follow = follow | BIT(d) :: else -> skip fi
    fi }
}
inline beats(d) {
  atomic { (!down[d] && beat[d] != epoch) -> beat[d] = epoch;
    if
    :: (state[d] == LIVE && since != epoch) -> toend = true; since = epoch
    :: (state[d] == ARRIVING && R_NOTICED) -> began[d] = epoch
    :: else -> skip
    fi;
    if :: second -> notes2 = notes2 | MARKED :: else -> skip fi }
}
inline lands(i) {
  atomic { (transfer[i] != 0) -> v = transfer[i]; d = at[i];
    if :: dup > 0 -> dup-- :: transfer[i] = 0 fi;
    if
    :: down[d] -> skip
    :: (!down[d] && state[d] == ARRIVING && (arrival[d] == i || !R_ID)) ->
       assert(v == version && HOME == NONE);         /* one place, and nothing of old */
       state[d] = LIVE; outcome[arrival[d]] = 1;
       if
       :: kept[d] & 4 -> max(woken, 2)
       :: else -> if :: kept[d] & 2 -> max(woken, 1) :: else -> skip fi
       fi;
       if :: kept[d] & MARKED -> toend = true :: else -> skip fi;
       if :: (R_EPOCH && since != began[d]) -> toend = true :: else -> skip fi;
       since = began[d]; kept[d] = 0; asked[d] = NONE;
       if
       :: R_SERVE ->
          for (k : 0 .. RESUMES) {
            if :: (request[d] & BIT(k)) -> requests[k] = requests[k] | BIT(d) :: else -> skip fi
          }
       :: else -> skip
       fi;
       request[d] = 0; k = 0
    :: (!down[d] && state[d] == LIVE && arrival[d] == i && R_LANDED) -> skip
    :: else ->
       if :: (R_UNLANDED && unacked[i] != 0) -> marks = marks | BIT(unacked[i]) :: else -> skip fi
    fi;
    v = 0; d = 0 }
}

/* All that takes one step. */
proctype World() {
  byte v, d, k;
  do
#define NODE(d) \
  :: arrived(d, 1) :: arrived(d, 2) :: arrivedmarked(d) :: followed(d) :: found(d) :: beats(d)
  NODE(0)
  NODE(1)
#if NODES == 3
  NODE(2)
#endif
  :: lands(0)
  :: lands(1)
#if RESUMES > 1
  :: lands(2)
#endif
#if RESUMES > 2
  :: lands(3)
#endif
  :: atomic { (HOME != NONE && (next <= woken || toend)) ->  /* its connection reads a page */
       if :: toend -> woken = head; toend = false :: else -> skip fi;
       do :: next <= woken -> rcv = rcv | BIT(next); next++ :: else -> break od }
  :: atomic { (notes2 != 0) -> notes2 = 0; rcv = (1 << (head + 1)) - 2 }
  :: atomic { (marks & 2) -> marks = marks & ~2; mark(1); relook = R_RELOOK }
  :: atomic { (marks & 4) -> marks = marks & ~4; mark(2); relook = R_RELOOK }
  :: atomic { relook -> relook = false; notify(MARKED) }
  :: atomic { (resuming == 0 && SILENCE && whose == 1 && lease != NONE &&
       (down[lease] || HOME == NONE)) ->
       lease = NONE }       /* it runs out */
  :: atomic { ncrash > 0 && !rest -> ncrash--;
       if :: d = 0 :: d = 1 fi;
       down[d] = true; epoch++; notes[d] = 0; kept[d] = 0; request[d] = 0;
       if :: state[d] == LIVE -> next = 255; pending = false :: else -> skip fi;   /* it is gone */
       state[d] = ABSENT; follow = follow & ~BIT(d); here = here & ~BIT(d);
       if
       :: (whose == 2 && lease == d) -> second = false; notes2 = 0; lease = NONE
       :: else -> skip
       fi;
       d = 0 }
  :: (rest && resuming == 0 && QUIET) -> break
  od
}

/* The loop of a node that serves Requests, one after the other. */
proctype Requests(byte d) {
  byte i, was; bool holds, frozen;
  do
  :: atomic {
       if
       :: (requests[0] & BIT(d)) -> i = 0
       :: (requests[1] & BIT(d)) -> i = 1
#if RESUMES > 1
       :: (requests[2] & BIT(d)) -> i = 2
#endif
#if RESUMES > 2
       :: (requests[3] & BIT(d)) -> i = 3
#endif
       fi;
       if :: dup > 0 -> dup-- :: requests[i] = requests[i] & ~BIT(d) fi;
       if
       :: (!down[d] && state[d] == LIVE) -> was = arrival[d]; busy++
       :: (!down[d] && state[d] == ARRIVING) ->
          request[d] = request[d] | BIT(i); overtaken[arrival[d]] = true;
          if :: (R_PASS && asked[d] != NONE) -> pass(i, asked[d]) :: else -> skip fi;
          i = 0; goto served
       :: else -> i = 0; goto served
       fi };
     atomic {
       if
       :: silent > 0 -> silent--; holds = SERVE_SILENT
       :: holds = (HELD(at[i]) || !R_HOLDS)
       fi };
     atomic {
       if
       :: (holds && !down[d] && state[d] == LIVE && was == arrival[d]) ->
          if
          :: refuse > 0 -> refuse--
          :: state[d] = ABSENT; version++; frozen = true;
             unacked[i] = (woken > acked -> acked + 1 : 0);
             if
             :: pending -> pending = false; if :: R_PENDING -> toend = true :: else -> skip fi
             :: else -> skip
             fi
          fi
       :: else -> skip
       fi };
     atomic {
       if
       :: (frozen && !down[d]) ->
          if
          :: !down[at[i]] -> transfer[i] = version
          :: (fail > 0 || down[at[i]]) -> if :: fail > 0 -> fail-- :: else -> skip fi;
             if
             :: (R_PUBLISHED && unacked[i] != 0) -> marks = marks | BIT(unacked[i])
             :: else -> skip
             fi;
             if :: !down[at[i]] -> transfer[i] = version :: true -> skip fi
          :: lost > 0 -> lost--; epoch++
          fi
       :: else -> skip
       fi;
       frozen = false; holds = false; i = 0; was = 0; busy-- };
served: skip
  :: (rest && resuming == 0 && QUIET) -> break
  od
}

/* Refresh, and the repair of what it finds. */
proctype Refresh() {
  byte d = NONE, v;
  do
  :: atomic { (HOME != NONE && !HELD(HOME) && whose == 2 && lease != NONE) -> d = HOME;
       /* replaced: end, mark */
       if :: woken > acked -> marks = marks | BIT(acked + 1) :: else -> skip fi;
       state[d] = ABSENT; pending = false; d = NONE }
  :: atomic { (HOME != NONE && !HELD(HOME) && (whose == 1 || lease == NONE) &&
       ((EAGER && !rest) || lease == NONE || state[lease] != ARRIVING)) ->
       d = HOME; v = version; pending = true; busy++ };
     atomic { if :: (whose == 1 || lease == NONE) -> take(d) :: else -> skip fi };
     atomic {
       if
       :: (state[d] == LIVE && v == version) ->
          pending = false; if :: R_RETAKEN -> toend = true :: else -> skip fi
       :: else -> release(d)
       fi;
       d = NONE; v = 0; busy-- }
  :: (rest && resuming == 0 && QUIET) -> break
  od
}

inline meet() {             /* another attempt was faster */
  if
  :: state[d] == LIVE -> resumed = true; goto done
  :: state[d] == ENDED -> goto done
  :: else -> w = arrival[d]; goto waits
  fi
}
inline arrive() {
  state[d] = ARRIVING; arrival[d] = i; asked[d] = NONE;
  request[d] = 0; kept[d] = 0; began[d] = epoch
}

proctype Resume(byte i) {
  byte d, w, prev; bool late;
  atomic {
    if :: (!rest || !down[0]) -> d = 0 :: (!rest || !down[1]) -> d = 1
#if NODES == 3
    :: (!rest || !down[2]) -> d = 2
#endif
    fi;
    at[i] = d };
  atomic {
    if
    :: down[d] -> goto done
    :: (!down[d] && state[d] == LIVE) -> resumed = true; goto done
    :: (!down[d] && state[d] == ARRIVING) -> w = arrival[d]; goto waits
    :: (!down[d] && state[d] == ENDED) -> goto done
    :: else -> prev = lease;
       if :: silent > 0 -> silent--; goto none :: true -> skip fi;
       if :: (lease == NONE || whose != 1 || lease == d) -> goto none :: else -> skip fi
    fi };
#if R_TABLEFIRST
  atomic {
    if
    :: down[d] -> goto done
    :: (!down[d] && state[d] != ABSENT) -> meet()
    :: else -> arrive(); busy++
    fi };
#else
  busy++;
#endif
#if R_LEASEFIRST
  atomic {
    if
    :: down[d] -> busy--; goto done
    :: (!down[d] && whose == 1 && lease != NONE && lease != d) ->
       if
       :: prev = lease; take(d)
       :: silent > 0 -> silent--; late = true; busy--; goto ends
       :: silent > 0 -> silent--; take(d); busy--; goto ends
       fi
    :: else -> busy--; goto ends
    fi };
#endif
#if !R_TABLEFIRST
  atomic {
    if
    :: down[d] -> busy--; goto done
    :: (!down[d] && state[d] != ABSENT) -> busy--; meet()
    :: else -> arrive()
    fi };
#endif
  atomic {
    busy--;
    if
    :: down[d] -> goto done
    :: else ->
       asked[d] = prev;
       if
       :: R_PASSLATE ->
          for (w : 0 .. RESUMES) {
            if :: (request[d] & BIT(w)) -> pass(w, prev) :: else -> skip fi
          };
          w = 0
       :: else -> skip
       fi;
       if
       :: !down[prev] -> requests[i] = requests[i] | BIT(prev)
       :: (down[prev] || fail > 0) -> if :: fail > 0 -> fail-- :: else -> skip fi;
          if :: !down[prev] -> requests[i] = requests[i] | BIT(prev) :: true -> skip fi; goto ends
       fi
    fi };
  if
  :: outcome[i] == 1 || down[d]
  :: SILENCE && outcome[i] == 0
  :: atomic { early > 0 && outcome[i] == 0 -> early-- }
  fi;
ends:
  atomic {
    if
    :: (down[d] || outcome[i] == 1) -> resumed = !down[d];
#if !R_LEASEFIRST
       if :: !down[d] -> take(d) :: else -> skip fi;
#endif
       goto done
    :: else ->
       if :: R_WAKESET -> marks = marks | (kept[d] & ~MARKED) :: else -> skip fi;
       if :: (R_KEPTMARKED && (kept[d] & MARKED)) -> relook = true :: else -> skip fi;
       state[d] = (R_TABLELAST -> ENDED : ABSENT);
       kept[d] = 0; request[d] = 0; asked[d] = NONE; outcome[i] = 2
    fi };
  atomic {
    release(d); if :: state[d] == ENDED -> state[d] = ABSENT :: else -> skip fi;
    if :: late -> if :: (whose == 1 && !down[d]) -> take(d) :: true -> skip fi :: else -> skip fi };
  if :: overtaken[i] && R_OVERTAKEN -> goto done :: else -> goto none fi;
waits:                      /* for an arriving session of another attempt on this node */
  atomic {
    if
    :: (down[d] || outcome[w] == 1 || overtaken[w]) ->
       resumed = (outcome[w] == 1 && !down[d]); goto done
    :: (outcome[w] == 2 && !overtaken[w]) -> goto none
    fi };
none:                       /* nobody gives the session: the client may begin anew */
  atomic {
    assert(FAULTY || (rest && HOME == NONE) || (DUP && RESUMES > 2));
    if :: (!second && !down[d]) -> begin2(d) :: true -> skip fi };
done:
  atomic { d = 0; w = 0; prev = 0; late = false; resuming-- }
}

init {
  byte k; bool there;
  atomic {
    state[0] = LIVE;
    if :: FIRST -> head = 1; first = 1; notes[0] = MARKED :: else -> skip fi;
    for (k : 0 .. 2) { asked[k] = NONE; arrival[k] = 255 }
    if :: SENDERS > 0 -> run Sender() :: else -> skip fi;
    if :: SENDERS > 1 -> run Sender() :: else -> skip fi;
    if :: ACK -> run Ack() :: else -> skip fi;
    run World(); run Requests(0); run Requests(1);
#if NODES == 3
    run Requests(2);
#endif
    run Refresh();
    for (k : 1 .. RESUMES) { run Resume(k - 1) }
    k = 0
  }
  (resuming == 0 && running == 0 && QUIET);
  assert(FAULTY || HOME != NONE || (DUP && RESUMES > 2));
  if
  :: atomic { true ->       /* the client stays; it comes back once more */
       dup = 0; fail = 0; lost = 0; early = 0; silent = 0; refuse = 0; rest = true;
       there = (HOME != NONE && !second); resumed = false; resuming = 1;
       if :: second -> resuming = 0 :: else -> run Resume(ALL) fi };
     (resuming == 0 && QUIET);
     atomic { assert(!there || resumed);
       if :: (!second && !resumed) -> rcv = (1 << (head + 1)) - 2 :: else -> skip fi;
       assert(rcv == (1 << (head + 1)) - 2) }
  :: atomic { true -> rest = true;     /* the client is gone; its session ends */
       there = ((HOME != NONE && since == epoch) || second);
       if :: (HOME != NONE && woken > acked) -> mark(acked + 1) :: else -> skip fi;
       if :: (second && head > acked) -> mark(acked + 1) :: else -> skip fi;
#if TRUE_ROWS
       assert(first == 0 || first > acked);
#endif
       assert((epoch > 0 && !there) || head <= acked || (first != 0 && first <= acked + 1)) }
  fi
}
