// What the client keeps of a chat, and shows of it.

import { isShown } from '../wire/events.js';
import type { Chat, Message, StatusUpdate } from '../wire.gen.js';
import type { ChatFacts, Entry, Row, StoredChat, Unread } from '../types.js';
import { isOlder } from './revision.js';
import { latchOf, merged } from './ticks.js';

/** A device that is further behind than that does not fetch what other devices have received. */
const FAR_BEHIND = 500;

/** What a leader keeps of a chat, by name. */
export const FACTS = ['chat', 'incarnation', 'base', 'acknowledged', 'readConfirmed', 'boundaries',
  'members', 'membersVersion', 'latch', 'left'] as const;

/** New facts of a chat, and what another device has read. */
export interface News { facts: Partial<ChatFacts>; read: number }

/** An answer may be older than what the stream has brought. */
function newest(chat: Chat, { chat: old, last }: StoredChat): Chat {
  const { head_sequence, unread_count, mention_count, last_message } = old;
  if (head_sequence > chat.head_sequence) {
    return { ...chat, head_sequence, unread_count, mention_count, last_message };
  }
  const told = chat.last_message;
  return told && last && told.sequence <= last.sequence && !isOlder(last, told)
    ? { ...chat, last_message: last } : chat;
}

/**
 * Returns what an answer of the server says of a chat. The base of a new chat is its read mark, but
 * at most 500 below what is acknowledged. So unread messages come again after a store was lost.
 */
export function factsOf(chat: Chat, old: StoredChat | undefined, incarnation: string): News {
  const read = chat.last_read_sequence ?? 0;
  const acknowledged = chat.last_acked_sequence ?? 0;
  const base = baseOf(acknowledged, read);
  // NaN if a node of an older version has answered: then nothing has expired.
  const expired = chat.floor_sequence - 1;
  const same = old?.incarnation === incarnation ? old : undefined;
  const peer = chat.peer;
  const listed = chat.last_message?.members_version ?? 0;
  const status: StatusUpdate[] = peer ? [{
    chat_id: chat.chat_id, scope: 'member', acked_at: null, read_at: null, ...peer,
  }] : [];
  const facts: Partial<ChatFacts> = {
    chat: same ? newest(chat, same) : chat,
    left: chat.role === null,
    // After a restore, what is stored may not be what the peer has received.
    boundaries: old && !same ? old.boundaries : merged(old?.boundaries ?? [], status),
    // Restored data may lack what the server had confirmed.
    acknowledged: Math.max(acknowledged, same?.acknowledged ?? 0),
    readConfirmed: Math.max(read, same?.readConfirmed ?? 0),
    ...!same && { membersVersion: 0 },
    ...peer ? { members: [peer.user_id] } : !same && { members: null },
    // The list of members is older than this message, whose tick it can't decide.
    ...!peer && listed > (same?.membersVersion ?? 0) && { members: null, membersVersion: listed },
    ...!old && { incarnation, base, latch: { delivered: 0, read: 0 } },
    // What has expired is forgotten.
    ...same && expired > same.base && { base: expired },
    ...same && base > same.prefix && acknowledged - same.prefix > FAR_BEHIND && { base },
  };
  return { facts: withLatch(facts, old), read };
}

const baseOf = (acknowledged: number, read: number): number =>
  read >= acknowledged ? acknowledged : Math.max(read, acknowledged - FAR_BEHIND);

/**
 * Returns what a store takes over from the one that was lost before it: chats that it doesn't know,
 * and the ticks that were shown.
 */
export function carriedTo(
  chats: ReadonlyMap<string, StoredChat>, old: readonly StoredChat[],
): ({ chat_id: string } & Partial<ChatFacts>)[] {
  return old.flatMap((row): ({ chat_id: string } & Partial<ChatFacts>)[] => {
    const { prefix, read, chat: { chat_id } } = row;
    const known = chats.get(chat_id);
    if (!known) {
      const facts = Object.fromEntries(FACTS.map((key) => [key, row[key]]));
      return [{ ...facts, chat_id, base: Math.min(prefix, baseOf(row.acknowledged, read)) }];
    }
    const latch = {
      delivered: Math.max(known.latch.delivered, row.latch.delivered),
      read: Math.max(known.latch.read, row.latch.read),
    };
    return known.incarnation === row.incarnation ? [{ chat_id, latch }] : [];
  });
}

/** Adds the latch that the facts reach. */
export function withLatch(facts: Partial<ChatFacts>, old?: ChatFacts): Partial<ChatFacts> {
  const { chat, latch, boundaries = [], members = null } = { ...old, ...facts };
  return chat && latch ? { ...facts, latch: latchOf({ chat, latch, boundaries, members }) } : facts;
}

/** Whether a message counts as unread, if it is above what the user has read. */
export function counts(message: Message, user: string): boolean {
  return message.kind === 'message' && message.sender_id !== user;
}

/**
 * Returns the chat after an entry that follows its head. One further above leaves it as it is: what
 * is missing would not be counted.
 */
export function grown(chat: Chat, { from, to, message }: Entry, user: string): Chat {
  const { head_sequence: head } = chat;
  if (to <= head || from > head + 1) return chat;
  const unread = message && counts(message, user) ? 1 : 0;
  const mentions = message?.mentions;
  const mentioned = unread && (mentions?.all === true || mentions?.user_ids.includes(user));
  return {
    ...chat,
    head_sequence: to,
    unread_count: (chat.unread_count ?? 0) + unread,
    mention_count: (chat.mention_count ?? 0) + (mentioned ? 1 : 0),
  };
}

/**
 * Returns how many messages are unread. The store counts exactly what lies above its base. The
 * server's count is exact too, until the user reads further on this device.
 */
export function unreadOf({ chat, read, base, prefix, unread }: StoredChat): Omit<Unread, 'total'>
  & { unread: number } {
  const whole = prefix >= chat.head_sequence;
  if (read > (chat.last_read_sequence ?? 0)) return { unread, atLeast: base > read || !whole };
  const stored = base <= read && whole && chat.unread_from_sequence === null;
  return { unread: stored ? unread : chat.unread_count ?? 0, atLeast: false };
}

/** Returns the row of the list of chats. */
export function rowOf(stored: StoredChat): Row {
  const { chat, prefix, left, last } = stored;
  const told = chat.last_message;
  const newest = isShown(told) && told.sequence > (last?.sequence ?? 0) ? told : last;
  return {
    chat, prefix, left, ...unreadOf(stored), ...isShown(newest) && { last: newest },
  };
}

const activity = ({ last, chat }: Row) =>
  (last ?? chat.last_message ?? chat).created_at;

/** Orders rows by activity, the latest first. */
export function byActivity(a: Row, b: Row): number {
  const [one, other] = [activity(a), activity(b)];
  return one < other ? 1 : one > other ? -1 : a.chat.chat_id < b.chat.chat_id ? -1 : 1;
}
