// Calls of the REST API, and the tokens for them.

import { answerOf, isObject, parse, type Answer } from '../core/ended.js';
import { fraction } from '../core/pause.js';
import { codeOf } from '../errors.js';
import type { Frame, Options, Platform, Problem } from '../types.js';

const CALL_MS = 15_000;
const TOKEN_MS = 30_000;
/** A token is renewed when this part of its life is over, and again after a time if that fails. */
const RENEW_AT = 0.8;
const RENEW_AGAIN_MS = 30_000;

export interface Rest {
  readonly url: string;
  /**
   * Makes one call. It never rejects. A call with `last` outlives the page.
   */
  call(method: string, path: string, body?: object, o?: { last?: boolean; signal?: AbortSignal }):
    Promise<Answer>;
  /** The headers of a request, or why there are none. */
  headers(signal?: AbortSignal): Promise<Record<string, string> | 'none' | 'signed-out'>;
  /** The server refuses the present token. */
  refuse(): void;
  /** Asks for tokens again after the application said that the user is signed out. */
  restart(): void;
  /** Milliseconds until the token is to be renewed; undefined if it says no end. */
  renewIn(): number | undefined;
}

/** Resolves when it is time, or the signal aborts. */
export function sleep(platform: Platform, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const done = (): void => {
      cancel();
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const cancel = platform.timer(ms, done);
    signal?.addEventListener('abort', done);
  });
}

export function restOf(
  options: Options, platform: Platform, frame: (frame: Frame) => void,
  problem: (problem: Problem) => void,
): Rest {
  const url = `${options.url.replace(/\/+$/, '')}/api/v1`;
  let token: string | undefined;
  let why: 'start' | 'renew' | 'refused' = 'start';
  let signedOut = false;
  /** When a token is asked for, although there is one. */
  let renewAt = Infinity;
  let asking: Promise<void> | undefined;

  /** Asks the application once for all who wait. */
  async function ask(): Promise<void> {
    const abort = new AbortController();
    let cancel: (() => void) | undefined;
    const late = new Promise<undefined>((resolve) => {
      cancel = platform.timer(TOKEN_MS, () => {
        abort.abort();
        resolve(undefined);
      });
    });
    // The present token is used meanwhile, if there is one.
    renewAt = platform.monotonic() + RENEW_AGAIN_MS;
    try {
      const asked = options.getToken(why, abort.signal);
      // It may reject after the time is over.
      asked.catch(() => undefined);
      const fresh = await Promise.race([asked, late]);
      if (typeof fresh !== 'string' || fresh === '') {
        throw new Error('that is no token');
      }
      token = fresh;
      why = 'renew';
      const claims = parse(decode(fresh.split('.')[1]));
      const { exp, iat } = isObject(claims) ? claims : {};
      // The difference of two times of the server. The clock of this device does not matter.
      const life = typeof exp === 'number' && typeof iat === 'number' ? exp - iat : Infinity;
      renewAt = platform.monotonic() + Math.max(life * 1000 * RENEW_AT, RENEW_AGAIN_MS);
    } catch (error) {
      signedOut = codeOf(error) === 'SIGNED_OUT';
      if (!signedOut) problem({ code: 'NO_TOKEN', detail: `getToken: ${String(error)}` });
    } finally {
      cancel?.();
      asking = undefined;
    }
  }

  async function headers(): Promise<Record<string, string> | 'none' | 'signed-out'> {
    if (!signedOut && (token === undefined || platform.monotonic() >= renewAt)) {
      await (asking ??= ask());
    }
    if (signedOut) return 'signed-out';
    if (token === undefined) return 'none';
    return { Authorization: `Bearer ${token}`, 'X-User-ID': options.user };
  }

  return {
    url,
    headers,
    restart() { signedOut = false; },
    refuse() {
      token = undefined;
      why = 'refused';
    },
    renewIn: () => renewAt === Infinity ? undefined : Math.max(0, renewAt - platform.monotonic()),
    async call(method, path, body, { last = false, signal } = {}) {
      const head = await headers();
      if (head === 'none') return { is: 'retry', status: 0, code: 'NO_TOKEN' };
      if (head === 'signed-out') return { is: 'retry', status: 401, code: 'SIGNED_OUT' };
      const used = token;
      const abort = new AbortController();
      const stop = (): void => { abort.abort(); };
      const cancel = platform.timer(CALL_MS, stop);
      signal?.addEventListener('abort', stop);
      const text = body && JSON.stringify(body);
      frame({ dir: 'out', transport: 'rest', text: `${method} ${path} ${text ?? ''}`.trim() });
      try {
        if (signal?.aborted) throw new Error();
        const response = await platform.fetch(url + path, {
          method, keepalive: last, signal: abort.signal, cache: 'no-store', redirect: 'error',
          headers: { ...head, ...text !== undefined && { 'Content-Type': 'application/json' } },
          ...text !== undefined && { body: text },
        });
        const got = await response.text();
        frame({ dir: 'in', transport: 'rest', text: `${response.status} ${got}`.trim() });
        const answer = answerOf(response.status, response.headers.get('Retry-After'), got,
          fraction(platform.random(2)));
        if (answer.status === 401 && used === token) this.refuse();
        return { ...answer, of: response.headers.get('Tidemark-Incarnation') ?? undefined };
      } catch {
        return { is: 'retry', status: 0 };
      } finally {
        cancel();
        signal?.removeEventListener('abort', stop);
      }
    },
  };
}

/** Decodes base64url. */
function decode(text = ''): string {
  try {
    return atob(text.replaceAll('-', '+').replaceAll('_', '/'));
  } catch {
    return '';
  }
}
