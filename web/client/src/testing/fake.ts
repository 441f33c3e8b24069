// The fake server: the whole protocol of openapi.yaml, in memory and in virtual time.

import type { Options, Platform } from '../types.js';
import type { Event, Message } from '../wire.gen.js';
import { VirtualClock } from './clock.js';
import { Link } from './network.js';
import { VirtualPage } from './page.js';
import { Dice } from './random.js';
import { Auth } from './server/auth.js';
import { Core, realTimes } from './server/core.js';
import type { Data } from './server/data.js';
import { Refusal } from './server/refusal.js';
import { problem, Rest, type Request } from './server/rest.js';
import { Streams, type Flow, type ServerSocket, type Sink } from './server/streams.js';
import { virtualWebSocket } from './websocket.js';

export interface FakeServerOptions {
  /** The default is a new one. */
  clock?: VirtualClock;
  /** Decides ids and delays. The default is 1. */
  seed?: number;
  heartbeatSeconds?: number;
  resumeSeconds?: number;
  /** Above this number of members, a chat has one status for all. The default is 50. */
  statusFanout?: number;
  tokenSeconds?: number;
  /** Keeps when users were last seen. The default is false. */
  lastSeen?: boolean;
  /** After how long a message that is not acknowledged counts as pending. The default is 10. */
  graceSeconds?: number;
}

/** What a backup has. */
export interface Backup {
  readonly data: Data;
}

/** A tab or a process that reaches the server over a link of its own. */
export interface Place {
  readonly platform: Platform;
  readonly link: Link;
  readonly page: VirtualPage;
}

export interface PlaceOptions {
  /** False leaves out what only a page has. */
  page?: boolean;
  /** False leaves out WebSocket, as in older versions of Node. */
  webSocket?: boolean;
  /** How far the clock of the device is ahead, in milliseconds. */
  skewMs?: number;
  /** Runs what happens at the client: timers, answers and frames. The default runs it at once. */
  gate?: (run: () => void) => void;
}

/**
 * A server of one node in memory. It has no rate limits and no faults of its own: those come from
 * the `Link` of a place, from `refuse` and from `turnMs`. It differs from the real server in this:
 * JSON values are not kept byte for byte, `1.0` counts as an integer, and there is no bound of what
 * sessions remember apart from their events.
 */
export class FakeServer {
  readonly url = 'https://chat.test';
  readonly clock: VirtualClock;
  readonly #dice: Dice;
  readonly #core: Core;
  readonly #auth: Auth;
  readonly #rest: Rest;
  readonly #streams: Streams;
  readonly #tokenSeconds: number;
  #places = 0;
  #down = false;
  /** Links of places, whose connections break when the server is killed. */
  readonly #links: Link[] = [];
  /** Asked before each request and stream. What it returns is the answer. */
  refuse: (request: Request) => Refusal | undefined = () => undefined;

