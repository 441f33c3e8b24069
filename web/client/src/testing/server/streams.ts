// The three streams of the fake server: SSE, long-poll and WebSocket.

import type { Event, ReplyFrame } from '../../wire.gen.js';
import type { Dice } from '../random.js';
import type { Auth, Identity } from './auth.js';
import type { Core } from './core.js';
import * as decode from './decode.js';
import { Refusal, refusalOf } from './refusal.js';
import { problem, type Request } from './rest.js';
import type { Reader, Session } from './session.js';

/** Takes an answer in parts. */
export interface Sink {
  head(status: number, headers: Readonly<Record<string, string>>): void;
  write(text: string): void;
  end(): void;
}

/** The server's side of a WebSocket. */
export interface ServerSocket {
  send(text: string): void;
  close(code: number, reason: string): void;
}

/** What the network tells the server of a request or a socket. */
export interface Flow {
  message(text: string): void;
  /** The client has gone. `code` is that of a WebSocket, else 1006. */
  gone(code: number): void;
}

/** An open stream, as the server that ends it sees it. */
interface Open {
  /** The server stops; the client comes back after some seconds. */
  stop(seconds: number): void;
}

const heartbeatPart = 0.9;
const maxEvents = 500;

export class Streams {
  readonly #core: Core;
  readonly #auth: Auth;
  readonly #dice: Dice;
  readonly #open = new Set<Open>();
  /** How long each new stream waits for its turn, in milliseconds. */
  turnMs = 0;

  constructor(core: Core, auth: Auth, dice: Dice) {
    this.#core = core;
    this.#auth = auth;
    this.#dice = dice;
  }

