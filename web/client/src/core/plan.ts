// Turns events of the stream into one step of the store.

import { isSequence, type StreamEvent } from '../wire/events.js';
import type { Gap, Message, OwnState, StatusUpdate } from '../wire.gen.js';
import type { ChatFacts, Entry, OutboxItem, StoredChat } from '../types.js';
import { FACTS, counts, grown, withLatch } from './chats.js';
import { lacks, targetsOf } from './revision.js';
import { merged } from './ticks.js';

/** A step under construction. */
export interface Draft {
  entries: Entry[];
  chats: ({ chat_id: string } & Partial<ChatFacts>)[];
  read: { chat_id: string; through: number }[];
  sent: string[];
}

export interface Plan {
  readonly change: Draft;
  /** What was left out, by chat: the highest sequence. */
  readonly discarded: ReadonlyMap<string, number>;
  /** Chats of which the server must be asked. */
  readonly refresh: ReadonlySet<string>;
  /** A message was left out, because it lacks a change that came before it. */
  readonly outdated: boolean;
  /** The server needs the cursors. */
  readonly reset: boolean;
  readonly caughtUp: boolean;
}

/** What a plan is made from. */
export interface Known {
  readonly user: string;
  /** That of the session. */
  readonly incarnation: string;
  readonly chats: ReadonlyMap<string, StoredChat>;
  readonly outbox: readonly OutboxItem[];
  /** Up to where a chat was acknowledged on this connection. */
  readonly said: (chat: string) => number;
  /** Up to where the application has handled a chat. Infinity: it handles nothing. */
  readonly handled: (chat: string) => number;
  /**
   * The changes of messages that are not stored yet: the sequence of the last one, by incarnation,
   * chat and message. A plan adds to it. An answer that was on its way meanwhile lacks them.
   */
  readonly ahead: Map<string, number>;
}

export function entryOf(message: Message): Entry {
  return { chat_id: message.chat_id, from: message.sequence, to: message.sequence, message };
}

export function gapOf({ chat_id, from_sequence: from, to_sequence: to }: Gap): Entry {
  return { chat_id, from, to };
}

/** Returns the entries of a page of history, ascending. */
export function entriesOf(page: {
  readonly messages: readonly Message[]; readonly gaps: readonly Gap[];
}): Entry[] {
  return [...page.messages.map(entryOf), ...page.gaps.map(gapOf)].sort((a, b) => a.from - b.from);
}

/** The ids of the sends that these messages are. */
export function sentBy(
  user: string, outbox: readonly OutboxItem[], entries: readonly Entry[],
): string[] {
  const mine = new Set(entries.flatMap(({ message }) =>
    message?.sender_id === user ? `${message.chat_id} ${message.client_message_id}` : []));
  return outbox.filter((item) => mine.has(`${item.chat_id} ${item.client_message_id}`))
    .map((item) => item.client_message_id);
}

/**
 * Returns what events change, after the entries of an answer. Messages and gaps of a chat that is
 * not known are left out, and those of a chat whose stored data are of another incarnation: a sync
 * brings them again.
 */
