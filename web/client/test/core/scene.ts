// Short ways to make the values of the core's tests.

import type { Chat, Message } from '../../src/wire.gen.js';
import type { OutboxItem, StoredChat } from '../../src/types.js';

export function chat(over: Partial<Chat> = {}): Chat {
  return {
    chat_id: 'team', type: 'group', name: '', metadata: null, version: 1, history: 'full',
    created_at: '2026-01-31T10:00:00.000Z', role: 'member', member_count: 3, head_sequence: 0,
    floor_sequence: 1, read_receipts: 'optional', keep_days: null, hold: null, closed: false,
    last_acked_sequence: 0, last_read_sequence: 0, unread_count: 0, mention_count: 0,
    unread_from_sequence: null, peer: null, last_message: null, ...over,
  };
}

export function message(sequence: number, over: Partial<Message> = {}): Message {
  return {
    chat_id: 'team', sequence, message_id: `m${sequence}`, sender_id: 'bob',
    client_message_id: `c${sequence}`, content: `text ${sequence}`, content_type: 'text/plain',
    kind: 'message', relation: null, revision: null, mentions: null, attachments: [],
    metadata: null, created_at: '2026-01-31T10:00:05.000Z', members_version: 1, ...over,
  };
}

export function row(over: Partial<StoredChat> = {}): StoredChat {
  return {
    chat: chat(), incarnation: 'one', base: 0, acknowledged: 0, readConfirmed: 0, boundaries: [],
    members: ['bob', 'cid'], membersVersion: 1, latch: { delivered: 0, read: 0 }, left: false,
    prefix: 0, unread: 0, read: 0, rev: 1, ...over,
  };
}

export function item(ordinal: number, over: Partial<OutboxItem> = {}): OutboxItem {
  return {
    client_message_id: `c${ordinal}`, chat_id: 'team', content: `text ${ordinal}`, seen: 0,
    after: 0, at: 0, ordinal, state: 'due', ...over,
  };
}