  /** Ends all streams, as a server does that stops. */
  stop(): void {
    for (const one of [...this.#open]) one.stop(1 + this.#dice.roll(20) / 10);
    this.#open.clear();
  }

  /** Forgets all streams, as a server does that is killed. */
  kill(): void {
    this.#open.clear();
  }

  /** Calls `open` when it is the stream's turn, unless the stream has ended. */
  #turn(open: () => void): () => void {
    if (this.turnMs === 0) {
      open();
      return () => undefined;
    }
    return this.#core.clock.timer(this.turnMs, open);
  }

  // ---- SSE --------------------------------------------------------------------------------------

  sse(request: Request, sink: Sink): Flow {
    const query = request.url.searchParams;
    const at = request.headers.get('last-event-id') ?? query.get('last_event_id') ?? '';
    let who: Identity;
    let q: decode.StreamQuery;
    try {
      q = decode.stream(query);
      if (at !== '') q = { ...q, ...decode.position(at) };
      who = this.#auth.stream(request.headers, query, q.session);
    } catch (error) {
      answer(sink, problem(refusalOf(error), 'SSE'));
      return { message: () => undefined, gone: () => undefined };
    }
    sink.head(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    sink.write(':\n');
    return this.#sseStream(who, q, sink);
  }

  #sseStream(who: Identity, q: decode.StreamQuery, sink: Sink): Flow {
    const { clock } = this.#core;
    let session: Session | undefined;
    let over = false;
    let stopHeart = (): void => undefined;
    const finish = (refusal?: Refusal, retryMs?: number): void => {
      if (over) return;
      over = true;
      stopHeart();
      this.#open.delete(self);
      if (session !== undefined) {
        this.#auth.leave(who, session.id);
        this.#core.leave(session, reader, false);
      }
      if (retryMs !== undefined) sink.write(`retry: ${String(retryMs)}\n`);
      if (refusal !== undefined) {
        sink.write(`event: problem\ndata: ${JSON.stringify(refusal.detail())}\n\n`);
      }
      sink.end();
    };
    const end = (refusal: Refusal): void => {
      if (refusal.code === 'REPLACED') finish(refusal, 3_600_000);
      else if (session === undefined) finish(refusal, Math.ceil(refusal.retryAfter * 1000) || 1000);
      else finish(refusal);
    };
    const self: Open = {
      stop: (seconds) => {
        finish(undefined, Math.round(seconds * 1000));
      },
    };
    const pump = this.#pump(() => session, (events, id) => {
      sink.write(events.map((e) => sseText(id, e)).join(''));
    }, end);
    const reader: Reader = { wake: () => {
      pump(reader);
    }, lost: end };
    const beat = (): void => {
      if (over) return;
      if (who.expires !== 0 && clock.now() >= who.expires) {
        end(new Refusal('UNAUTHENTICATED', 'the token has expired'));
        return;
      }
      sink.write(':\n\n');
      stopHeart = clock.timer(this.#untilBeat(who), beat);
    };
    this.#open.add(self);
    stopHeart = clock.timer(this.#untilBeat(who), beat);
    const cancelTurn = this.#turn(() => {
      if (over) return;
      try {
        session = this.#core.open(who.user, q, reader, false);
      } catch (error) {
        end(refusalOf(error));
        return;
      }
      this.#auth.bind(who, session.id);
      sink.write(`retry: ${String(1000 + this.#dice.roll(2000))}\n`);
      pump(reader);
    });
    return {
      message: () => undefined,
      gone: () => {
        cancelTurn();
        finish();
      },
    };
  }

  #untilBeat(who: Identity): number {
    const beat = this.#core.heartbeatSeconds * 1000 * heartbeatPart;
    const left = who.expires - this.#core.clock.now();
    return who.expires === 0 ? beat : Math.min(beat, Math.max(1, left));
  }

  /** Returns a function that sends what a session has, at most once in a moment. */
  #pump(
    session: () => Session | undefined, send: (events: Event[], id: string) => void,
    failed: (refusal: Refusal) => void,
  ): (reader: Reader) => void {
    let waits = false;
    return (reader) => {
      if (waits) return;
      waits = true;
      this.#core.clock.timer(0, () => {
        waits = false;
        const from = session();
        if (from === undefined) return;
        for (;;) {
          let events: Event[];
          try {
            events = from.next(reader);
          } catch (error) {
            failed(refusalOf(error));
            return;
          }
          if (events.length === 0) return;
          send(events, from.id);
        }
      });
    };
  }

  // ---- Long-poll --------------------------------------------------------------------------------

  poll(request: Request, sink: Sink): Flow {
    const query = request.url.searchParams;
    let over = false;
    let session: Session | undefined;
    let who: Identity | undefined;
    let cancel: () => void = () => undefined;
    const leave = (): void => {
      over = true;
      cancel();
      this.#open.delete(self);
      if (session === undefined || who === undefined) return;
      this.#auth.leave(who, session.id);
      this.#core.leave(session, reader, false);
    };
    const fail = (error: unknown): void => {
      if (over) return;
      leave();
      answer(sink, problem(refusalOf(error), 'POLL'));
    };
    const respond = (events: Event[], more: boolean, retryAfter?: number): void => {
      if (over) return;
      const id = session?.id ?? '';
      leave();
      const headers: Record<string, string> = { 'content-type': 'application/json' };
      if (retryAfter !== undefined) headers['retry-after'] = String(Math.ceil(retryAfter));
      answer(sink, {
        status: 200, headers,
        body: JSON.stringify({ session_id: id, events, has_more: more }),
      });
    };
    const gather = (wait: boolean): void => {
      if (over || session === undefined) return;
      const events: Event[] = [];
      try {
        for (;;) {
          const next = session.next(reader);
          events.push(...next);
          if (next.length === 0 || events.length >= maxEvents) break;
        }
      } catch (error) {
        fail(error);
        return;
      }
      if (events.length > 0 || !wait) respond(events, events.length >= maxEvents);
    };
    const reader: Reader = {
      wake: () => {
        this.#core.clock.timer(0, () => {
          gather(true);
        });
      },
      lost: fail,
    };
    const self: Open = {
      stop: (seconds) => {
        respond([], false, seconds);
      },
    };
    const begin = (): void => {
      if (over) return;
      try {
        const seconds = waitOf(query);
        const q = decode.stream(query);
        who = this.#auth.stream(request.headers, query, q.session);
        session = this.#core.open(who.user, q, reader, true);
        this.#auth.bind(who, session.id);
        const left = who.expires === 0 ? seconds * 1000
          : Math.min(seconds * 1000, Math.max(0, who.expires - this.#core.clock.now()));
        gather(seconds > 0);
        cancel = this.#core.clock.timer(left, () => {
          respond([], false);
        });
      } catch (error) {
        fail(error);
      }
    };
    this.#open.add(self);
    cancel = this.#turn(begin);
    return { message: () => undefined, gone: leave };
  }

  // ---- WebSocket --------------------------------------------------------------------------------

  socket(request: Request, socket: ServerSocket): Flow {
    const connection = new Connection(this.#core, this.#auth, socket, (self) => {
      this.#open.delete(self);
    });
    this.#open.add(connection);
    const { url, headers } = request;
    let cancel: () => void = () => undefined;
    connection.guard(() => {
      const q = decode.stream(url.searchParams);
      const who = this.#auth.stream(headers, url.searchParams, q.session);
      connection.greet(who);
      const pump = this.#pump(() => connection.session, (events) => {
        for (const e of events) socket.send(JSON.stringify(e));
      }, (refusal) => {
        connection.end(refusal);
      });
      const reader: Reader = { wake: () => {
        pump(reader);
      }, lost: (refusal) => {
        connection.end(refusal);
      } };
      cancel = this.#turn(() => {
        connection.guard(() => {
          connection.open(q, reader);
          pump(reader);
        });
      });
    });
    return {
      message: (text) => {
        connection.guard(() => {
          connection.handle(text);
        });
      },
      gone: (code) => {
        cancel();
        connection.gone(code);
      },
    };
  }
}

