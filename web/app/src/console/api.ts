// The calls of the console. The key is in memory only, and goes into a header only: never into an
// address, a cookie or the browser's storage.

import type {
  Chat, DeliveryStateList, DeliveryStatus, NewOutlet, Outlet, OutletAttempt, OutletChange,
  OutletFailureList, OutletList, ParkedEventList, PendingList, Problem, SessionList,
} from '../../../client/src/wire.gen';

/** How many rows a page of a list has. */
export const PAGE = 100;

/** An answer that is an error, or no answer: `status` is 0 then. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  readonly status: number;
  readonly code: string;
  /** The server's own words, which may be empty. */
  readonly detail: string;
  /** How long the server asks to wait. */
  readonly retryMs: number;

  constructor(status: number, code: string, detail: string, retryMs = 0) {
    super(detail);
    this.status = status;
    this.code = code;
    this.detail = detail;
    this.retryMs = retryMs;
  }
}

/** Asks the server, and returns an answer below 400. All else is a Refusal. */
export async function ask(
  key: string, path: string, headers: Record<string, string>, signal: AbortSignal | null,
  method = 'GET', body: string | null = null,
): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(`/api/v1${path}`, {
      headers: { ...headers, Authorization: `Bearer ${key}` },
      cache: 'no-store', credentials: 'omit', method, body, signal,
    });
  } catch {
    throw new Refusal(0, '', '');
  }
  if (answer.ok) return answer;
  const { code = '', detail = '' } = await problemIn(answer);
  const wait = Number(answer.headers.get('Retry-After') ?? 0);
  throw new Refusal(answer.status, code, detail, Number.isFinite(wait) ? 1_000 * wait : 0);
}

// A proxy answers without a problem.
async function problemIn(answer: Response): Promise<Partial<Problem>> {
  try {
    return await answer.json() as Problem;
  } catch {
    return {};
  }
}

/** What the console asks about a user, a chat or an outlet. */
export class Api {
  readonly #key: string;

  constructor(key: string) {
    this.#key = key;
  }

  sessions(user: string, signal: AbortSignal): Promise<SessionList> {
    return this.#get('/sessions', signal, user);
  }

  states(user: string, cursor: string | null, signal: AbortSignal): Promise<DeliveryStateList> {
    return this.#get(`/delivery-states?${paging(cursor)}`, signal, user);
  }

  pending(user: string, cursor: string | null, signal: AbortSignal): Promise<PendingList> {
    return this.#get(`/pending?${paging(cursor)}`, signal, user);
  }

  chat(id: string, signal: AbortSignal): Promise<Chat> {
    return this.#get(`/chats/${encodeURIComponent(id)}`, signal);
  }

  status(id: string, cursor: string | null, signal: AbortSignal): Promise<DeliveryStatus> {
    return this.#get(`/chats/${encodeURIComponent(id)}/delivery-status?${paging(cursor)}`, signal);
  }

  outlets(signal: AbortSignal): Promise<OutletList> {
    return this.#get('/admin/outlets', signal);
  }

  outlet(id: string, signal: AbortSignal): Promise<Outlet> {
    return this.#get(outletPath(id), signal);
  }

  failures(id: string, signal: AbortSignal): Promise<OutletFailureList> {
    return this.#get(outletPath(id, '/failures'), signal);
  }

  parked(id: string, cursor: string | null, signal: AbortSignal): Promise<ParkedEventList> {
    return this.#get(outletPath(id, `/parked?${paging(cursor)}`), signal);
  }

  createOutlet(outlet: NewOutlet): Promise<Outlet> {
    return this.#send('POST', '/admin/outlets', outlet);
  }

  changeOutlet(id: string, change: OutletChange): Promise<Outlet> {
    return this.#send('PATCH', outletPath(id), change);
  }

  async deleteOutlet(id: string): Promise<void> {
    await ask(this.#key, outletPath(id), {}, null, 'DELETE');
  }

  newSecret(id: string): Promise<Outlet> {
    return this.#send('POST', outletPath(id, '/secret'));
  }

  test(id: string): Promise<OutletAttempt> {
    return this.#send('POST', outletPath(id, '/test'));
  }

  resend(id: string, event: string): Promise<OutletAttempt> {
    return this.#send('POST', outletPath(id, `/parked/${encodeURIComponent(event)}/resend`));
  }

  async #send<T>(method: string, path: string, body?: unknown): Promise<T> {
    const headers = { 'Content-Type': 'application/json' };
    const answer = await ask(
      this.#key, path, headers, null, method, body === undefined ? null : JSON.stringify(body),
    );
    return await answer.json() as T;
  }

  async #get<T>(path: string, signal: AbortSignal, user?: string): Promise<T> {
    const answer = await ask(
      this.#key, path, user === undefined ? {} : { 'X-User-ID': user }, signal,
    );
    try {
      return await answer.json() as T;
    } catch {
      throw new Refusal(0, '', '');
    }
  }
}

function outletPath(id: string, rest = ''): string {
  return `/admin/outlets/${encodeURIComponent(id)}${rest}`;
}

function paging(cursor: string | null): string {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (cursor !== null) query.set('cursor', cursor);
  return query.toString();
}
