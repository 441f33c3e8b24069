// The REST calls of a backend, which has an API key. It acts for users, or for itself.

import { codeOf, TidemarkError } from '../errors.js';
import type { Draft } from '../types.js';
import type { Message, operations, Problem, Token } from '../wire.gen.js';

/** Each operation of openapi.yaml that a backend uses. */
export const CALLS = {
  listChats: 'GET /chats',
  createChat: 'POST /chats',
  getChat: 'GET /chats/{chat_id}',
  updateChat: 'PATCH /chats/{chat_id}',
  deleteChat: 'DELETE /chats/{chat_id}',
  listMembers: 'GET /chats/{chat_id}/members',
  addMembers: 'POST /chats/{chat_id}/members',
  updateMember: 'PATCH /chats/{chat_id}/members/{user_id}',
  removeMember: 'DELETE /chats/{chat_id}/members/{user_id}',
  listBans: 'GET /chats/{chat_id}/bans',
  putBan: 'PUT /chats/{chat_id}/bans/{user_id}',
  removeBan: 'DELETE /chats/{chat_id}/bans/{user_id}',
  listBlocks: 'GET /blocks',
  putBlock: 'PUT /blocks/{user_id}',
  removeBlock: 'DELETE /blocks/{user_id}',
  listMessages: 'GET /chats/{chat_id}/messages',
  sendMessage: 'POST /chats/{chat_id}/messages',
  listReactions: 'GET /chats/{chat_id}/messages/{sequence}/reactions',
  listPins: 'GET /chats/{chat_id}/pins',
  getDeliveryState: 'GET /chats/{chat_id}/delivery-state',
  updateDeliveryState: 'PATCH /chats/{chat_id}/delivery-state',
  markUnread: 'PUT /chats/{chat_id}/delivery-state/unread',
  getDeliveryStatus: 'GET /chats/{chat_id}/delivery-status',
  listDeliveryStates: 'GET /delivery-states',
  sendTyping: 'POST /chats/{chat_id}/typing',
  listStatuses: 'GET /statuses',
  getUnread: 'GET /unread',
  listPending: 'GET /pending',
  listSessions: 'GET /sessions',
  endSessions: 'DELETE /sessions',
  endSession: 'DELETE /sessions/{session_id}',
  putLook: 'PUT /sessions/{session_id}/look',
  getPresence: 'GET /presence',
  putPresenceSettings: 'PUT /presence/settings',
  getReceiptsSettings: 'GET /receipts/settings',
  putReceiptsSettings: 'PUT /receipts/settings',
  acknowledge: 'POST /acks',
  sync: 'POST /sync',
  createTicket: 'POST /tickets',
  createAttachment: 'POST /attachments',
  getPush: 'GET /push',
  putPushSettings: 'PUT /push/settings',
  registerDevice: 'PUT /push/devices/{device_id}',
  dropDevice: 'DELETE /push/devices/{device_id}',
  getAttachment: 'GET /attachments/{attachment_id}',
  createToken: 'POST /tokens',
  getSuspension: 'GET /users/{user_id}/suspension',
  putSuspension: 'PUT /users/{user_id}/suspension',
  deleteSuspension: 'DELETE /users/{user_id}/suspension',
  signOutUser: 'POST /users/{user_id}/sign-out',
  startErasure: 'POST /users/{user_id}/erasure',
  getErasure: 'GET /users/{user_id}/erasure',
  signOut: 'POST /sign-out',
  listAudit: 'GET /audit',
} as const satisfies Partial<Record<keyof operations, string>>;

export type Call = keyof typeof CALLS;

/** The calls that a backend may make for itself: `x-user: optional` in openapi.yaml. */
export type CallForItself = 'createChat' | 'getChat' | 'updateChat' | 'deleteChat' | 'listMembers'
  | 'addMembers' | 'updateMember' | 'removeMember' | 'createToken' | 'getDeliveryStatus'
  | 'listBans' | 'putBan' | 'removeBan' | 'getSuspension' | 'putSuspension' | 'deleteSuspension'
  | 'signOutUser' | 'startErasure' | 'getErasure' | 'listAudit';

type Path<C extends Call> = operations[C]['parameters'] extends { path: infer P } ? P : unknown;
type Query<C extends Call> = operations[C]['parameters'] extends { query?: infer Q }
  ? [Q] extends [never] ? unknown : Exclude<Q, undefined> : unknown;
type Body<C extends Call> =
  operations[C] extends { requestBody: { content: { 'application/json': infer B } } } ? B : unknown;
type Json<A> = A extends { content: { 'application/json': infer B } } ? B : undefined;
type Responses<C extends Call> = operations[C]['responses'];

/** What a call is given: the parameters of its path and query, and the fields of its body. */
export type Arguments<C extends Call> = Path<C> & Query<C> & Body<C>;

/** What a call answers. */
export type Answer<C extends Call> = {
  [S in keyof Responses<C>]: S extends 200 | 201 | 202 | 204 ? Json<Responses<C>[S]> : never
}[keyof Responses<C>];

export interface CallOptions {
  signal?: AbortSignal;
}

/** For whom a call is made. Null is the backend itself. */
type User<C extends Call> = C extends CallForItself ? string | null : string;

