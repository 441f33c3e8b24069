// What the end of a connection means, and what an answer means.

import type { Problem } from '../types.js';
import { hinted } from './pause.js';

/**
 * Why a connection ended, or could not be opened.
 *
 * - `cut`: the network failed.
 * - `blocked`: nothing opens this transport, although the server answers other calls.
 * - `silent`: there was no heartbeat.
 * - `broken`: an event could not be read.
 * - `full`: events came faster than they are stored.
 * - `wait`: the server named the time of the next try.
 * - `token`: the server refused the token or ticket.
 * - `no-token`: `getToken` gave none.
 * - `replaced`: a newer connection or session took over.
 * - `gone`: the session is unknown.
 * - `refused`: the server refuses this client.
 * - `signed-out`: `getToken` said so.
 */
export type Ended =
  | { readonly why: 'cut' | 'blocked' | 'silent' | 'broken' | 'full' | 'token' | 'replaced'
    | 'no-token' | 'gone' | 'signed-out' }
  | { readonly why: 'wait'; readonly ms: number }
  | { readonly why: 'refused'; readonly problem: Problem };

/**
 * The answer to a call, and the incarnation `of` the data that it is about. Only JSON of the server
 * counts. A `refused` call stays refused. Everything else is to be repeated, after `after`
 * milliseconds if the server says so.
 */
export type Answer =
  { readonly status: number; readonly of?: string | undefined } & (
    | { readonly is: 'ok'; readonly body: unknown }
    | { readonly is: 'refused'; readonly problem: Problem; readonly param?: string }
    | { readonly is: 'retry'; readonly after?: number; readonly code?: string });

/** Statuses that say nothing about the request. */
const REPEATABLE = [401, 408, 425, 429];

/** Classifies an answer. `random` is from 0 to 1: a time in whole seconds gets a part of one. */
export function answerOf(
  status: number, retryAfter: string | null, text: string, random: number,
): Answer {
  const body = parse(text);
  if (status >= 200 && status < 300) {
    // A captive portal answers 200 with a page.
    return status === 204 || isObject(body)
      ? { is: 'ok', status, body } : { is: 'retry', status };
  }
  const code = isObject(body) && typeof body['code'] === 'string' ? body['code'] : undefined;
  const seconds = Number(retryAfter);
  if (code !== undefined && status >= 400 && status < 500 && !REPEATABLE.includes(status)) {
    const { detail, param } = body as Record<string, unknown>;
    // It is the token that is refused, not the request.
    if (param === 'X-User-ID') return { is: 'retry', status: 401, code };
    return {
      is: 'refused', status, problem: { code, detail: String(detail) },
      ...typeof param === 'string' && { param },
    };
  }
  return {
    is: 'retry', status, ...code !== undefined && { code },
    ...seconds > 0 && { after: hinted((seconds + random) * 1000) },
  };
}

/** Returns what a stream ends with that gets this answer instead of its beginning. */
export function endedBy(answer: Answer): Ended {
  if (answer.is === 'refused') {
    const { problem, status } = answer;
    if (status === 409) return { why: 'replaced' };
    if (status === 410) return { why: 'gone' };
    return { why: 'refused', problem };
  }
  if (answer.is === 'ok') return { why: 'cut' };
  if (answer.code === 'SIGNED_OUT') return { why: 'signed-out' };
  if (answer.code === 'NO_TOKEN') return { why: 'no-token' };
  return answer.status === 401 ? { why: 'token' } : waitOr(answer.after);
}

const waitOr = (ms: number | undefined): Ended =>
  ms === undefined ? { why: 'cut' } : { why: 'wait', ms };

/** Returns what a `problem` of a stream means. `retry` is the time that was named before it. */
export function endedByProblem(
  code: string, retry: number | undefined, detail = '',
): Ended {
  if (code === 'REPLACED') return { why: 'replaced' };
  // The user was suspended.
  if (code === 'DENIED') return { why: 'refused', problem: { code, detail } };
  if (code === 'UNAUTHENTICATED') return { why: 'token' };
  return waitOr(retry);
}

/** Returns what a close code of a WebSocket means. */
export function endedByClose(code: number, reason: string): Ended {
  if (code === 4401) return { why: 'token' };
  if (code === 4409) return { why: 'replaced' };
  if ([1003, 1007, 1008, 4403].includes(code)) {
    const problem = { code: code === 4403 ? 'DENIED' : 'INVALID', detail: reason };
    return { why: 'refused', problem };
  }
  const seconds = /retry-after=([\d.]+)$/.exec(reason)?.[1];
  return waitOr(seconds === undefined ? undefined : hinted(Number(seconds) * 1000));
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

/** Returns parsed JSON, or undefined. */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
