/*
 * A session that moves from node to node loses nothing.
 *
 * One chat; one user with one session, open from the beginning, whose client comes back to the other node MOVES times; SENDERS concurrent senders. Fan-out arrives
 * late, at nodes that the session has left, that it has not reached yet, or to which it has come back. A claim may stay unanswered, before or after the owner has
 * given the session away: then the new node gives the lease back and the client gets a new session, which compares; what is left of the old one
 * ends some time later. In the end everybody is at rest, and the client has received every message.
 *
 * Each R_* is a rule of delivery.md, section 4. Setting one to 0 leaves the rule out, and must make the check fail:
 *   R_LEASEFIRST   the lease is taken before the session is claimed
 *   R_KEEP         what arrives for a session that is on its way is kept
 *   R_ADDR         a node that gets a hand-over for a session that it does not have marks, and looks up again
 *   R_FOLLOW       a wake that says that a row stands follows a session that was given away
 *   R_COMPARE      the new session that a client gets after a failed move compares
 *
 * R_FOLLOW needs -DMOVES=2, the others -DMOVES=1. With all rules: -DMOVES=1, -DMOVES=2 -DSENDERS=1, and, once per change of the model, both at 2 (11 M states).
 * That what arrived for a session which never came is marked, and what an old one was woken for, matters to those who are offline: delivery.pml.
 *
 *   spin -a move.pml && gcc -O2 -DSAFETY -DCOLLAPSE -o pan pan.c && ./pan -m300000
 */
#ifndef SENDERS
#define SENDERS 2
#endif
#ifndef MOVES
#define MOVES 2
#endif
#ifndef R_LEASEFIRST
#define R_LEASEFIRST 1
#endif
#ifndef R_KEEP
#define R_KEEP 1
#endif
#ifndef R_ADDR
#define R_ADDR 1
#endif
#ifndef R_FOLLOW
#define R_FOLLOW 1
#endif
#ifndef R_COMPARE
#define R_COMPARE 1
#endif

#define NOBODY 2
#define MARKED 100          /* a wake that says: a row stands, read to the end */

mtype = { AWAY, ARRIVING, HERE, LEFT };   /* left: the client has gone, and the node does not know */

byte head, first, running, rcv, cur;
byte lease = 0;             /* of the user's one device: at which node */
mtype sess[2];
byte next[2], woken[2], low[2];
bool toend[2];
bool moving = true;
chan node[2] = [6] of { byte };

inline mark(s) { atomic { if :: (first == 0 || first > s) -> first = s :: else -> skip fi } }
inline wake(s) { atomic { l = lease; if :: l != NOBODY -> if :: node[l]??[eval(s)] -> skip :: else -> node[l]!s fi :: else -> skip fi } }

proctype Sender() {
  byte s, l;
  atomic { head++; s = head };
  wake(s);
  if :: l == NOBODY -> mark(s); wake(MARKED) :: else -> skip fi;
  running--
}

proctype Node(byte d) {
  byte s, l; bool nobody;
  do
  :: atomic { node[d]?s ->
       if
       :: (sess[d] == HERE || sess[d] == LEFT) ->
          if :: s == MARKED -> toend[d] = true :: else -> if :: s > woken[d] -> woken[d] = s :: else -> skip fi fi
       :: (sess[d] == ARRIVING) ->
          if :: !R_KEEP -> skip
             :: else -> if :: s == MARKED -> toend[d] = true
                           :: else -> if :: (low[d] == 0 || s < low[d]) -> low[d] = s :: else -> skip fi;
                                      if :: s > woken[d] -> woken[d] = s :: else -> skip fi fi fi
       :: else -> nobody = true; running++
       fi };
     if
     :: (nobody && s != MARKED) -> if :: R_ADDR -> mark(s); wake(MARKED) :: else -> skip fi; atomic { nobody = false; running-- }
     :: (nobody && s == MARKED) -> if :: (R_FOLLOW && lease != d) -> wake(MARKED) :: else -> skip fi; atomic { nobody = false; running-- }
     :: else -> skip
     fi;
     s = 0; l = 0
  :: atomic { (sess[d] == HERE && (next[d] <= woken[d] || toend[d])) ->       /* its connection reads a page */
       if :: toend[d] -> woken[d] = head; toend[d] = false :: else -> skip fi;
       do :: next[d] <= woken[d] -> rcv = rcv | (1 << next[d]); next[d]++ :: else -> break od }
  :: atomic { (sess[d] == LEFT) -> sess[d] = AWAY; running++;                 /* what is LEFT ends: nobody has acknowledged anything */
       if :: ((woken[d] > 0 || toend[d])) -> nobody = true :: else -> skip fi };
     if :: nobody -> mark(1); wake(MARKED); nobody = false :: else -> skip fi;
     running--; l = 0
  :: (!moving && running == 0 && empty(node[0]) && empty(node[1]) && sess[0] != LEFT && sess[1] != LEFT &&
      !(sess[d] == HERE && (next[d] <= woken[d] || toend[d]))) -> break
  od
}

inline open(d) {            /* a new session: one step of the registry, then the look */
  atomic { lease = d; sess[d] = HERE; next[d] = 1; woken[d] = 0; toend[d] = false };
  if :: R_COMPARE -> atomic { if :: head > woken[d] -> woken[d] = head :: else -> skip fi } :: else -> next[d] = head + 1 fi
}

proctype Client() {
  byte i, to, n, w, l; bool e, gave;
  for (i : 1 .. MOVES) {
    to = 1 - cur;
    gave = false;
    if
    :: R_LEASEFIRST ->
       atomic { sess[to] == AWAY -> sess[to] = ARRIVING; low[to] = 0; woken[to] = 0; toend[to] = false };
       lease = to;
       if
       :: atomic { n = next[cur]; w = woken[cur]; e = toend[cur]; sess[cur] = AWAY; gave = true }
       :: sess[cur] = LEFT
       fi;
       if
       :: gave ->
          atomic {
            next[to] = n; if :: w > woken[to] -> woken[to] = w :: else -> skip fi; toend[to] = toend[to] || e; sess[to] = HERE
          }
       :: true ->             /* no answer in time */
          atomic { sess[to] = AWAY; n = low[to]; e = toend[to] };
          if :: ((n != 0 || e)) -> if :: n == 0 -> n = 1 :: else -> skip fi; mark(n); wake(MARKED) :: else -> skip fi;
          if :: lease == to -> lease = NOBODY :: else -> skip fi;
          open(to)
       fi
    :: else ->
       atomic { sess[to] == AWAY -> n = next[cur]; w = woken[cur]; e = toend[cur]; sess[cur] = AWAY };
       atomic { lease = to; sess[to] = HERE; next[to] = n; woken[to] = w; toend[to] = e }
    fi;
    atomic { cur = to; n = 0; w = 0; e = false; l = 0; gave = false }
  }
  moving = false
}

init {
  byte k;
  atomic {
    running = SENDERS; sess[0] = HERE; sess[1] = AWAY; next[0] = 1;
    for (k : 1 .. SENDERS) { run Sender() }
    run Node(0); run Node(1); run Client()
  }
  (_nr_pr == 1);
  k = 1;
  do
  :: k <= head -> assert(rcv & (1 << k)); k++
  :: else -> break
  od
}
