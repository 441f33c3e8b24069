// Which tab leads. A leader holds a lock; the term of the store makes sure that only one can write.
//
// | state     | on                                   | then                                       |
// |-----------|--------------------------------------|--------------------------------------------|
// | `off`     | start                                | `waiting`: asks for the lock               |
// | `waiting` | granted                              | `leading`: announces itself at once, so    |
// |           |                                      | that waiting tabs do not steal the lock    |
// |           | tick, visible                        | pings the leader                           |
// |           | … and two pings were not answered    | steals the lock: the leader is frozen      |
// | `leading` | visible, each fifth tick             | looks at the store: a tab may have written |
// |           |                                      | and ended before it could say so           |
// |           | ping, hidden for 5 s                 | `waiting`: lets the visible tab lead       |
// |           | ping                                 | answers, and looks at the store            |
// |           | fenced                               | `waiting`: another tab leads               |
// | any       | stop                                 | `off`                                      |
//
// Without tabs nothing tells who leads: a client that was fenced is `off` until the user returns.

export interface Lead {
  at: 'off' | 'waiting' | 'leading';
  /** Whether there are tabs. */
  readonly tabs: boolean;
  visible: boolean;
  /** When it became hidden. */
  hiddenAt: number;
  /** When the last tick was. */
  tickedAt: number;
  /** Pings without an answer in a row. */
  missed: number;
  /** Ticks since this tab began to lead. */
  ticks: number;
}

export type LeadInput = 'start' | 'stop' | 'granted' | 'fenced' | 'ping' | 'pong' | 'tick'
  | 'visible' | 'hidden';
export type LeadEffect = 'ask' | 'steal' | 'lead' | 'release' | 'ping' | 'pong' | 'reread';

/** How often there is a tick. A frozen leader is replaced after three of them at most. */
export const TICK_MS = 3_000;
const LOOK_TICKS = 5;
const LATE_MS = 2_000;
const HIDDEN_MS = 5_000;

export function newLead(tabs: boolean, visible: boolean): Lead {
  return { at: 'off', tabs, visible, hiddenAt: 0, tickedAt: -Infinity, missed: 0, ticks: 0 };
}

/** Moves the lead by one input. `now` is monotonic. */
export function stepLead(lead: Lead, input: LeadInput, now: number): LeadEffect[] {
  switch (input) {
    case 'start':
      if (lead.at !== 'off') return [];
      lead.at = 'waiting';
      lead.missed = 0;
      return ['ask'];
    case 'stop':
      lead.at = 'off';
      return ['release'];
    case 'granted':
      if (lead.at !== 'waiting') return ['release'];
      lead.at = 'leading';
      lead.ticks = 0;
      return ['pong', 'lead'];
    case 'fenced':
      if (lead.at !== 'leading') return [];
      lead.at = lead.tabs ? 'waiting' : 'off';
      return lead.tabs ? ['release', 'ask'] : ['release'];
    case 'pong':
      lead.missed = 0;
      return [];
    case 'ping':
      if (lead.at !== 'leading') return [];
      // The other tab may have new data, after those of this one have vanished.
      if (lead.visible || now - lead.hiddenAt < HIDDEN_MS) return ['pong', 'reread'];
      lead.at = 'waiting';
      return ['release', 'ask'];
    case 'hidden':
      lead.visible = false;
      lead.hiddenAt = now;
      return [];
    case 'visible':
      lead.visible = true;
      lead.missed = 0;
      return lead.at === 'waiting' ? ['reread', 'ping'] : lead.at === 'leading' ? ['reread'] : [];
    case 'tick': {
      // A tab that was frozen itself has missed the answers.
      if (now - lead.tickedAt > TICK_MS + LATE_MS) lead.missed = 0;
      lead.tickedAt = now;
      if (lead.at === 'leading') return ++lead.ticks % LOOK_TICKS === 0 ? ['reread'] : [];
      if (lead.at !== 'waiting' || !lead.visible) return [];
      if (lead.missed >= 2) {
        lead.missed = 0;
        return ['steal'];
      }
      lead.missed++;
      return ['reread', 'ping'];
    }
  }
}
