// The ranges of a chat that a user may see.

import type { Gap } from '../../wire.gen.js';

/** Both ends are included. `to` is 0 while the user is a member. */
export interface Interval {
  readonly from: number;
  readonly to: number;
}

export function isOpen(intervals: readonly Interval[]): boolean {
  return intervals.at(-1)?.to === 0;
}

export function contains(intervals: readonly Interval[], sequence: number): boolean {
  return intervals.some((i) => sequence >= i.from && (i.to === 0 || sequence <= i.to));
}

/** Returns the intervals after the user has joined a chat with this head. */
export function joined(
  intervals: readonly Interval[], head: number, history: string, returning: boolean,
): readonly Interval[] {
  if (isOpen(intervals)) return intervals;
  const from = !returning && history === 'full' ? 1 : head + 1;
  const last = intervals.at(-1);
  if (last?.to === from - 1) return [...intervals.slice(0, -1), { from: last.from, to: 0 }];
  return [...intervals, { from, to: 0 }];
}

/** Returns the intervals after the user has left a chat with this head. */
export function left(intervals: readonly Interval[], head: number): readonly Interval[] {
  const last = intervals.at(-1);
  if (last?.to !== 0) return intervals;
  const before = intervals.slice(0, -1);
  return last.from > head ? before : [...before, { from: last.from, to: head }];
}

/** A part of a chat that is visible as a whole, or not. */
export interface Piece extends Interval {
  readonly visible: boolean;
}

/** Cuts a range into pieces. The range may be empty. */
export function pieces(intervals: readonly Interval[], from: number, to: number): Piece[] {
  const found: Piece[] = [];
  let next = from;
  for (const i of intervals) {
    const end = i.to === 0 ? to : Math.min(i.to, to);
    if (next > to || end < next) continue;
    if (i.from > next) {
      const hidden = Math.min(i.from - 1, to);
      found.push({ from: next, to: hidden, visible: false });
      next = hidden + 1;
    }
    if (next > to) break;
    found.push({ from: next, to: end, visible: true });
    next = end + 1;
  }
  if (next <= to) found.push({ from: next, to, visible: false });
  return found;
}

export function gapOf(chatId: string, piece: Interval): Gap {
  return {
    chat_id: chatId, from_sequence: piece.from, to_sequence: piece.to, reason: 'not_a_member',
  };
}
