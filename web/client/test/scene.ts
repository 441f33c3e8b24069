// What tests of stores share. It runs in Node and in a page, so it imports nothing of either.

import { codeOf } from '../src/errors.js';
import type {
  ChatFacts, Entry, NewSend, Store, StoredChat,
} from '../src/types.js';
import type { Chat, Message } from '../src/wire.gen.js';

export const ME = 'alice';
export const SERVER = 'https://chat.example.com';

/** Several stores on the same data, as tabs have them. All data of a scene are its own. */
export interface Scene {
  /** Returns a new store, which is not open. */
  tab(): Store;
}

export interface StoreTest {
  readonly name: string;
  readonly run: (scene: Scene) => Promise<void>;
}

export function check(condition: boolean, what: string): asserts condition {
  if (!condition) throw new Error(what);
}

/** Compares by value. The order of keys counts for nothing, and undefined is no key. */
export function same(got: unknown, want: unknown, what: string): void {
  const [a, b] = [canonical(got), canonical(want)];
  if (a !== b) throw new Error(`${what}:\n  got  ${a}\n  want ${b}`);
}

function canonical(value: unknown): string {
  return JSON.stringify(value, (_, inner: unknown) => {
    if (typeof inner !== 'object' || inner === null || Array.isArray(inner)) return inner;
    return Object.fromEntries(Object.entries(inner).sort(([a], [b]) => a < b ? -1 : 1));
  });
}

/** Fails unless the promise rejects with this code. */
export async function throws(code: string, promise: Promise<unknown>): Promise<void> {
  let got = 'nothing';
  try {
    await promise;
  } catch (error) {
    if (codeOf(error) === code) return;
    got = String(error);
  }
  throw new Error(`threw ${got}, want ${code}`);
}

/** A generator of numbers below n. The same seed gives the same numbers. */
export function dice(seed: number): (n: number) => number {
  let state = seed >>> 0;
  return (n) => {
    state = (state + 0x9e3779b9) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) % n;
  };
}

export function chatOf(chat_id: string): Chat {
  return {
    chat_id, type: 'group', name: chat_id, metadata: null, version: 1, history: 'full',
    created_at: '2026-01-31T10:00:00.000Z', role: 'member', member_count: 3,
    head_sequence: 0, floor_sequence: 1, read_receipts: 'optional', keep_days: null, hold: null,
    closed: false,
    last_acked_sequence: 0, last_read_sequence: 0, unread_from_sequence: null,
    unread_count: 0, mention_count: 0, peer: null, last_message: null,
  };
}

export function factsOf(chat_id: string, facts: Partial<ChatFacts> = {}) {
  return {
    chat_id, chat: chatOf(chat_id), incarnation: 'one', base: 0, acknowledged: 0, readConfirmed: 0,
    boundaries: [], members: ['bob', 'carol'], membersVersion: 1,
    latch: { delivered: 0, read: 0 }, left: false, ...facts,
  };
}

export function messageOf(
  chat_id: string, sequence: number, sender_id = 'bob', kind = 'message',
): Message {
  return {
    chat_id, sequence, message_id: `m${sequence}`, sender_id, kind, content: `text ${sequence}`,
    client_message_id: `c${sequence}`, content_type: 'text/plain', relation: null, revision: null,
    mentions: null, attachments: [], metadata: null, created_at: '2026-01-31T10:00:05.100Z',
    members_version: 1,
  };
}

/** Entries of messages: `[4, 5, [6, 9]]` is two messages of Bob and a gap. */
export function entriesOf(
  chat_id: string, what: readonly (number | readonly [number, number] | Message)[],
): Entry[] {
  return what.map((one) => {
    if (typeof one === 'number') {
      return { chat_id, from: one, to: one, message: messageOf(chat_id, one) };
    }
    if ('sequence' in one) return { chat_id, from: one.sequence, to: one.sequence, message: one };
    return { chat_id, from: one[0], to: one[1] };
  });
}

export function sendOf(id: string, chat_id = 'team', more: Partial<NewSend> = {}): NewSend {
  return {
    client_message_id: id, chat_id, content: `draft ${id}`, seen: 0, after: 0,
    at: 1_700_000_000_000,
    ...more,
  };
}

/** Opens a store of Alice and makes it lead. */
export async function leader(scene: Scene): Promise<{ store: Store; term: number }> {
  const store = scene.tab();
  await store.open(ME, SERVER);
  return { store, term: await store.lead() };
}

/** The same, with a chat `team` that has these entries. */
export async function withTeam(
  scene: Scene, what: Parameters<typeof entriesOf>[1] = [], facts: Partial<ChatFacts> = {},
): Promise<{ store: Store; term: number }> {
  const { store, term } = await leader(scene);
  await store.commit(term, {
    chats: [factsOf('team', facts)], entries: entriesOf('team', what),
  });
  return { store, term };
}

/** The row of a chat as another call sees it. */
export async function rowOf(store: Store, chat_id = 'team'): Promise<StoredChat> {
  const row = (await store.changes(-1)).chats.find(({ chat }) => chat.chat_id === chat_id);
  check(row !== undefined, `no chat ${chat_id}`);
  return row;
}

/** The numbers of a chat that the store computes. */
export async function marksOf(store: Store, chat_id = 'team') {
  const { base, prefix, read, unread, last } = await rowOf(store, chat_id);
  return { base, prefix, read, unread, last: last?.sequence };
}

/** The ranges of a page, such as `3 4-6 7`. */
export async function pageOf(store: Store, before = Infinity, limit = 1000): Promise<string> {
  const page = await store.page('team', before, limit);
  return page.map(({ from, to }) => from === to ? String(from) : `${from}-${to}`).join(' ');
}