/** One WebSocket. */
class Connection implements Open {
  session: Session | undefined;
  readonly #core: Core;
  readonly #auth: Auth;
  readonly #socket: ServerSocket;
  readonly #forget: (self: Connection) => void;
  #who: Identity | undefined;
  #reader: Reader | undefined;
  #over = false;
  #cancelExpiry: () => void = () => undefined;

  constructor(
    core: Core, auth: Auth, socket: ServerSocket, forget: (self: Connection) => void,
  ) {
    this.#core = core;
    this.#auth = auth;
    this.#socket = socket;
    this.#forget = forget;
  }

  greet(who: Identity): void {
    this.#who = who;
    this.#send({ type: 'hello', payload: { heartbeat_seconds: this.#core.heartbeatSeconds } });
    if (who.expires === 0) return;
    this.#cancelExpiry = this.#core.clock.timer(who.expires - this.#core.clock.now(), () => {
      this.end(new Refusal('UNAUTHENTICATED', 'the token has expired'));
    });
  }

  open(q: decode.StreamQuery, reader: Reader): void {
    if (this.#over || this.#who === undefined) return;
    this.#reader = reader;
    this.session = this.#core.open(this.#who.user, q, reader, false);
    this.#auth.bind(this.#who, this.session.id);
  }

  /** Runs something. A refusal ends the connection. */
  guard(run: () => void): void {
    if (this.#over) return;
    try {
      run();
    } catch (error) {
      this.end(refusalOf(error));
    }
  }

  end(refusal: Refusal): void {
    if (this.#over) return;
    const [code, reason] = closeOf(refusal);
    this.#leave(false);
    this.#socket.close(code, reason);
  }

  stop(seconds: number): void {
    if (this.#over) return;
    this.#leave(false);
    this.#socket.close(1012, `restarting; retry-after=${seconds.toFixed(1)}`);
  }

  gone(code: number): void {
    if (!this.#over) this.#leave(code === 1000);
  }

  #leave(over: boolean): void {
    this.#over = true;
    this.#cancelExpiry();
    this.#forget(this);
    if (this.session === undefined || this.#who === undefined || this.#reader === undefined) return;
    this.#auth.leave(this.#who, this.session.id);
    this.#core.leave(this.session, this.#reader, over);
  }

  #send(frame: ReplyFrame): void {
    this.#socket.send(JSON.stringify(frame));
  }

  handle(text: string): void {
    if (this.#who === undefined) return;
    if (text.length > 400 << 10) throw new Refusal('TOO_LARGE', 'the frame is too large');
    let type = '';
    let requestId: string | undefined;
    try {
      const f = decode.body(text);
      type = typeof f['type'] === 'string' ? f['type'] : '';
      requestId = decode.text(f, 'request_id');
      if ((requestId ?? '').length > 128) throw new Refusal('INVALID', 'request_id is too long');
      const payload = decode.fields(f['payload'] ?? {}, 'payload');
      this.#frame(this.#who, type, payload, requestId);
    } catch (error) {
      const refusal = refusalOf(error);
      if (type === 'ack' || type === 'read') return;
      this.#send({ type: 'problem', ...named(requestId), payload: refusal.detail() });
    }
  }

  #frame(
    who: Identity, type: string, payload: decode.Fields, requestId: string | undefined,
  ): void {
    switch (type) {
      case 'send_message': {
        const { message: m, duplicate } = this.#core.send(who, decode.draft(payload));
        this.#send({
          type: 'send_message_ack', ...named(requestId), payload: {
            chat_id: m.chat_id, client_message_id: m.client_message_id, message_id: m.message_id,
            sequence: m.sequence, created_at: m.created_at, duplicate,
            members_version: m.members_version,
          },
        });
        return;
      }
      case 'ack':
      case 'read': {
        const { items, incarnation } = decode.ackFrame(payload);
        if (this.session === undefined || this.#reader === undefined) return;
        this.#core.takeAcks(this.session, this.#reader, items, incarnation);
        return;
      }
      case 'sync_request':
        this.#send({
          type: 'sync_response', ...named(requestId),
          payload: this.#core.sync(who.user, decode.sync(payload)),
        });
        return;
      case 'typing': {
        const chat = decode.id(payload, 'chat_id');
        if (chat === undefined) throw new Refusal('INVALID', 'chat_id is missing', 'chat_id');
        try {
          this.#core.typing(who.user, chat);
        } catch (error) {
          refusalOf(error); // a notice may be lost
        }
        return;
      }
      case 'look': {
        const chats = decode.look(payload);
        if (this.session !== undefined) this.#core.look(who.user, this.session.id, chats);
        return;
      }
      case 'ping':
        this.#send({ type: 'pong', ...named(requestId), payload: {} });
        return;
      default:
        throw new Refusal('INVALID', 'type is unknown', 'type');
    }
  }
}

