// A virtual network between clients and the fake server, with what goes wrong in real ones.

import type { VirtualClock } from './clock.js';
import type { Dice } from './random.js';
import type { Request } from './server/rest.js';
import type { Flow, ServerSocket, Sink } from './server/streams.js';

/** What a network carries to. */
export interface Target {
  serve(request: Request, sink: Sink): Flow;
  connect(request: Request, socket: ServerSocket): Flow;
}

/**
 * What may happen to one request, in both directions:
 *
 * - `drop`: it never arrives. The caller gets an error.
 * - `lose`: it arrives, and the answer is lost. The caller gets an error.
 * - `hang`: it arrives, and the answer never comes.
 * - `double`: it arrives twice. The caller gets the first answer.
 * - `slow`: it takes some seconds.
 * - `half`: the answer is cut in its middle.
 */
export type Fault = 'drop' | 'lose' | 'hang' | 'double' | 'slow' | 'half';

/** An answer that a network or a proxy gives in place of the server. */
export interface Instead {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** The answer counts as redirected. */
  readonly redirected?: boolean;
}

/** The way of one device to the server. The fields may be changed at any time. */
export class Link {
  readonly clock: VirtualClock;
  readonly dice: Dice;
  readonly target: Target;
  /** One way, in milliseconds. Up to `jitter` is added to each. */
  latency = 20;
  jitter = 30;
  /** Nothing gets through, and what is open breaks. */
  offline = false;
  /** A proxy holds back streams, and sends them when they end. */
  buffersStreams = false;
  /** A proxy refuses WebSockets. */
  blocksWebSocket = false;
  /** A proxy answers everything itself. */
  portal: Instead | undefined;
  /** Called for each request. Returns a fault for it, or an answer in place of the server's. */
  onRequest: (request: Request) => Fault | Instead | undefined = () => undefined;
  /** Called for each frame that a WebSocket sends. */
  onFrame: (text: string) => void = () => undefined;
  /** Runs what happens at the client. A frozen page runs it later, and a dead one never. */
  gate: (run: () => void) => void = (run) => {
    run();
  };
  readonly #cuts = new Set<(half: boolean) => void>();
  readonly #vanish = new Set<() => void>();

  constructor(clock: VirtualClock, dice: Dice, target: Target) {
    this.clock = clock;
    this.dice = dice;
    this.target = target;
  }

  /** Breaks all that is open. With `half`, HTTP answers break in the middle of their next part. */
  cut(half = false): void {
    for (const cut of [...this.#cuts]) cut(half);
  }

  /** All that is open dies, but the client is not told. */
  vanish(): void {
    for (const vanish of [...this.#vanish]) vanish();
  }

  setOffline(offline: boolean): void {
    this.offline = offline;
    if (offline) this.cut();
  }

  delay(): number {
    return this.latency + this.dice.roll(this.jitter + 1);
  }

  /** Remembers how to break something. The result forgets it. */
  watch(cut: (half: boolean) => void, vanish: () => void): () => void {
    this.#cuts.add(cut);
    this.#vanish.add(vanish);
    return () => {
      this.#cuts.delete(cut);
      this.#vanish.delete(vanish);
    };
  }

  fetch(request: Request, signal: AbortSignal | undefined): Promise<Response> {
    return new Promise((resolve, reject) => {
      new Call(this, request, signal, resolve, reject).begin();
    });
  }
}

const failure = (): TypeError => new TypeError('fetch failed');

/** One request and its answer. */
class Call {
  readonly #link: Link;
  readonly #request: Request;
  readonly #signal: AbortSignal | undefined;
  readonly #resolve: (response: Response) => void;
  readonly #reject: (reason: unknown) => void;
  #state: 'waiting' | 'open' | 'over' | 'vanished' = 'waiting';
  #flow: Flow | undefined;
  #body: Body | undefined;
  /** What the server sends arrives in order. */
  #arrivesAt = 0;
  #forget: () => void = () => undefined;
  #held: (() => void)[] = [];
  #cutAfter = Number.POSITIVE_INFINITY;
  readonly #aborted = (): void => {
    this.#fail(this.#signal?.reason);
  };

  constructor(
    link: Link, request: Request, signal: AbortSignal | undefined,
    resolve: (response: Response) => void, reject: (reason: unknown) => void,
  ) {
    this.#link = link;
    this.#request = request;
    this.#signal = signal;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  begin(): void {
    const link = this.#link;
    if (this.#signal?.aborted === true) {
      this.#reject(this.#signal.reason);
      return;
    }
    this.#signal?.addEventListener('abort', this.#aborted);
    if (link.offline) {
      link.clock.timer(1, () => {
        this.#fail(failure());
      });
      return;
    }
    this.#forget = link.watch((half) => {
      if (half && this.#state === 'open') this.#cutAfter = 1 + link.dice.roll(60);
      else this.#fail(failure());
    }, () => {
      this.#vanish();
    });
    const verdict = link.portal ?? link.onRequest(this.#request);
    if (typeof verdict === 'object') {
      this.#instead(verdict);
      return;
    }
    const slow = verdict === 'slow' ? 2000 + link.dice.roll(8000) : 0;
    if (verdict === 'drop') {
      link.clock.timer(link.delay(), () => {
        this.#fail(failure());
      });
      return;
    }
    if (verdict === 'half') this.#cutAfter = 1 + link.dice.roll(60);
    link.clock.timer(link.delay() + slow, () => {
      this.#arrive(verdict);
    });
    if (verdict !== 'double') return;
    link.clock.timer(link.delay() * 3, () => {
      const ignored = { head: () => undefined, write: () => undefined, end: () => undefined };
      const flow = link.target.serve(this.#request, ignored);
      link.clock.timer(100, () => {
        flow.gone(1006);
      });
    });
  }

  /** The request reaches the server, even if its caller has gone. */
  #arrive(verdict: Fault | undefined): void {
    const link = this.#link;
    if (this.#state === 'vanished') return;
    const gone = this.#state === 'over';
    if (gone && this.#request.method === 'GET') return;
    const silent = { head: () => undefined, write: () => undefined, end: () => undefined };
    if (gone || verdict === 'hang' || verdict === 'lose') {
      const flow = link.target.serve(this.#request, silent);
      link.clock.timer(100, () => {
        flow.gone(1006);
      });
      if (verdict === 'lose') {
        link.clock.timer(link.delay(), () => {
          this.#fail(failure());
        });
      }
      return;
    }
    this.#flow = link.target.serve(this.#request, {
      head: (status, headers) => {
        this.#later(() => {
          this.#head(status, headers, false);
        }, headers['content-type'] === 'text/event-stream');
      },
      write: (text) => {
        this.#later(() => {
          this.#write(text);
        });
      },
      end: () => {
        const held = this.#held;
        this.#held = [];
        held.forEach((run) => {
          run();
        });
        this.#later(() => {
          this.#end();
        });
      },
    });
  }

  /** Runs when the next part of the answer has arrived. */
  #later(run: () => void, stream = false): void {
    const { clock } = this.#link;
    const go = (): void => {
      const at = Math.max(this.#arrivesAt, clock.now() + this.#link.delay());
      this.#arrivesAt = at;
      clock.timer(at - clock.now(), () => {
        this.#link.gate(run);
      });
    };
    if (this.#held.length > 0 || (stream && this.#link.buffersStreams)) this.#held.push(go);
    else go();
  }

  #instead(answer: Instead): void {
    this.#later(() => {
      this.#head(answer.status, answer.headers ?? {}, answer.redirected === true);
    });
    this.#later(() => {
      this.#write(answer.body ?? '');
    });
    this.#later(() => {
      this.#end();
    });
  }

  #head(status: number, headers: Readonly<Record<string, string>>, redirected: boolean): void {
    if (this.#state !== 'waiting') return;
    this.#state = 'open';
    this.#body = new Body();
    this.#resolve(new VirtualResponse(status, headers, redirected, this.#request.url.href,
      this.#body) as unknown as Response);
  }

  #write(text: string): void {
    if (this.#state !== 'open') return;
    this.#body?.push(text.slice(0, this.#cutAfter));
    this.#cutAfter -= text.length;
    if (this.#cutAfter < 0) this.#fail(failure());
  }

  #end(): void {
    if (this.#state !== 'open') return;
    this.#state = 'over';
    this.#signal?.removeEventListener('abort', this.#aborted);
    this.#forget();
    this.#body?.end();
  }

  #vanish(): void {
    this.#state = 'vanished';
    this.#forget();
    const flow = this.#flow;
    this.#link.clock.timer(40_000, () => {
      flow?.gone(1006);
    });
  }

  #fail(reason: unknown): void {
    if (this.#state === 'over') return;
    this.#state = 'over';
    this.#signal?.removeEventListener('abort', this.#aborted);
    this.#forget();
    this.#link.clock.timer(this.#link.latency, () => {
      this.#flow?.gone(1006);
    });
    this.#link.gate(() => {
      if (this.#body === undefined) this.#reject(reason);
      else this.#body.fail(reason);
    });
  }
}

