// The life of the stream: which connection is open or being tried, and when the next one is.
//
// | state        | on                          | then                                            |
// |--------------|-----------------------------|-------------------------------------------------|
// | `idle`       | start                       | `connecting`                                    |
// | `connecting` | opened                      | `live`                                          |
// |              | ended: blocked              | `connecting` by the next transport; after the   |
// |              |                             | last one `waiting`                              |
// |              | ended: cut, silent, broken  | `waiting`, a random time that grows             |
// |              | ended: wait                 | `waiting`, exactly the time that was named      |
// |              | ended: token                | `connecting` with a new token, then `refused`,  |
// |              |                             | tried after 5 s, 30 s, then each 5 minutes      |
// |              | ended: no-token             | `waiting`, a random time that grows             |
// |              | ended: gone                 | `connecting` without a position                 |
// |              | ended: replaced             | `connecting` as a new device, once in 10        |
// |              |                             | minutes; else `refused`, each 5 minutes         |
// |              | ended: refused              | `refused`, each 15 minutes                      |
// |              | ended: signed-out           | `ended`                                         |
// | `waiting`,   | due                         | `connecting`                                    |
// | `refused`    | wake                        | `connecting`, 2 s after the last try            |
// | `live`       | ended                       | as from `connecting`. A first `silent` is       |
// |              |                             | treated as `cut`, a second one as `blocked`     |
// |              | move                        | `moving`: another connection is tried           |
// | `moving`     | the new one opened          | `live`; the old one is closed                   |
// |              | the new one ended           | `live`; tried again later                       |
// |              | the old one ended           | `connecting`: the new one goes on               |
// | any          | stop                        | `idle`                                          |

import type { Problem } from '../types.js';
import type { Ended } from './ended.js';
import { pauseAfter } from './pause.js';

export interface Link {
  at: 'idle' | 'connecting' | 'waiting' | 'live' | 'moving' | 'refused' | 'ended';
  /** The index of the transport in use, or of the next try. */
  transport: number;
  /** The connection that is open, and the one that is being tried. 0 is none. */
  open: number;
  trying: number;
  /** The transport of the one that is being tried. */
  tried: number;
  /** The last number that was given to a connection. */
  last: number;
  /** Failed tries in a row. A connection that lasted a minute ends the row. */
  tries: number;
  /** How many tokens were refused in a row. */
  tokens: number;
  /** How many connections in a row ended silent or broken. */
  silent: number;
  broken: number;
  openedAt: number;
  triedAt: number;
  /** When this device took its last new id. */
  renamedAt: number;
  /** How long until a better transport is tried. */
  probe: number;
  problem: Problem | undefined;
}

export type LinkInput =
  | { readonly on: 'start' | 'stop' | 'wake' | 'due' }
  /** A better connection is wanted: `renew` for a new token, `better` by a better transport. */
  | { readonly on: 'renew' | 'better' }
  | { readonly on: 'opened'; readonly id: number }
  | { readonly on: 'ended'; readonly id: number; readonly ended: Ended };

export type LinkEffect =
  | { readonly do: 'open'; readonly id: number; readonly transport: number }
  | { readonly do: 'close'; readonly id: number }
  /** Gives `due` after that time. It replaces an earlier one. */
  | { readonly do: 'wait'; readonly ms: number }
  /** Gives `better` after that time, once the page is visible. */
  | { readonly do: 'probe'; readonly ms: number }
  /** The position is void. */
  | { readonly do: 'forget' }
  /** The device needs a new id. */
  | { readonly do: 'rename' };

const MINUTE = 60_000;
const LONGEST_PROBE_MS = 60 * MINUTE;

export function newLink(): Link {
  return {
    at: 'idle', transport: 0, open: 0, trying: 0, tried: 0, last: 0, tries: 0, tokens: 0,
    silent: 0, broken: 0, openedAt: 0, triedAt: -MINUTE, renamedAt: -Infinity, probe: MINUTE,
    problem: undefined,
  };
}

/**
 * Moves the link by one input. `transports` is how many there are, `now` is monotonic, `random` is
 * from 0 to 1.
 */