/** Each call, by the name of its operation. It rejects with a `BackendError`. */
export type Backend = {
  readonly [C in Call]: (
    user: User<C>,
    ...rest: object extends Arguments<C> ? [args?: Arguments<C>, options?: CallOptions]
      : [args: Arguments<C>, options?: CallOptions]
  ) => Promise<Answer<C>>;
} & {
  /** Makes a token, with which a browser calls for this user. */
  token(user: string, options?: { ttl_seconds?: number }): Promise<Token>;
  /** Sends a message. The same `client_message_id` stores it once. */
  send(user: string, chatId: string, draft: NewMessage): Promise<Message>;
};

export interface NewMessage extends Omit<Draft, 'kind'> {
  client_message_id: string;
  kind?: 'message' | 'system' | 'control';
  seen_sequence?: number;
  send_by?: string;
}

export interface BackendOptions {
  /** The server, such as `https://chat.example.com`, without `/api/v1`. */
  url: string;
  apiKey: string;
  fetch?: typeof globalThis.fetch;
  /** How often a request is made until there is an answer. The default is 4. */
  tries?: number;
  /** How long one try may take, in milliseconds. The default is 15,000. */
  timeoutMs?: number;
}

interface Found {
  readonly code: string;
  readonly detail: string;
  /** 0 without an answer. */
  readonly status: number;
  /** The field or parameter that is wrong. */
  readonly param?: string | null;
  /** By this id the server's log knows the request. */
  readonly request_id?: string;
  /** When the server wants the call again, in milliseconds since 1970. */
  readonly retryAt?: number;
}

/**
 * The problem that the server named. `code` is `UNREACHABLE` if it did not answer all tries. Then
 * `cause` is the error of the last one.
 */
export class BackendError extends TidemarkError implements Found {
  declare readonly detail: string;
  declare readonly status: number;
  declare readonly param?: string | null;
  declare readonly request_id?: string;
  declare readonly retryAt?: number;

  constructor(found: Found) {
    super(found.code, found.detail);
    this.name = 'BackendError';
    Object.assign(this, found);
  }
}

const UNREACHABLE = 'UNREACHABLE';
/** The longest pause before a next try, in milliseconds. A server that wants more gets no try. */
const LONGEST_MS = 30_000;

/**
 * Returns the calls of a backend. A call that got no answer, a 429 or a 5xx is made again after a
 * pause: openapi.yaml says of each operation why that is safe.
 */
export function createBackend(options: BackendOptions): Backend {
  const { apiKey, tries = 4, timeoutMs = 15_000, fetch = globalThis.fetch } = options;

  const url = options.url.replace(/\/+$/, '');

  async function call(
    operation: Call, user: string | null, args: object = {}, { signal }: CallOptions = {},
  ): Promise<unknown> {
    const rest = new Map<string, unknown>(Object.entries(args));
    const [method = '', template = ''] = CALLS[operation].split(' ');
    const path = template.replace(/{(\w+)}/g, (_, name: string) => {
      const value = rest.get(name);
      rest.delete(name);
      return encodeURIComponent(String(value));
    });
    const headers = new Headers({ Authorization: `Bearer ${apiKey}` });
    try {
      if (user !== null) headers.set('X-User-ID', user);
    } catch {
      throw new BackendError({ code: 'INVALID', detail: 'This is no user id.', status: 0 });
    }
    const query = new URLSearchParams();
    let body: string | null = null;
    if (method === 'GET' || method === 'DELETE') {
      for (const [name, value] of rest) {
        for (const one of [value].flat()) query.append(name, one as string);
      }
    } else if (operation !== 'sendTyping' && operation !== 'createTicket') {
      headers.set('Content-Type', 'application/json');
      body = JSON.stringify(Object.fromEntries(rest));
    }
    const target = `${url}/api/v1${path}${query.size ? '?' : ''}${query}`;
    for (let n = 1; ; n++) {
      const late = AbortSignal.timeout(timeoutMs);
      let found: Found & { cause?: unknown } = {
        code: UNREACHABLE, detail: 'The server did not answer.', status: 0,
      };
      try {
        const response = await fetch(target, {
          method, headers, body, redirect: 'manual',
          signal: signal ? AbortSignal.any([signal, late]) : late,
        });
        if (response.status === 204) return undefined;
        const { status } = response;
        const seconds = parseInt(response.headers.get('Retry-After') ?? '', 10);
        const retryAt = seconds >= 0 ? { retryAt: Date.now() + seconds * 1_000 } : {};
        found = { ...found, status, ...retryAt };
        const answer: unknown = await response.json();
        if (response.ok) return answer;
        if (codeOf(answer)) found = { ...answer as Problem, status, ...retryAt };
      } catch (cause) {
        found = { ...found, cause };
      }
      signal?.throwIfAborted();
      const again = found.code === UNREACHABLE || found.status === 429 || found.status > 499;
      const pause = found.retryAt ? found.retryAt - Date.now() + Math.random() * 1_000
        : Math.random() * 500 * 2 ** n;
      if (!again || n >= tries || pause > LONGEST_MS) throw new BackendError(found);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, pause);
        signal?.addEventListener('abort', () => {
          clearTimeout(timer);
          resolve();
        }, { once: true });
      });
      signal?.throwIfAborted();
    }
  }

  const calls = Object.fromEntries(Object.keys(CALLS).map((operation) => [
    operation, (user: string | null, args?: object, more?: CallOptions) =>
      call(operation as Call, user, args, more),
  ])) as Omit<Backend, 'token' | 'send'> as Backend;
  return {
    ...calls,
    token: (user, more) => calls.createToken(user, more),
    send: (user, chat_id, draft) => calls.sendMessage(user, { chat_id, ...draft }),
  };
}
