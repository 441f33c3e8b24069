// Checks what the server sends, before anything else sees it.

import { isObject } from '../core/ended.js';
import type { Event, Message } from '../wire.gen.js';

/** An event of the stream. One of a type that this code doesn't know has the type `unknown`. */
export type StreamEvent = Event | { readonly id?: number; readonly type: 'unknown' };

/**
 * The fields that are used: first the strings, then the integers, then the lists, each with the
 * shape of its elements. Answers of calls begin with $.
 */
const SHAPES: Readonly<Record<string, readonly [string, string, string?]>> = {
  session: ['session_id user_id incarnation', 'event_id heartbeat_seconds'],
  message: ['chat_id message_id sender_id client_message_id content kind created_at',
    'sequence members_version'],
  gap: ['chat_id', 'from_sequence to_sequence'],
  status_member: ['chat_id user_id', 'last_acked_sequence last_read_sequence'],
  status_chat: ['chat_id', 'all_acked_sequence all_read_sequence'],
  own_state: ['chat_id', 'last_acked_sequence last_read_sequence unread_count mention_count'],
  membership: ['chat_id user_id change', 'members_version'],
  chat_updated: ['chat_id', 'version'],
  caught_up: ['', ''],
  reset: ['reason', ''],
  typing: ['chat_id user_id', 'expires_in_seconds'],
  presence: ['chat_id', ''],
  problem: ['code detail', ''],
  $chat: ['chat_id type created_at',
    'head_sequence last_acked_sequence last_read_sequence unread_count member_count version'],
  $chats: ['', '', 'chats:$chat'],
  $messages: ['', '', 'messages:message gaps:gap'],
  $members: ['', 'members_version', 'members:$member'],
  $member: ['user_id', ''],
  $sync: ['', '', 'chats:$of_chat'],
  $results: ['', '', 'results:$of_chat'],
  $of_chat: ['chat_id', ''],
  $counted: ['', '', 'reactions:$reaction'],
  $reaction: ['emoji', 'count'],
  $blocks: ['', '', 'blocks:$member'],
  $receipts: ['read_receipts', ''],
  $pins: ['', '', 'pins:$pin'],
  $pin: ['pinned_by', 'pin_sequence'],
  $poll: ['session_id', '', 'events:$any'],
  $any: ['', ''],
};

/** Reports whether a value has the fields of a shape, each of its type. */
export function has(shape: string, value: unknown): boolean {
  const each = (fields = '', is: (key: string) => boolean): boolean =>
    fields === '' || fields.split(' ').every(is);
  const [strings, integers, lists] = SHAPES[shape] ?? [];
  return isObject(value)
    && each(strings, (key) => typeof value[key] === 'string')
    && each(integers, (key) => isSequence(value[key]))
    && each(lists, (list) => {
      const [key = '', of = ''] = list.split(':');
      const all = value[key];
      return Array.isArray(all) && all.every((one) => has(of, one));
    });
}

export function isSequence(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

/** Returns the event, or undefined if it is broken. */
export function eventOf(id: unknown, type: unknown, payload: unknown): StreamEvent | undefined {
  if (typeof type !== 'string' || (id !== undefined && !isSequence(id))) return undefined;
  // A status of another scope means something that this code doesn't know.
  const shape = type === 'status_update'
    ? `status_${isObject(payload) ? String(payload['scope']) : ''}` : type;
  const numbered = id !== undefined && { id };
  if (!Object.hasOwn(SHAPES, shape)) return { type: 'unknown', ...numbered };
  return has(shape, payload) ? { ...numbered, type, payload } as unknown as Event : undefined;
}

/** Whether this code knows what a message is. One of another kind is stored, and not shown. */
export function isShown(message: Message | null | undefined): message is Message {
  return message?.kind === 'message' || message?.kind === 'system';
}
