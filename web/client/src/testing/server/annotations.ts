// Reactions and pins. The fake server finds them among the messages.

import type { Message, ReactionCount } from '../../wire.gen.js';
import type { ChatRecord, Draft } from './data.js';
import { Refusal } from './refusal.js';

/** The reactions of a user to a message, and the pins of a chat, are at most so many. */
const mostReactions = 20;
const mostPins = 50;
const mostEdits = 100;

const isRedacted = (message: Message): boolean => message.revision?.kind === 'redact';

/** Returns the reactions or pins that stand, ascending: all, or those of one message. */
export function standing(chat: ChatRecord, kind: 'react' | 'pin', target?: number): Message[] {
  return chat.messages.filter((message) => message.kind === kind && !isRedacted(message)
    && (target === undefined || message.relation?.sequence === target));
}

/** What a page of messages says of the reactions to one of them. */
export function reactionsTo(
  chat: ChatRecord, message: Message, user: string,
): ReactionCount[] {
  if (isRedacted(message)) return [];
  const counts = new Map<string, { count: number; own: number | null }>();
  for (const { relation, sequence, sender_id } of standing(chat, 'react', message.sequence)) {
    const emoji = relation?.emoji ?? '';
    const { count, own } = counts.get(emoji) ?? { count: 0, own: null };
    counts.set(emoji, { count: count + 1, own: sender_id === user ? sequence : own });
  }
  return [...counts].map(([emoji, { count, own }]) => ({ emoji, count, own_sequence: own }));
}

/** Whether a member may pin and unpin messages. */
export function mayPin(chat: ChatRecord, user: string): boolean {
  return chat.type === 'direct'
    || ['owner', 'admin'].includes(chat.members.get(user)?.role ?? '');
}

/** Throws unless a user may do to a message what a draft says. */
export function mayRelate(
  user: string, draft: Draft, chat: ChatRecord, sequence: number, backend: boolean,
  field: string,
): void {
  const refuse = (code: string, why: string, param = field): never => {
    throw new Refusal(code, why, param);
  };
  const target = chat.messages[sequence - 1];
  if (target === undefined) return refuse('NOT_FOUND', 'there is no such message');
  const pins = backend || mayPin(chat, user);
  const manages = chat.type === 'group' && mayPin(chat, user);
  const isMine = target.sender_id === user && target.kind !== 'system';
  const isAnnotation = target.kind === 'react' || target.kind === 'pin';
  if (draft.kind === 'react' || draft.kind === 'pin') {
    if (draft.kind === 'pin' && !pins) refuse('DENIED', 'the user may not pin', 'kind');
    if (target.kind !== 'message' && target.kind !== 'system' || isRedacted(target)) {
      refuse('CONFLICT', 'the message takes no reactions and pins');
    }
    standsAlone(user, draft, chat, sequence, refuse);
    return;
  }
  const redacts = draft.kind === 'redact';
  const may = redacts && target.kind === 'pin' ? pins
    : backend || isMine || redacts && manages;
  if (!may) refuse('DENIED', 'the user may not change the message');
  if (target.relation !== null && !(isAnnotation && redacts)) {
    refuse('CONFLICT', 'the message cannot be changed');
  }
  if (isAnnotation && draft.list !== null) refuse('CONFLICT', 'it is undone by itself');
  if (isAnnotation && isRedacted(target)) refuse('CONFLICT', 'it was undone already');
  if (redacts) return;
  if (isRedacted(target)) refuse('CONFLICT', 'the message is redacted');
  const edits = chat.messages.filter(({ kind, relation }) =>
    kind === 'edit' && relation?.sequence === sequence).length;
  if (edits >= mostEdits) refuse('CONFLICT', 'the message was edited 100 times');
}

/** Throws if a reaction or a pin stands already, or there are too many. */
function standsAlone(
  user: string, { kind, emoji }: Draft, chat: ChatRecord, target: number,
  refuse: (code: string, why: string, param?: string) => void,
): void {
  if (kind === 'pin') {
    const [pin] = standing(chat, 'pin', target);
    if (pin) refuse('CONFLICT', `the message is pinned by ${String(pin.sequence)}`);
    if (standing(chat, 'pin').length >= mostPins) refuse('CONFLICT', 'there are 50 pins');
    return;
  }
  const own = standing(chat, 'react', target).filter((one) => one.sender_id === user);
  const same = own.find(({ relation }) => relation?.emoji === emoji);
  if (same) refuse('CONFLICT', `it stands in ${String(same.sequence)}`, 'relation.emoji');
  if (own.length >= mostReactions) refuse('CONFLICT', 'the user has 20 reactions to it');
}
