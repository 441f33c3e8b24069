// What the log shows: the items of a timeline with their day, their group and the unread divider.

import type { Item } from '@tidemark/client';
import { dayNumber, dayOf } from './time';

export interface Row {
  readonly key: string;
  readonly item: Item;
  /** Everything up to here is shown when this row is. */
  readonly through?: number;
  readonly at?: Date;
  /** The words of a day line above the row. */
  readonly day?: string;
  /** The first row that was unread when the chat was opened. */
  readonly unread: boolean;
  /** The row begins, and ends, a group of messages of one sender. */
  readonly first: boolean;
  readonly last: boolean;
}

const GROUP_MS = 5 * 60_000;

/** Whether an item counts as unread while it is above the read mark. */
function counts({ mine, message }: Item): boolean {
  return !mine && message?.kind === 'message';
}

/** Returns the rows of a timeline. `unreadKey` is the key of the first unread item. */
export function rowsOf(items: readonly Item[], unreadKey?: string): Row[] {
  const rows: { -readonly [K in keyof Row]: Row[K] }[] = [];
  for (const item of items) {
    const above = rows.at(-1);
    const row: typeof rows[number] = {
      key: item.key, item, unread: item.key === unreadKey, first: true, last: true,
    };
    const through = item.through ?? item.sequence;
    if (through !== undefined) row.through = through;
    if (item.message) row.at = new Date(item.message.created_at);
    const day = row.at && dayNumber(row.at);
    const dayAbove = dayBefore(rows);
    if (row.at && day !== dayAbove) row.day = dayOf(row.at);
    if (above && row.day === undefined && !row.unread && together(above, row)) {
      above.last = false;
      row.first = false;
    }
    rows.push(row);
  }
  return rows;
}

function dayBefore(rows: readonly Row[]): number | undefined {
  for (let i = rows.length - 1; i >= 0; i--) {
    const at = rows[i]?.at;
    if (at) return dayNumber(at);
  }
  return undefined;
}

function together(above: Row, row: Row): boolean {
  const a = above.item;
  const b = row.item;
  if (!isBubble(a) || !isBubble(b) || a.mine !== b.mine) return false;
  if (a.message?.kind === 'system' || b.message?.kind === 'system') return false;
  if (!a.mine && a.message?.sender_id !== b.message?.sender_id) return false;
  if (!above.at || !row.at) return true;
  return row.at.getTime() - above.at.getTime() < GROUP_MS;
}

function isBubble({ kind }: Item): boolean {
  return kind === 'message' || kind === 'waiting';
}

/**
 * Returns the key of the first of the last `unread` messages of others, or undefined if not all of
 * them are loaded.
 */
export function firstUnread(items: readonly Item[], unread: number): string | undefined {
  let left = unread;
  for (let i = items.length - 1; i >= 0 && left > 0; i--) {
    const item = items[i];
    if (item && counts(item) && --left === 0) return item.key;
  }
  return undefined;
}

/** Returns the indices of the rows that contain the words, oldest first. */
export function found(rows: readonly Row[], words: string): number[] {
  const wanted = words.trim().toLocaleLowerCase();
  if (wanted === '') return [];
  const hits: number[] = [];
  rows.forEach(({ item }, i) => {
    if (item.content?.toLocaleLowerCase().includes(wanted)) hits.push(i);
  });
  return hits;
}
