// Which sends go out now, and what an answer means for one.
//
// | state     | on                          | then                                             |
// |-----------|-----------------------------|--------------------------------------------------|
// | `due`     | its chat has none in flight | in flight; at most 8 chats at a time             |
// | in flight | ok, or seen on the stream   | leaves the outbox, with the message in one step  |
// |           | no answer, 429, 5xx         | `due` under the same id after a pause, for ever  |
// |           | 500 ten times, 413 thrice   | `failed`; the next one goes                      |
// |           | 422 because of `seen`       | `due` at once, without it                        |
// |           | the clocks disagree         | `due` at once, without `send_by`                 |
// |           | another refusal             | `failed`; the next one goes                      |
// |           | the same, of a hidden kind  | leaves the outbox; the application is told       |
// | `failed`  | retry                       | `due`; under a new id if the old one is used up  |

import type { OutboxItem, Problem } from '../types.js';
import type { Answer } from './ended.js';
import { hexOf } from './hex.js';

const CHATS_AT_ONCE = 8;
const DAY = 86_400_000;
/** The server allows 6 days. The rest is for a clock that is fast. */
const SEND_WITHIN = 5 * DAY;

/** What is known of a send since this tab leads. */
export interface Attempts {
  /** Tries without an answer in a row. */
  tries: number;
  /** Answers that blame the server, or a size. */
  bugs: number;
  withoutSeen: boolean;
  withoutEnd: boolean;
}

export const newAttempts = (): Attempts =>
  ({ tries: 0, bugs: 0, withoutSeen: false, withoutEnd: false });

/** Returns the sends that may go out beside those of the `busy` chats, the oldest first. */
export function dueSends(
  outbox: readonly OutboxItem[], busy: ReadonlySet<string>,
): readonly OutboxItem[] {
  const chats = new Set(busy);
  return outbox.filter((item) => {
    if (item.state !== 'due' || chats.has(item.chat_id)) return false;
    if (chats.size >= CHATS_AT_ONCE) return false;
    chats.add(item.chat_id);
    return true;
  });
}

/** A version 7 UUID: ids of one device are neighbours in the server's index. */
export function newSendId(now: number, random: Uint8Array): string {
  const bytes = [...random];
  bytes[6] = 0x70 | (bytes[6] ?? 0) & 0x0f;
  bytes[8] = 0x80 | (bytes[8] ?? 0) & 0x3f;
  return (now.toString(16).padStart(12, '0') + hexOf(bytes.slice(6, 16)))
    .replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

/** When an id was made, in milliseconds since 1970. */
function madeAt(id: string): number {
  return parseInt(id.slice(0, 13).replace('-', ''), 16);
}

/** The body of a send. It is the same in each try, but for what the server refused. */
export function bodyOf(item: OutboxItem, { withoutSeen, withoutEnd }: Attempts): object {
  const { client_message_id, kind, relation, seen } = item;
  const { content, content_type, attachments, mentions, metadata } = item;
  return {
    client_message_id, kind, relation, content, content_type, attachments, mentions, metadata,
    seen_sequence: withoutSeen ? 0 : seen,
    send_by: withoutEnd
      ? undefined : new Date(madeAt(client_message_id) + SEND_WITHIN).toISOString(),
  };
}

/**
 * Returns what becomes of a send that was not stored: it fails with a problem, or is tried again
 * (`pause` says whether after a pause). Changes `attempts`.
 */
export function refused(
  item: OutboxItem, answer: Exclude<Answer, { is: 'ok' }>, attempts: Attempts, now: number,
): { readonly failed: Problem } | { readonly pause: boolean } {
  const { status } = answer;
  if (answer.is === 'retry') {
    attempts.tries++;
    if (status === 500 && ++attempts.bugs === 10) {
      return { failed: { code: 'INTERNAL',
        detail: 'The server failed ten times. It may be stored.' } };
    }
    if (status === 413 && ++attempts.bugs === 3) {
      return { failed: { code: 'TOO_LARGE', detail: 'A proxy refuses the size.' } };
    }
    return { pause: true };
  }
  const { code } = answer.problem;
  if (status === 422 && !attempts.withoutSeen) {
    attempts.withoutSeen = true;
    return { pause: false };
  }
  // The message was never stored with this end. By this device's clock the end is not over.
  const early = now - madeAt(item.client_message_id) < SEND_WITHIN - DAY;
  if (!attempts.withoutEnd && (answer.param === 'send_by' && code === 'INVALID'
    || code === 'EXPIRED' && early)) {
    attempts.withoutEnd = true;
    return { pause: false };
  }
  return { failed: answer.problem };
}

/** Whether a failed send needs a new id to be tried again. */
export function isUsedUp(problem: Problem | undefined): boolean {
  return problem?.code === 'CONFLICT' || problem?.code === 'EXPIRED';
}
