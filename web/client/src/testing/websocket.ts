// A WebSocket over the virtual network.

import type { Link } from './network.js';
import type { Flow } from './server/streams.js';

interface SocketEvent {
  readonly type: 'open' | 'message' | 'error' | 'close';
  readonly target: unknown;
  readonly data?: string;
  readonly code?: number;
  readonly reason?: string;
  readonly wasClean?: boolean;
}

type Listener = ((event: SocketEvent) => void) | { handleEvent(event: SocketEvent): void };

/** Returns a class for `Platform.WebSocket` whose connections go over `link()`. */
export function virtualWebSocket(link: () => Link): typeof globalThis.WebSocket {
  class Bound extends VirtualWebSocket {
    constructor(url: string | URL, protocols?: string | string[]) {
      super(link(), url, protocols);
    }
  }
  return Bound as unknown as typeof globalThis.WebSocket;
}

/** The part of `WebSocket` that clients use. Frames arrive in order. */
class VirtualWebSocket {
  static readonly CONNECTING = 0;
  static readonly OPEN = 1;
  static readonly CLOSING = 2;
  static readonly CLOSED = 3;
  readonly CONNECTING = 0;
  readonly OPEN = 1;
  readonly CLOSING = 2;
  readonly CLOSED = 3;
  readonly url: string;
  readyState = 0;
  protocol = '';
  binaryType = 'blob';
  readonly bufferedAmount = 0;
  onopen: ((event: SocketEvent) => void) | null = null;
  onmessage: ((event: SocketEvent) => void) | null = null;
  onerror: ((event: SocketEvent) => void) | null = null;
  onclose: ((event: SocketEvent) => void) | null = null;
  readonly #link: Link;
  readonly #listeners = new Map<string, Set<Listener>>();
  #flow: Flow | undefined;
  #forget: () => void;
  #vanished = false;
  #toClient = 0;
  #toServer = 0;

  constructor(link: Link, url: string | URL, protocols?: string | string[]) {
    this.#link = link;
    const to = new URL(url);
    this.url = to.href;
    this.#forget = link.watch(() => {
      this.#broken();
    }, () => {
      this.#vanished = true;
      const flow = this.#flow;
      link.clock.timer(40_000, () => {
        flow?.gone(1006);
      });
    });
    const protocol = typeof protocols === 'string' ? protocols : protocols?.[0] ?? '';
    const request = { method: 'GET', url: to, headers: new Map<string, string>(), body: '' };
    if (link.offline || link.blocksWebSocket || link.portal !== undefined) {
      link.clock.timer(link.delay(), () => {
        this.#broken();
      });
      return;
    }
    const verdict = link.onRequest(request);
    if (verdict === 'hang') return;
    if (verdict === 'drop' || typeof verdict === 'object') {
      link.clock.timer(link.delay(), () => {
        this.#broken();
      });
      return;
    }
    this.#later('server', () => {
      this.#flow = link.target.connect(request, {
        send: (text) => {
          this.#later('client', () => {
            if (this.readyState === 1) this.#emit({ type: 'message', target: this, data: text });
          });
        },
        close: (code, reason) => {
          this.#later('client', () => {
            this.#closed(code, reason, true);
          });
        },
      });
    });
    // The upgrade is answered before the first frame.
    const upgraded = this.#toServer;
    this.#toClient = upgraded + link.delay();
    link.clock.timer(this.#toClient - link.clock.now(), () => {
      if (this.#vanished) return;
      link.gate(() => {
        if (this.readyState !== 0) return;
        this.readyState = 1;
        this.protocol = protocol;
        this.#emit({ type: 'open', target: this });
      });
    });
  }

  send(data: string): void {
    if (this.readyState === 0) throw new DOMException('not open yet', 'InvalidStateError');
    if (this.readyState !== 1) return;
    this.#link.onFrame(data);
    this.#later('server', () => {
      this.#flow?.message(data);
    });
  }

  close(code = 1005, reason = ''): void {
    if (this.readyState >= 2) return;
    const connecting = this.readyState === 0;
    this.readyState = 2;
    this.#later('server', () => {
      this.#flow?.gone(connecting ? 1006 : code);
    });
    this.#link.clock.timer(this.#link.delay() * 2, () => {
      this.#link.gate(() => {
        this.#closed(connecting ? 1006 : code, reason, !connecting);
      });
    });
  }

  addEventListener(type: string, listener: Listener, options?: { signal?: AbortSignal }): void {
    const set = this.#listeners.get(type) ?? new Set();
    this.#listeners.set(type, set);
    set.add(listener);
    options?.signal?.addEventListener('abort', () => set.delete(listener));
  }

  removeEventListener(type: string, listener: Listener): void {
    this.#listeners.get(type)?.delete(listener);
  }

  #emit(event: SocketEvent): void {
    const own = {
      open: this.onopen, message: this.onmessage, error: this.onerror, close: this.onclose,
    }[event.type];
    own?.(event);
    for (const listener of [...this.#listeners.get(event.type) ?? []]) {
      if (typeof listener === 'function') listener(event);
      else listener.handleEvent(event);
    }
  }

  /** Runs when a frame has arrived, after all earlier ones. */
  #later(to: 'client' | 'server', run: () => void): void {
    const { clock } = this.#link;
    const earliest = clock.now() + this.#link.delay();
    const at = Math.max(earliest, to === 'client' ? this.#toClient : this.#toServer);
    if (to === 'client') this.#toClient = at;
    else this.#toServer = at;
    clock.timer(at - clock.now(), () => {
      if (this.#vanished || (to === 'client' && this.readyState === 3)) return;
      if (to === 'server') run();
      else this.#link.gate(run);
    });
  }

  #broken(): void {
    if (this.readyState === 3) return;
    const flow = this.#flow;
    this.#link.clock.timer(this.#link.latency, () => {
      flow?.gone(1006);
    });
    this.#link.gate(() => {
      if (this.readyState === 3) return;
      this.#emitError();
      this.#closed(1006, '', false);
    });
  }

  #emitError(): void {
    this.readyState = 2;
    this.#emit({ type: 'error', target: this });
  }

  #closed(code: number, reason: string, wasClean: boolean): void {
    if (this.readyState === 3) return;
    this.readyState = 3;
    this.#forget();
    this.#emit({ type: 'close', target: this, code, reason, wasClean });
  }
}
