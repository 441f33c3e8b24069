// What the server takes, checked before a send is queued.

import { invalid, tooLarge } from '../errors.js';
import type { Draft } from '../types.js';

const MOST_CONTENT = 65_536;
const MOST_ATTACHMENTS = 10;
const MOST_ATTACHMENT_BYTES = 8_192;
const MOST_METADATA = 4_096;

const bytes = (text: string): number => new TextEncoder().encode(text).length;

function json(value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch {
    throw invalid('It is no JSON.');
  }
}

/** Throws `Invalid` or `TooLarge`. */
export function checkDraft(draft: Draft): void {
  if (typeof draft !== 'object' || draft as unknown === null) {
    throw invalid('A message needs content or an attachment.');
  }
  const { client_message_id: id, content = '', attachments = [], metadata, content_type } = draft;
  if (id !== undefined && !/^[\da-f-]{36}$/.test(id)) {
    throw invalid('client_message_id is none of newMessageId.');
  }
  if (typeof content !== 'string') throw invalid('The content is no text.');
  if (content === '' && attachments.length === 0) {
    throw invalid('A message needs content or an attachment.');
  }
  if (/\0|[\ud800-\udfff]/u.test(content)) {
    throw invalid('The content has characters that cannot be stored.');
  }
  if (attachments.length > MOST_ATTACHMENTS) throw invalid('There are more than 10 attachments.');
  if (content_type !== undefined && !/^[ -~]{1,128}$/.test(content_type)) {
    throw invalid('content_type needs 1 to 128 printable characters.');
  }
  if (bytes(content) > MOST_CONTENT) throw tooLarge('The content is larger than 64 KiB.');
  if (bytes(json(attachments)) > MOST_ATTACHMENT_BYTES) {
    throw tooLarge('The attachments are larger than 8 KiB.');
  }
  if (metadata && bytes(json(metadata)) > MOST_METADATA) {
    throw tooLarge('The metadata are larger than 4 KiB.');
  }
}
