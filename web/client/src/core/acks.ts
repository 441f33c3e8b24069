// Decides when the client acknowledges what is stored, and reports what was read: 5 s after
// something was stored, 200 ms after something was read, and at once after ten messages. The
// earliest of these times counts for all chats.
//
// Own messages wait. The server raises the marks of an author by itself, and its stream says so
// within 5 s. The client acknowledges own messages only if it was not told that within 6 s.

import type { StoredChat } from '../types.js';

/** What the server was told of a chat, although it has not confirmed it. */
export interface Said { acked: number; read: number }

/** The messages of the user at the end of what is stored without holes. */
interface Own {
  readonly incarnation: string;
  readonly from: number;
  to: number;
  /** What was owed when the wait for the server's word began, and when it is over. */
  ack?: Ack;
  until: number;
}

export interface Acks {
  /** When the next one is due. Infinity: nothing is. */
  due: number;
  /** How many messages were stored since the last one. */
  fresh: number;
  /** The chats of which something may be owed. */
  readonly chats: Set<string>;
  readonly said: Map<string, Said>;
  readonly own: Map<string, Own>;
}

export interface Ack {
  chat_id: string;
  last_acked_sequence?: number;
  last_read_sequence?: number;
}

const MESSAGES = 10;
const READ_AFTER_MS = 200;
const OWN_MS = 6_000;

export function newAcks(): Acks {
  return { due: Infinity, fresh: 0, chats: new Set(), said: new Map(), own: new Map() };
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

/** Looks whether the last message is of the user. */
function follow({ own }: Acks, row: StoredChat, user: string): void {
  const { chat: { chat_id: id }, incarnation, prefix, last } = row;
  const old = own.get(id);
  if (last?.sequence !== prefix || last.sender_id !== user) own.delete(id);
  else if (old?.incarnation === incarnation && old.from <= prefix && old.to >= prefix - 1) {
    old.to = prefix;
  } else own.set(id, { incarnation, from: prefix, to: prefix, until: 0 });
}

/** Returns up to where the server was told: by acknowledgements, or own messages that join them. */
export function toldOf({ said, own }: Acks, { chat: { chat_id: id }, acknowledged }: StoredChat):
number {
  const acked = said.get(id)?.acked ?? 0;
  const run = own.get(id);
  return run && run.from <= Math.max(acknowledged, acked) + 1 ? run.to : acked;
}

/**
 * Returns until when an entry waits for the server's word. It is 0 if something in it is not of the
 * user, or does not join what the server has or was told.
 */
function waitOf(acks: Acks, row: StoredChat, ack: Ack, now: number): number {
  const id = row.chat.chat_id;
  const run = acks.own.get(id);
  const read = Math.max(row.readConfirmed, acks.said.get(id)?.read ?? 0);
  if (!run || run.from > toldOf(acks, row) || ack.last_read_sequence && run.from > read + 1) {
    return 0;
  }
  // It waits again when the server has kept up.
  const { last_acked_sequence: a = 0, last_read_sequence: r = 0 } = run.ack ?? {};
  if (row.acknowledged >= a && row.readConfirmed >= r) {
    run.ack = ack;
    run.until = now + OWN_MS;
  }
  return run.until;
}

/** Notes that a chat of the user may owe something. `fresh` messages were stored or shown. */
export function note(
  acks: Acks, row: StoredChat, limit: number, fresh: number, now: number, within: number,
  user: string,
): void {
  follow(acks, row, user);
  const ack = owed(row, limit, acks.said.get(row.chat.chat_id));
  if (!ack) return;
  acks.chats.add(row.chat.chat_id);
  let due = waitOf(acks, row, ack, now);
  if (!due) {
    acks.fresh += fresh;
    due = now + (acks.fresh >= MESSAGES ? 0 : ack.last_read_sequence ? READ_AFTER_MS : within);
  }
  acks.due = Math.min(acks.due, due);
}

/**
 * Takes up to `most` entries to send now. They count as said. Those that wait at `now` stay, and
 * none waits at Infinity.
 */
export function takeAcks(
  acks: Acks, rows: ReadonlyMap<string, StoredChat>, limitOf: (row: StoredChat) => number,
  most: number, now: number,
): Ack[] {
  const taken: Ack[] = [];
  acks.due = Infinity;
  acks.fresh = 0;
  for (const id of acks.chats) {
    if (taken.length === most) break;
    const row = rows.get(id);
    const said = acks.said.get(id);
    const ack = row && owed(row, limitOf(row), said);
    const until = ack ? waitOf(acks, row, ack, now) : 0;
    if (until > now) {
      acks.due = Math.min(acks.due, until);
      continue;
    }
    acks.chats.delete(id);
    if (!ack) continue;
    taken.push(ack);
    delete acks.own.get(id)?.ack;
    acks.said.set(id, {
      acked: Math.max(said?.acked ?? 0, ack.last_acked_sequence ?? 0),
      read: Math.max(said?.read ?? 0, ack.last_read_sequence ?? 0),
    });
  }
  return taken;
}

/** Notes that these entries are not confirmed, so that they are sent again. */
export function unsaid(acks: Acks, entries: readonly Ack[]): void {
  for (const { chat_id } of entries) {
    acks.said.delete(chat_id);
    acks.chats.add(chat_id);
  }
}