/** `request_id` is in an answer only if it was in the request. The schema lacks that. */
function named(requestId: string | undefined): { request_id: string } {
  return requestId === undefined || requestId === '' ? {} as { request_id: string }
    : { request_id: requestId };
}

function sseText(session: string, e: Event): string {
  const id = 'id' in e ? `id: ${session}.${String(e.id)}\n` : '';
  return `${id}event: ${e.type}\ndata: ${JSON.stringify(e.payload)}\n\n`;
}

function answer(
  sink: Sink, a: { status: number; headers: Readonly<Record<string, string>>; body: string },
): void {
  sink.head(a.status, a.headers);
  sink.write(a.body);
  sink.end();
}

function closeOf(refusal: Refusal): [number, string] {
  const at = refusal.retryAfter > 0 ? `; retry-after=${refusal.retryAfter.toFixed(1)}` : '';
  switch (refusal.code) {
    case 'UNAUTHENTICATED':
      return [4401, refusal.message];
    case 'DENIED':
    case 'NOT_A_MEMBER':
      return [4403, refusal.message];
    case 'REPLACED':
      return [4409, 'replaced'];
    case 'RATE_LIMITED':
      return [4429, refusal.message + at];
    case 'TOO_LARGE':
      return [1009, refusal.message];
    case 'UNAVAILABLE':
      return at === '' ? [1012, 'restarting'] : [1013, `busy${at}`];
    case 'SESSION_GONE':
      return [1012, 'restarting'];
    case 'INTERNAL':
      return [1011, refusal.message];
    default:
      return [1008, refusal.message];
  }
}

function waitOf(query: URLSearchParams): number {
  const s = query.get('wait_seconds') ?? '';
  if (s === '') return 25;
  if (!/^\d+$/.test(s)) throw new Refusal('INVALID', 'wait_seconds', 'wait_seconds');
  return Math.min(Number(s), 50);
}
