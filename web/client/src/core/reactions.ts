// Reactions to messages. Those to a message in the store are entries above it. Of a page of history
// the server says how many there were up to a sequence. Entries have what came after that.

import type { EmojiCount, Entry, OutboxItem } from '../types.js';
import { has, isSequence, isShown } from '../wire/events.js';
import type { Message, MessageList } from '../wire.gen.js';
import { targetsOf } from './revision.js';

/** The reactions to a message, as the server counted all that are not above a sequence. */
export interface Counted {
  readonly through: number;
  readonly reactions: readonly EmojiCount[];
}

/** What a page of history has counted, by message. An older server counts nothing, through 0. */
export type Counts = ReadonlyMap<number, Counted>;

export function countsOf({ messages, reactions_through_sequence: end }: MessageList): Counts {
  const through = isSequence(end) ? end : 0;
  return new Map(messages.map((message) => [message.sequence, {
    through,
    reactions: has('$counted', message) ? (message.reactions ?? []).map(
      ({ emoji, count, own_sequence: own }) => {
        const mine = isSequence(own);
        return { emoji, count, mine, own: mine ? own : null };
      }) : [],
  }]));
}

/**
 * Returns the messages whose reactions must be asked for, the newest first: a gap above them may
 * hide some. So does a gap that hides a reaction which was undone above it. A server that counts
 * nothing is not asked again.
 */
export function uncounted(entries: readonly Entry[], counts: Counts): number[] {
  const found: number[] = [];
  /** Up to here there may be changes that are not in the entries. */
  let blind = 0;
  const undone: [reaction: number, by: number][] = [];
  for (let i = entries.length - 1; i >= 0; i--) {
    const entry = entries[i];
    if (!entry) continue;
    const { from, to, message } = entry;
    if (!message) {
      const unseen = undone.filter(([reaction]) => reaction >= from && reaction <= to);
      blind = Math.max(blind, to, ...unseen.map(([, by]) => by));
    } else if (message.kind === 'redact') {
      for (const target of targetsOf(message)) undone.push([target, from]);
    } else if (isShown(message)) {
      const through = counts.get(from)?.through;
      if (through !== 0 && (through ?? 0) < blind) found.push(from);
    }
  }
  return found;
}

/**
 * Returns the reactions to each message that has some. What the user has just done counts, although
 * it waits for the server.
 */
export function reactionsOf(
  entries: readonly Entry[], counts: Counts, outbox: readonly OutboxItem[], user: string,
): ReadonlyMap<number, readonly EmojiCount[]> {
  const all = new Map<number, readonly EmojiCount[]>();
  for (const [sequence, { reactions }] of counts) {
    if (reactions.length > 0) all.set(sequence, reactions);
  }
  /** The reactions that are not undone, by their own sequence. */
  const live = new Map<number, Message>();

  /** Adds one reaction to a message, or takes it away, at a sequence. */
  const count = (
    { sequence, emoji }: { sequence: number; emoji?: string | null }, at: number, by: 1 | -1,
    mine: boolean, own: number | null,
  ): void => {
    const old = all.get(sequence) ?? [];
    const known = old.find((one) => one.emoji === emoji);
    if (!emoji || !known && by < 0 || at <= (counts.get(sequence)?.through ?? 0)) return;
    const now = {
      emoji, mine: false, own: null, ...known, count: (known?.count ?? 0) + by,
      ...mine && { mine: by > 0, own },
    };
    const list = known ? old.map((one) => one === known ? now : one) : [...old, now];
    const some = list.filter((one) => one.count > 0);
    if (some.length > 0) all.set(sequence, some);
    else all.delete(sequence);
  };

  for (const { from, message } of entries) {
    if (message?.kind === 'react' && message.relation) {
      count(message.relation, from, 1, message.sender_id === user, from);
      live.set(from, message);
    }
    for (const target of message?.kind === 'redact' ? targetsOf(message) : []) {
      const undone = live.get(target);
      if (!undone?.relation) continue;
      count(undone.relation, from, -1, undone.sender_id === user, null);
      live.delete(target);
    }
  }
  for (const { kind, relation } of outbox) {
    if (!relation) continue;
    const { sequence, emoji } = relation;
    if (kind === 'react') {
      const done = all.get(sequence)?.some((one) => one.mine && one.emoji === emoji);
      if (!done) count(relation, Infinity, 1, true, null);
    } else if (kind === 'redact') {
      // What is no longer among the user's own was undone already.
      for (const [target, list] of all) {
        const own = list.find((one) => one.own === sequence);
        if (own) count({ sequence: target, emoji: own.emoji }, Infinity, -1, true, null);
      }
    }
  }
  return all;
}
