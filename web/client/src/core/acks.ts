// Decides when the client acknowledges what is stored, and reports what was read: 5 s after
// something was stored, 200 ms after something was read, and at once after ten messages. The
// earliest of these times counts for all chats.

import type { StoredChat } from '../types.js';

/** What the server was told of a chat, although it has not confirmed it. */
export interface Said { acked: number; read: number }

export interface Acks {
  /** When the next one is due. Infinity: nothing is. */
  due: number;
  /** How many messages were stored since the last one. */
  fresh: number;
  /** The chats of which something may be owed. */
  readonly chats: Set<string>;
  readonly said: Map<string, Said>;
}

export interface Ack {
  chat_id: string;
  last_acked_sequence?: number;
  last_read_sequence?: number;
}

const MESSAGES = 10;
const READ_AFTER_MS = 200;

export function newAcks(): Acks {
  return { due: Infinity, fresh: 0, chats: new Set(), said: new Map() };
}

/**
 * Returns what is owed of a chat. `limit` is up to where it may be acknowledged: a message that is
 * not stored for good must be shown or handled first. What is read is received, too.
 */
export function owed(row: StoredChat, limit: number, said: Said | undefined): Ack | undefined {
  const read = row.read > Math.max(row.readConfirmed, said?.read ?? 0) ? row.read : 0;
  const acked = Math.max(Math.min(row.prefix, limit), read);
  const ack: Ack = { chat_id: row.chat.chat_id };
  if (acked > Math.max(row.acknowledged, said?.acked ?? 0)) ack.last_acked_sequence = acked;
  if (read > 0) ack.last_read_sequence = read;
  return !row.left && ('last_acked_sequence' in ack || read > 0) ? ack : undefined;
}

/** Notes that a chat may owe something, and that `fresh` messages were stored or shown. */
export function note(
  acks: Acks, row: StoredChat, limit: number, fresh: number, now: number, within: number,
): void {
  const ack = owed(row, limit, acks.said.get(row.chat.chat_id));
  if (!ack) return;
  acks.chats.add(row.chat.chat_id);
  acks.fresh += fresh;
  const wait = acks.fresh >= MESSAGES ? 0 : ack.last_read_sequence ? READ_AFTER_MS : within;
  acks.due = Math.min(acks.due, now + wait);
}

/** Takes up to `most` entries to send now. They count as said. */
export function takeAcks(
  acks: Acks, rows: ReadonlyMap<string, StoredChat>, limitOf: (row: StoredChat) => number,
  most: number,
): Ack[] {
  const taken: Ack[] = [];
  for (const id of acks.chats) {
    if (taken.length === most) break;
    acks.chats.delete(id);
    const row = rows.get(id);
    const said = acks.said.get(id);
    const ack = row && owed(row, limitOf(row), said);
    if (!ack) continue;
    taken.push(ack);
    acks.said.set(id, {
      acked: Math.max(said?.acked ?? 0, ack.last_acked_sequence ?? 0),
      read: Math.max(said?.read ?? 0, ack.last_read_sequence ?? 0),
    });
  }
  acks.due = Infinity;
  acks.fresh = 0;
  return taken;
}

/** Notes that these entries are not confirmed, so that they are sent again. */
export function unsaid(acks: Acks, entries: readonly Ack[]): void {
  for (const { chat_id } of entries) {
    acks.said.delete(chat_id);
    acks.chats.add(chat_id);
  }
}