/** The body of an answer, as it arrives. */
class Body {
  #parts: string[] = [];
  #state: 'open' | 'ended' | 'failed' = 'open';
  #reason: unknown;
  #changed: () => void = () => undefined;

  push(text: string): void {
    if (text !== '') this.#parts.push(text);
    this.#changed();
  }

  end(): void {
    this.#state = 'ended';
    this.#changed();
  }

  fail(reason: unknown): void {
    this.#state = 'failed';
    this.#reason = reason;
    this.#changed();
  }

  async text(): Promise<string> {
    while (this.#state === 'open') await this.#wait();
    if (this.#state === 'failed') throw this.#reason;
    const text = this.#parts.join('');
    this.#parts = [];
    return text;
  }

  stream(): ReadableStream<Uint8Array> {
    const encoder = new TextEncoder();
    return new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        while (this.#parts.length === 0 && this.#state === 'open') await this.#wait();
        const text = this.#parts.join('');
        this.#parts = [];
        if (text !== '') controller.enqueue(encoder.encode(text));
        else if (this.#state === 'failed') controller.error(this.#reason);
        else controller.close();
      },
      // A queue would ask for more than the reader wants.
    }, { highWaterMark: 0 });
  }

  #wait(): Promise<void> {
    return new Promise((resolve) => {
      this.#changed = resolve;
    });
  }
}

/** The part of `Response` that clients use. A real one would take most of the simulation's time. */
class VirtualResponse {
  readonly status: number;
  readonly ok: boolean;
  readonly statusText = '';
  readonly headers: Headers;
  readonly redirected: boolean;
  readonly type = 'basic';
  readonly url: string;
  bodyUsed = false;
  readonly #body: Body;
  #stream: ReadableStream<Uint8Array> | undefined;

  constructor(
    status: number, headers: Readonly<Record<string, string>>, redirected: boolean, url: string,
    body: Body,
  ) {
    this.status = status;
    this.ok = status >= 200 && status < 300;
    this.headers = new Headers(headers);
    this.redirected = redirected;
    this.url = url;
    this.#body = body;
  }

  get body(): ReadableStream<Uint8Array> {
    this.#stream ??= this.#body.stream();
    return this.#stream;
  }

  text(): Promise<string> {
    this.bodyUsed = true;
    return this.#body.text();
  }

  async json(): Promise<unknown> {
    return JSON.parse(await this.text()) as unknown;
  }
}
