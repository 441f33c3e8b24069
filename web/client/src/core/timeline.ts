// What a timeline shows of its entries.

import type { Entry, Item, OutboxItem, StoredChat } from '../types.js';
import { isShown } from '../wire/events.js';
import { reactionsOf, type Counts } from './reactions.js';
import { lacks, targetsOf } from './revision.js';
import { tickOf } from './ticks.js';

/** The commands of a send that waits. */
export type Commands = (item: OutboxItem) => Pick<Item, 'retry' | 'discard'>;

/** Whether an entry has an item: a message that is shown, or a gap. */
export const hasItem = ({ message }: Entry): boolean => !message || isShown(message);

/** Merges entries into ascending ones, of which a later one with the same `from` wins. */
export function mergedEntries(old: readonly Entry[], news: readonly Entry[]): readonly Entry[] {
  const all = new Map([...old, ...news].map((entry) => [entry.from, entry]));
  return [...all.values()].sort((a, b) => a.from - b.from);
}

/**
 * Returns the sequence of each message that lacks a change in `entries`, and whether the change is
 * a redaction. A reaction or a pin has no text that could be left.
 */
export function outdated(entries: readonly Entry[]): ReadonlyMap<number, boolean> {
  const all = new Map(entries.map(({ from, message }) => [from, message]));
  const found = new Map<number, boolean>();
  for (const { from, message: change } of entries) {
    for (const target of targetsOf(change)) {
      const message = all.get(target);
      if (!message || message.relation || !lacks(message, from)) continue;
      found.set(target, found.get(target) === true || change?.kind === 'redact');
    }
  }
  return found;
}

/** Returns the entries, with the content of redacted messages removed. */
export function wiped(entries: readonly Entry[]): readonly Entry[] {
  const old = outdated(entries);
  if (![...old.values()].includes(true)) return entries;
  return entries.map((entry) => !entry.message || old.get(entry.from) !== true ? entry : {
    ...entry,
    message: { ...entry.message, content: '', attachments: [], metadata: null, mentions: null },
  });
}

/** Returns the last entries that follow each other without a hole and end at `end`. */
export function contiguous(entries: readonly Entry[], end: number): readonly Entry[] {
  let low = end + 1;
  let i = entries.length;
  for (; i > 0; i--) {
    const entry = entries[i - 1];
    if (!entry || entry.to < low - 1) break;
    low = entry.from;
  }
  return entries.slice(i);
}

/** Returns the last sequence that is read with entry i: what follows it and is not shown counts. */
function throughOf(entries: readonly Entry[], i: number): number {
  let through = entries[i]?.to ?? 0;
  for (let next = i + 1; next < entries.length; next++) {
    const entry = entries[next];
    if (entry?.from !== through + 1 || !entry.message || isShown(entry.message)) break;
    through = entry.to;
  }
  return through;
}

/**
 * Returns the items: entries, then sends that wait. What has not changed is the same object as in
 * `old`, the whole list too.
 */
export function itemsOf(
  entries: readonly Entry[], outbox: readonly OutboxItem[], row: StoredChat | undefined,
  user: string, commands: Commands, old: readonly Item[], counts: Counts = new Map(),
): readonly Item[] {
  const before = new Map(old.map((item) => [item.key, item]));
  const items: Item[] = [];
  const sent = new Set<string>();
  const push = (item: Item): void => {
    const same = before.get(item.key);
    items.push(same && same.kind === item.kind && same.tick === item.tick
      && same.message === item.message && same.problem === item.problem
      && same.content === item.content && same.revising === item.revising
      && same.through === item.through
      && JSON.stringify(same.reactions) === JSON.stringify(item.reactions) ? same : item);
  };
  const changes = new Map(outbox.filter(({ kind }) => kind === 'edit' || kind === 'redact')
    .map((item) => [item.relation?.sequence, item]));
  const revisingOf = (kind: OutboxItem['kind']) =>
    (kind === 'edit' || kind === 'redact') && { revising: kind };
  const all = reactionsOf(entries, counts, outbox, user);
  let end = entries[0]?.from ?? 0;
  for (const [i, { from, to, message }] of entries.entries()) {
    if (from > end) push({ key: `h${end}`, kind: 'hole', mine: false, sequence: end });
    end = to + 1;
    if (!message) {
      push({ key: `g${from}`, kind: 'gap', mine: false, sequence: from });
    } else if (isShown(message)) {
      const mine = message.sender_id === user;
      const { client_message_id: id } = message;
      if (mine) sent.add(id);
      const change = changes.get(from);
      const { content = '' } = change ?? message;
      const reactions = message.revision?.kind === 'redact' ? undefined : all.get(from);
      push({
        key: mine ? `c${id}` : `s${from}`, kind: 'message', mine, sequence: from,
        through: throughOf(entries, i), content, message,
        ...revisingOf(change?.kind), ...reactions && { reactions },
        ...mine && { tick: tickOf(from, row?.latch ?? { delivered: 0, read: 0 }) },
      });
    }
  }
  for (const item of outbox) {
    const { client_message_id: id, content = '', state, problem } = item;
    if (sent.has(id) || item.kind) continue;
    push({
      key: `c${id}`, kind: 'waiting', mine: true, content,
      tick: state === 'due' ? 'sending' : 'failed', ...problem && { problem }, ...commands(item),
    });
  }
  return items.length === old.length && items.every((item, i) => item === old[i]) ? old : items;
}