export function stepLink(
  link: Link, input: LinkInput, now: number, random: number, transports: number,
): LinkEffect[] {
  const effects: LinkEffect[] = [];

  const connect = (transport = link.transport): void => {
    link.at = link.open ? 'moving' : 'connecting';
    link.trying = ++link.last;
    link.tried = transport;
    link.triedAt = now;
    effects.push({ do: 'open', id: link.trying, transport });
  };
  const wait = (ms: number, problem?: Problem): void => {
    link.at = problem ? 'refused' : 'waiting';
    link.problem = problem;
    effects.push({ do: 'wait', ms });
  };
  const retry = (): void => { wait(pauseAfter(link.tries++, random)); };
  const demote = (): void => {
    link.silent = 0;
    link.transport = (link.transport + 1) % transports;
    if (link.transport === 0) retry();
    else connect();
  };

  const after = (ended: Ended): void => {
    link.silent = ended.why === 'silent' ? link.silent + 1 : 0;
    switch (ended.why) {
      case 'signed-out':
        link.at = 'ended';
        return;
      case 'wait':
        wait(ended.ms);
        return;
      case 'refused':
        wait(15 * MINUTE, ended.problem);
        return;
      case 'token': {
        const pause = [0, 5_000, 30_000][link.tokens++] ?? 5 * MINUTE;
        if (pause === 0) connect();
        else wait(pause, { code: 'UNAUTHENTICATED', detail: 'The server refuses the token.' });
        return;
      }
      case 'no-token':
        retry();
        link.problem = { code: 'NO_TOKEN', detail: 'There is no token.' };
        return;
      case 'replaced':
        effects.push({ do: 'forget' });
        if (now - link.renamedAt < 10 * MINUTE) {
          wait(5 * MINUTE, { code: 'REPLACED', detail: 'Another connection took over.' });
        } else {
          link.renamedAt = now;
          effects.push({ do: 'rename' });
          connect();
        }
        return;
      case 'gone':
        effects.push({ do: 'forget' });
        // The second time in a row nothing was read in between.
        if (link.tries > 0) retry();
        else {
          link.tries = 1;
          connect();
        }
        return;
      case 'broken':
        // An event that is broken each time must not stop the stream for ever.
        if (++link.broken % 3 === 0) effects.push({ do: 'forget' });
        break;
      case 'blocked':
        demote();
        return;
      case 'full':
        connect();
        return;
      case 'silent':
        if (link.silent === 2) {
          demote();
          return;
        }
        break;
      case 'cut':
    }
    retry();
  };

  switch (input.on) {
    case 'start':
      if (link.at === 'idle' || link.at === 'ended') connect();
      break;
    case 'stop':
      for (const id of [link.open, link.trying]) if (id) effects.push({ do: 'close', id });
      link.at = 'idle';
      link.open = link.trying = link.tries = link.tokens = 0;
      break;
    case 'wake':
      if (link.at !== 'waiting' && link.at !== 'refused') break;
      if (now - link.triedAt < 2_000) effects.push({ do: 'wait', ms: 2_000 });
      else connect();
      break;
    case 'due':
      if (link.at === 'waiting' || link.at === 'refused' || link.at === 'live') connect();
      break;
    case 'renew':
      if (link.at === 'live') connect();
      break;
    case 'better':
      if (link.at === 'live' && link.transport > 0) connect(link.transport - 1);
      break;
    case 'opened':
      if (input.id !== link.trying) break;
      if (link.open) effects.push({ do: 'close', id: link.open });
      if (link.tried < link.transport) link.probe = MINUTE;
      link.at = 'live';
      link.open = input.id;
      link.trying = link.tokens = 0;
      link.transport = link.tried;
      link.openedAt = now;
      link.problem = undefined;
      if (link.transport > 0) effects.push({ do: 'probe', ms: link.probe });
      break;
    case 'ended':
      if (input.id === 0) break;
      if (input.id === link.trying) {
        link.trying = 0;
        if (!link.open) {
          after(input.ended);
          break;
        }
        // The old connection still works.
        link.at = 'live';
        if (link.tried < link.transport) {
          link.probe = Math.min(link.probe * 4, LONGEST_PROBE_MS);
          effects.push({ do: 'probe', ms: link.probe });
        } else {
          effects.push({ do: 'wait', ms: 10_000 });
        }
      } else if (input.id === link.open) {
        link.open = 0;
        if (now - link.openedAt >= MINUTE) link.tries = 0;
        if (link.trying) link.at = 'connecting';
        else after(input.ended);
      }
  }
  return effects;
}
