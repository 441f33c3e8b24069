// What the page says: names, problems and ticks in words.

import {
  codeOf, type Chat, type Message, type Refused, type Row, type State, type Tick,
} from '@tidemark/client';
import type { Switch } from './network';

export const TICKS: Readonly<Record<Tick, string>> = {
  sending: 'On its way',
  sent: 'Stored',
  delivered: 'Delivered to all',
  read: 'Read by all',
  failed: 'Not sent',
};

const TRANSPORTS = { websocket: 'WebSocket', sse: 'SSE', longpoll: 'long-poll', rest: 'REST' };

export function transportName(transport: keyof typeof TRANSPORTS): string {
  return TRANSPORTS[transport];
}

// What a user can do about a problem. Details of the server are for developers.
const PROBLEMS: Readonly<Record<string, string>> = {
  CONFLICT: 'It was sent before with another text.',
  DENIED: 'You may not do this here.',
  EXPIRED: 'It waited for too long.',
  INTERNAL: 'The server has an error. Try again.',
  INVALID: 'The server does not accept it.',
  INVALID_SEQUENCE: 'The chat has changed meanwhile.',
  NOT_A_MEMBER: 'You are no member of this chat.',
  NOT_FOUND: 'It is not there any more.',
  RATE_LIMITED: 'That was too fast.',
  REPLACED: 'A newer connection of this device took over.',
  SIGNED_OUT: 'Your access has ended.',
  STORE_FULL: 'This device has no space left.',
  STORE_UNAVAILABLE: 'This browser does not keep data.',
  TOO_LARGE: 'It is too long.',
  UNAUTHENTICATED: 'Your access has ended.',
  UNAVAILABLE: 'The server is busy.',
  UNREACHABLE: 'The server does not answer.',
};

/** Says why something did not work. */
export function problemWords(error: unknown): string {
  const code = codeOf(error) ?? 'UNREACHABLE';
  return PROBLEMS[code] ?? `It did not work (${code}).`;
}

/** Says why a message was not changed, or got no reaction or pin. */
export function unchangedWords({ kind, problem }: Refused): string {
  const code = codeOf(problem);
  if (code === 'CONFLICT') {
    return kind === 'edit' ? 'Not saved: it was deleted, or has 100 edits.'
      : 'Not done: it is done already, was deleted, or there are too many.';
  }
  return code === 'INTERNAL' ? 'The server has an error. It may be saved.'
    : `The message stays as it was. ${problemWords(problem)}`;
}

/** Returns the name that the user sees of a chat. */
export function chatName(chat: Chat): string {
  if (chat.name !== '') return chat.name;
  if (chat.peer) return chat.peer.user_id;
  return chat.type === 'group' ? `Group of ${chat.member_count}` : 'Only me';
}

/** Returns the last message in one line. */
export function preview({ chat, last }: Row, user: string): string {
  if (!last) return chat.head_sequence > 0 ? '…' : 'No messages yet';
  const text = messageText(last);
  if (last.sender_id === user) return `You: ${text}`;
  return chat.type === 'group' ? `${last.sender_id}: ${text}` : text;
}

/** Returns the text of a message, or the names of what is attached. */
export function messageText({ content, attachments, revision }: Message): string {
  if (revision?.kind === 'redact') return 'Message deleted';
  if (content !== '') return content;
  return attachments.map(({ name }) => name ?? 'Attachment').join(', ') || 'Empty message';
}

export function plural(n: number, one: string, more = `${one}s`): string {
  return `${n.toLocaleString()} ${n === 1 ? one : more}`;
}

export function typingWords(users: readonly string[]): string {
  if (users.length === 0) return '';
  if (users.length > 2) return `${users.length} people are typing`;
  return `${users.join(' and ')} ${users.length === 1 ? 'is' : 'are'} typing`;
}

/** Returns the state of the connection in a word or two. */
export function stateWords({ phase, transport }: State, power: Switch): string {
  if (power !== 'on') return 'Offline';
  switch (phase) {
    case 'live': return transport ? `Live over ${transportName(transport)}` : 'Live';
    case 'catching-up': return 'Catching up …';
    case 'stopped':
    case 'loading': return 'Starting …';
    case 'connecting': return 'Connecting …';
    default: return 'Not connected';
  }
}
