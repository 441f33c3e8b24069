// What happens in a simulation: steps as data, so that a failing run can be made smaller.

import { Dice } from '../../src/testing/random.js';

/** What may happen. The names are those that the test counts. */
export const ops = [
  // People.
  'send', 'burst', 'edit', 'redact', 'change elsewhere', 'react', 'unreact', 'see', 'see less',
  'type', 'older', 'open tab', 'close tab', 'crash tab',
  'hide tab', 'show tab', 'blur tab', 'freeze tab', 'resume tab', 'leave page', 'back', 'stop',
  'start', 'sign out', 'sign in', 'retry now', 'too large', 'new chat', 'read elsewhere',
  // Members.
  'add member', 'remove member', 'rename chat', 'newcomer',
  // The network of a browser.
  'offline', 'online', 'cut', 'cut half', 'vanish', 'portal', 'buffer streams', 'block websocket',
  'mend network', 'drop', 'lose', 'hang', 'double', 'slow', 'half', 'reorder',
  // The server.
  'restart', 'kill', 'backup', 'restore', 'revoke tokens', 'refuse tokens', 'end sessions', 'busy',
  'rate limit', 'unavailable', 'poison', 'slow opens', 'late statuses',
  // The disk.
  'crash before', 'crash after', 'full', 'store unavailable', 'store unknown', 'store slow',
  'store lost', 'evict', 'twin',
  // The rest.
  'lose notices', 'foreign token', 'clock wrong', 'sleep', 'long sleep',
] as const;

export type Op = (typeof ops)[number];

/** One decision: wait, then do something. The numbers say to whom and how. */
export interface Step {
  readonly wait: number;
  readonly op: Op;
  readonly a: number;
  readonly b: number;
  readonly c: number;
}

/** What people do all the time. */
const common: readonly Op[] = ['send', 'send', 'send', 'burst', 'edit', 'redact',
  'change elsewhere', 'react', 'react', 'unreact', 'see', 'see', 'see less', 'online', 'show tab',
  'start', 'resume tab', 'open tab', 'mend network', 'back', 'sign in'];

/** What goes wrong together. */
const themes: readonly (readonly Op[])[] = [
  ['backup', 'restore', 'restart', 'kill', 'cut'],
  ['offline', 'cut', 'cut half', 'vanish', 'drop', 'lose', 'hang', 'double', 'slow', 'half',
    'reorder'],
  ['portal', 'buffer streams', 'block websocket', 'cut', 'restart', 'slow opens'],
  ['hide tab', 'blur tab', 'freeze tab', 'leave page', 'close tab', 'crash tab', 'lose notices',
    'stop', 'sleep', 'long sleep', 'retry now'],
  ['crash before', 'crash after', 'full', 'store unavailable', 'store unknown', 'store slow',
    'store lost', 'evict', 'twin', 'crash tab'],
  ['revoke tokens', 'refuse tokens', 'foreign token', 'sign out', 'end sessions', 'clock wrong',
    'twin', 'sleep'],
  ['busy', 'rate limit', 'unavailable', 'poison', 'slow opens', 'too large', 'restart'],
  ['add member', 'remove member', 'rename chat', 'newcomer', 'new chat', 'read elsewhere', 'type',
    'older', 'cut', 'sleep', 'late statuses'],
];

const waits = [0, 0, 1, 20, 20, 60, 60, 150, 150, 400, 400, 1000, 1000, 3000, 6000, 15_000];

/** Returns the steps of a seed. Each run has few kinds of faults: one may hide another. */
export function stepsOf(seed: number): Step[] {
  const dice = new Dice(seed, 11);
  const enabled: Op[] = ops.filter((op) => !common.includes(op) && dice.oneIn(12));
  for (let n = 1 + dice.roll(2); n > 0; n--) enabled.push(...dice.pick(themes));
  const steps: Step[] = [];
  const length = 12 + dice.roll(50);
  for (let i = 0; i < length; i++) {
    const op = enabled.length > 0 && dice.oneIn(2) ? dice.pick(enabled) : dice.pick(common);
    const wait = dice.pick(waits);
    steps.push({
      wait: wait + dice.roll(wait + 1), op, a: dice.roll(1000), b: dice.roll(1000),
      c: dice.roll(1000),
    });
  }
  return steps;
}