  constructor(options: FakeServerOptions = {}) {
    this.clock = options.clock ?? new VirtualClock();
    this.#dice = new Dice(options.seed ?? 1, 0x5eed);
    this.#tokenSeconds = options.tokenSeconds ?? 3600;
    const resumeSeconds = options.resumeSeconds ?? 60;
    this.#core = new Core(this.clock, this.#dice, {
      times: { ...realTimes, grace: (options.graceSeconds ?? 10) * 1000 },
      heartbeatSeconds: options.heartbeatSeconds ?? 20, resumeSeconds,
      statusFanout: options.statusFanout ?? 50, lastSeen: options.lastSeen ?? false,
    });
    this.#auth = new Auth(this.clock, this.#dice, resumeSeconds * 1000);
    this.#rest = new Rest(this.#core, this.#auth);
    this.#streams = new Streams(this.#core, this.#auth, this.#dice);
  }

  // ---- Clients ----------------------------------------------------------------------------------

  /** Returns a new place. Its platform is for `Options.platform`. */
  place(options: PlaceOptions = {}): Place {
    const dice = new Dice(this.#dice.next(), ++this.#places);
    const link = new Link(this.clock, dice, this);
    this.#links.push(link);
    return makePlace(this.clock, dice, link, options);
  }

  /** Returns a function for `Options.getToken`. */
  getToken(user: string): Options['getToken'] {
    return () => Promise.resolve(this.token(user));
  }

  /** Returns a new token. */
  token(user: string, seconds = this.#tokenSeconds): string {
    return this.#auth.token(user, seconds).token;
  }

  /** The key with which a backend may call for any user. */
  get apiKey(): string {
    return this.#auth.apiKey;
  }

  /** Calls the server as a user, without a network. Returns the body of the answer. */
  call(
    user: string, method: string, path: string, body?: object,
  ): { status: number; body: unknown } {
    const answer = this.#rest.answer({
      method, url: new URL(`${this.url}/api/v1${path}`),
      headers: new Map([['authorization', `Bearer dev:${user}`]]),
      body: body === undefined ? '' : JSON.stringify(body),
    }, path.split('?', 1)[0] ?? '');
    const parsed: unknown = answer.body === '' ? null : JSON.parse(answer.body);
    return { status: answer.status, body: parsed };
  }

  // ---- What happens to a server -----------------------------------------------------------------

  /** Is called for each event that a session gives to its connection. */
  set onEvent(run: (session: string, event: Event) => void) {
    this.#core.onEvent = run;
  }

  /** Is called when a connection resumes a session after an event. */
  set onResume(run: (session: string, after: number) => void) {
    this.#core.onResume = run;
  }

  /** Is called for each new message. */
  set onStored(run: (message: Message) => void) {
    this.#core.onStored = run;
  }

  /** How long each new stream waits for its turn, in milliseconds: the server is busy. */
  set turnMs(ms: number) {
    this.#streams.turnMs = ms;
  }

  /**
   * A status may be late. If this is not 0, each one that is overtaken comes again after so many
   * milliseconds.
   */
  set statusesLateMs(ms: number) {
    this.#core.statusesLateMs = ms;
  }

  /** What is stored. Tests may read it. */
  get data(): Data {
    return this.#core.data;
  }

  /** Stops in order, and starts again at once. Sessions and unused tickets are lost. */
  restart(): void {
    this.#streams.stop();
    this.#core.restart();
    this.#auth.forgetTickets();
  }

  /** Dies. Requests fail until `start`. */
  kill(): void {
    this.#down = true;
    this.#streams.kill();
    for (const link of this.#links) link.cut();
  }

  /** Starts after `kill`. */
  start(): void {
    this.#down = false;
    this.#core.restart();
    this.#auth.forgetTickets();
  }

  backup(): Backup {
    return { data: this.#core.data.copy() };
  }

  /** Dies, and starts with the data of a backup. They begin a new life. */
  restore(backup: Backup): void {
    this.kill();
    this.#core.restart(backup.data.copy());
    this.#auth.forgetTickets();
    this.#down = false;
  }

  /** Makes all tokens wrong that were made until now. */
  revokeTokens(): void {
    this.#auth.revoke();
  }

  /** Ends the sessions of a user, as `DELETE /sessions` does. */
  endSessions(user: string): void {
    this.#core.endSessions(user, this.#core.sessionsOf(user).map((s) => s.id));
  }

  // ---- Network ----------------------------------------------------------------------------------

  /** Serves a request. `Link` calls it. */
  serve(request: Request, sink: Sink): Flow {
    const none: Flow = { message: () => undefined, gone: () => undefined };
    const path = request.url.pathname.replace(/^\/api\/v1/, '');
    const refusal = this.#down ? new Refusal('UNAVAILABLE', 'the server is down', null, 1)
      : this.refuse(request);
    if (refusal === undefined && path === '/events') return this.#streams.sse(request, sink);
    if (refusal === undefined && path === '/poll') return this.#streams.poll(request, sink);
    const answer = refusal === undefined ? this.#rest.answer(request, path)
      : problem(refusal, 'REFUSED');
    sink.head(answer.status, answer.headers);
    sink.write(answer.body);
    sink.end();
    return none;
  }

  /** Opens a WebSocket. `Link` calls it. */
  connect(request: Request, socket: ServerSocket): Flow {
    const refusal = this.#down ? new Refusal('UNAVAILABLE', 'the server is down', null, 1)
      : this.refuse(request);
    if (refusal === undefined) return this.#streams.socket(request, socket);
    socket.close(closeCode(refusal), refusal.retryAfter > 0
      ? `busy; retry-after=${refusal.retryAfter.toFixed(1)}` : refusal.message);
    return { message: () => undefined, gone: () => undefined };
  }
}

function closeCode(refusal: Refusal): number {
  return new Map([['UNAUTHENTICATED', 4401], ['DENIED', 4403], ['RATE_LIMITED', 4429],
    ['UNAVAILABLE', 1013]]).get(refusal.code) ?? 1011;
}

function makePlace(clock: VirtualClock, dice: Dice, link: Link, options: PlaceOptions): Place {
  const { gate = (run: () => void): void => {
    run();
  } } = options;
  const skew = options.skewMs ?? 0;
  link.gate = gate;
  const send = (url: string, method: string, headers: Headers, body: string,
    signal?: AbortSignal): Promise<Response> => {
    const names = new Map<string, string>();
    headers.forEach((value, name) => names.set(name, value));
    return link.fetch({ method, url: new URL(url), headers: names, body }, signal);
  };
  const page = new VirtualPage();
  const fetch = (input: string | URL | globalThis.Request, init: RequestInit = {}):
  Promise<Response> => {
    const url = typeof input === 'string' ? input : 'href' in input ? input.href : input.url;
    const { body } = init;
    if (body !== undefined && body !== null && typeof body !== 'string') {
      return Promise.reject(new TypeError('the virtual fetch takes texts only'));
    }
    const headers = new Headers(init.headers);
    if (typeof body === 'string' && !headers.has('content-type')) {
      headers.set('content-type', 'text/plain;charset=UTF-8');
    }
    return send(url, (init.method ?? 'GET').toUpperCase(), headers, body ?? '',
      init.signal ?? undefined);
  };
  const platform: Platform = {
    now: () => clock.now() + skew,
    monotonic: () => clock.monotonic(),
    random: (n) => dice.bytes(n),
    timer: (ms, run) => {
      let gone = false;
      const cancel = clock.timer(ms, () => {
        gate(() => {
          if (!gone) run();
        });
      });
      return () => {
        gone = true;
        cancel();
      };
    },
    fetch,
    WebSocket: options.webSocket === false ? undefined : virtualWebSocket(() => link),
    page: options.page === false ? undefined : page,
  };
  return { platform, link, page };
}