export function planOf(
  known: Known, events: readonly StreamEvent[], answer: readonly Entry[] = [],
): Plan {
  const { user, incarnation, chats, outbox, ahead, handled } = known;
  const entries: Entry[] = [];
  const facts = new Map<string, ChatFacts>();
  const read: Draft['read'] = [];
  const discarded = new Map<string, number>();
  const refresh = new Set<string>();
  let outdated = false;
  let reset = false;
  let caughtUp = false;

  const of = (id: string): ChatFacts | undefined => facts.get(id) ?? chats.get(id);
  const change = (id: string, part: (old: ChatFacts) => Partial<ChatFacts>): void => {
    const old = of(id);
    if (old) facts.set(id, { ...old, ...withLatch(part(old), old) });
  };

  const take = (entry: Entry): void => {
    const { chat_id: id, message } = entry;
    if (of(id)?.incarnation !== incarnation) {
      discarded.set(id, entry.to);
      return;
    }
    const keyOf = (sequence: number): string => `${incarnation} ${id} ${sequence}`;
    if (message && lacks(message, ahead.get(keyOf(entry.from)) ?? 0)) {
      discarded.set(id, entry.to);
      outdated = true;
      return;
    }
    const { prefix = 0 } = chats.get(id) ?? {};
    // A gap may have changes of what is below it. The server has that as it is now.
    if (!message) change(id, (old) => ({
      base: Math.max(old.base, Math.min(entry.from - 1, prefix, handled(id))),
    }));
    for (const target of targetsOf(message)) {
      if (target > prefix) ahead.set(keyOf(target), entry.from);
    }
    entries.push(entry);
    // Only the server knows whom the message mentioned when it was sent.
    if (message?.revision && counts(message, user)) refresh.add(id);
    change(id, (old) => ({
      chat: grown(old.chat, entry, user),
      // The list of members is older than this message, whose tick it can't decide.
      ...(message?.members_version ?? 0) > old.membersVersion && old.chat.type !== 'direct'
        && { members: null, membersVersion: message?.members_version ?? 0 },
    }));
  };

  const status = (update: StatusUpdate): void => {
    change(update.chat_id, (old) => {
      if (update.scope === 'member' && update.user_id === user) {
        const { last_acked_sequence: acked, last_read_sequence: read } = update;
        // What was only read shows as acknowledged, too. Then our own word counts.
        const sure = acked > read ? acked : Math.min(acked, known.said(old.chat.chat_id));
        return {
          acknowledged: Math.max(old.acknowledged, sure),
          readConfirmed: Math.max(old.readConfirmed, read),
        };
      }
      // After a restore, what is stored may not be what the others have received.
      return old.incarnation === incarnation
        ? { boundaries: merged(old.boundaries, [update]) } : {};
    });
  };

  const own = (state: OwnState): void => {
    const { chat_id: id, last_acked_sequence: acked, last_read_sequence: through } = state;
    read.push({ chat_id: id, through });
    const numbers = {
      unread_from_sequence: state.unread_from_sequence,
      unread_count: state.unread_count,
      mention_count: state.mention_count,
      last_read_sequence: through,
    };
    change(id, (old) => ({
      acknowledged: Math.max(old.acknowledged, acked),
      readConfirmed: Math.max(old.readConfirmed, through),
      // The user has read further here, and that is on its way.
      ...through >= (chats.get(id)?.read ?? 0) && { chat: { ...old.chat, ...numbers } },
    }));
  };

  answer.forEach(take);
  for (const event of events) {
    switch (event.type) {
      case 'message': take(entryOf(event.payload)); break;
      case 'gap': take(gapOf(event.payload)); break;
      case 'status_update': status(event.payload); break;
      case 'own_state': own(event.payload); break;
      case 'membership': {
        const { chat_id: id, members_version: version } = event.payload;
        change(id, (old) => version > old.membersVersion && old.chat.type !== 'direct'
          ? { members: null, membersVersion: version } : {});
        refresh.add(id);
        break;
      }
      case 'chat_updated': {
        const { chat_id: id, version } = event.payload;
        if (version > (of(id)?.chat.version ?? 0)) refresh.add(id);
        break;
      }
      case 'caught_up': caughtUp = true; break;
      // A refused cursor is in the answer of the sync, too. A lost session was announced already.
      case 'reset':
        reset ||= event.payload.chat_id === null && event.payload.reason !== 'unknown_session';
        break;
      default:
    }
  }
  return {
    change: {
      entries,
      chats: [...facts].map(([id, all]) => ({ ...changed(chats.get(id), all), chat_id: id })),
      read,
      sent: sentBy(user, outbox, entries),
    },
    discarded, outdated, refresh, reset, caughtUp,
  };
}

/** The facts that differ. */
function changed(old: ChatFacts | undefined, now: ChatFacts): Partial<ChatFacts> {
  return Object.fromEntries(FACTS.filter((key) => now[key] !== old?.[key])
    .map((key) => [key, now[key]]));
}

/** The chats of messages and gaps that the client doesn't know. */
export function unknownChats(
  chats: ReadonlyMap<string, unknown>, events: readonly StreamEvent[],
): ReadonlySet<string> {
  return new Set(events.flatMap((event) =>
    (event.type === 'message' || event.type === 'gap') && !chats.has(event.payload.chat_id)
      ? event.payload.chat_id : []));
}

/** Returns the last number of events, or undefined. */
export function lastId(events: readonly StreamEvent[]): number | undefined {
  return events.reduce<number | undefined>((last, event) => {
    const id: unknown = 'id' in event ? event.id : undefined;
    return isSequence(id) ? id : last;
  }, undefined);
}
