// What edits and redactions make of a message. Each of them is a message of its own, a relation. It
// brings its target as the server has it, and is stored without it: a text is kept once.

import { has } from '../wire/events.js';
import type { Message } from '../wire.gen.js';

/** Returns the sequence of the last change. Older code has stored messages without revisions. */
export function revisionOf(message: Message | undefined): number {
  return message?.revision?.sequence ?? 0;
}

/** Whether a message is an older state of another one. */
export function isOlder(old: Message | null | undefined, message: Message): boolean {
  return old?.message_id === message.message_id && revisionOf(old) < revisionOf(message);
}

/** Whether a message lacks the change of a sequence. After a redaction nothing changes it. */
export function lacks(message: Message, sequence: number): boolean {
  return revisionOf(message) < sequence && message.revision?.kind !== 'redact';
}

/** Returns a message as it is stored: a relation has no target. */
export function bare(message: Message): Message {
  const { relation } = message;
  return relation?.target ? { ...message, relation: { ...relation, target: null } } : message;
}

/** Returns the sequences of the messages that this one changes. */
export function targetsOf(message: Message | undefined): readonly number[] {
  const { kind = '', relation } = message ?? {};
  if (!relation || !['edit', 'redact'].includes(kind)) return [];
  return relation.sequences ?? [relation.sequence];
}

/** Returns what a redaction of several messages leaves of one of them, unless it was redacted. */
export function stubOf(message: Message, by: Message): Message {
  if (message.revision?.kind === 'redact') return message;
  return {
    ...message, content: '', content_type: 'text/plain', attachments: [], metadata: null,
    mentions: null,
    revision: {
      sequence: by.sequence, kind: 'redact', by: by.sender_id, revised_at: by.created_at,
    },
  };
}

/** Returns the messages that may be newer than what is stored: those that were changed. */
export function changedBy(messages: readonly (Message | null | undefined)[]): Message[] {
  return messages.flatMap((message) => [message, message?.relation?.target])
    .filter((one): one is Message => has('message', one) && revisionOf(one as Message) > 0);
}
