// What the server takes, checked before a send is queued.

import { invalid, tooLarge } from '../errors.js';
import type { Draft, Relating } from '../types.js';
import { isSequence } from '../wire/events.js';

const MOST_ATTACHMENTS = 10;
const EMOJI_BYTES = 64;
/** A character that is seen when it stands alone. The last one is the blank of Braille. */
const VISIBLE = /[^\p{Cf}\p{Mn}\p{Me}\p{Default_Ignorable_Code_Point}\u2800]/u;

const bytes = (text: string): number => new TextEncoder().encode(text).length;

function within(kib: number, what: string, text: string): void {
  if (bytes(text) > kib << 10) {
    throw tooLarge(`The ${what} has more than ${kib} KiB.`);
  }
}

function json(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    throw invalid('It is no JSON.');
  }
}

/** Throws `Invalid` or `TooLarge`. */
export function checkDraft(draft: Draft): void {
  const { client_message_id: id, content = '', attachments = [], metadata, content_type } =
    draft as Draft | undefined ?? {};
  if (id !== undefined && !/^[\da-f-]{36}$/.test(id)) {
    throw invalid('client_message_id is malformed.');
  }
  if (typeof content !== 'string') throw invalid('The content is malformed.');
  if (content === '' && attachments.length === 0) {
    throw invalid('A message needs content or an attachment.');
  }
  if (/\0|[\ud800-\udfff]/u.test(content)) {
    throw invalid('The content cannot be stored.');
  }
  if (attachments.length > MOST_ATTACHMENTS) throw invalid('It has more than 10 attachments.');
  if (content_type !== undefined && !/^[ -~]{1,128}$/.test(content_type)) {
    throw invalid('content_type is malformed.');
  }
  within(64, 'content', content);
  within(8, 'list of attachments', json(attachments));
  if (metadata) within(4, 'object of metadata', json(metadata));
}

/** Throws `Invalid`. */
export function checkRelation({ kind, relation: { sequence, emoji } }: Relating): void {
  if (!isSequence(sequence) || sequence === 0) throw invalid('It is no message.');
  if (kind === 'react' && !(typeof emoji === 'string' && bytes(emoji) <= EMOJI_BYTES
    && /^[^\p{White_Space}\p{Cc}\p{Cs}]+$/u.test(emoji) && VISIBLE.test(emoji))) {
    throw invalid('It is no emoji.');
  }
}
