// The network as the client sees it. The page can switch it off, cut it, and block WebSocket, so
// that a visitor sees what happens then.

import { Value } from './view';

/** `off` is the user's wish; a time in milliseconds since 1970 is when it ends by itself. */
export type Switch = 'on' | 'off' | number;

export class Network {
  readonly power: Value<Switch>;
  readonly blocksWebSocket = new Value(false);
  /** What the client uses in place of the browser's own. */
  readonly WebSocket: typeof WebSocket;

  #sockets = new Set<{ lose(): void }>();
  #requests = new Set<AbortController>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(power: Switch) {
    this.power = new Value(power);
    this.WebSocket = socketOf(this.#sockets, () => this.#off() || this.blocksWebSocket.get());
  }

  /** Is a property, since the client calls it without `this`. */
  readonly fetch = async (input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> => {
    if (this.#off()) throw new TypeError('The network is switched off.');
    const cut = new AbortController();
    const { signal } = init;
    const end = () => cut.abort(signal?.reason);
    if (signal?.aborted) end();
    signal?.addEventListener('abort', end);
    const forget = () => {
      this.#requests.delete(cut);
      signal?.removeEventListener('abort', end);
    };
    this.#requests.add(cut);
    cut.signal.addEventListener('abort', forget);
    try {
      const response = await fetch(input, { ...init, signal: cut.signal });
      const stream = response.headers.get('Content-Type')?.startsWith('text/event-stream');
      if (!stream) forget();
      return response;
    } catch (error) {
      forget();
      throw error;
    }
  };

  /** Ends all connections, as a broken network does. New ones are possible. */
  cut(): void {
    for (const socket of [...this.#sockets]) socket.lose();
    for (const request of [...this.#requests]) request.abort(new TypeError('The network is cut.'));
  }

  /** Switches the network on, or off, or off for a time in milliseconds. */
  turn(power: 'on' | 'off', forMs = 0): void {
    clearTimeout(this.#timer);
    if (forMs > 0) this.#timer = setTimeout(() => this.turn('on'), forMs);
    this.power.set(power === 'off' && forMs > 0 ? Date.now() + forMs : power);
    if (power === 'off') this.cut();
  }

  blockWebSocket(blocked: boolean): void {
    this.blocksWebSocket.set(blocked);
    if (blocked) for (const socket of [...this.#sockets]) socket.lose();
  }

  #off(): boolean {
    return this.power.get() !== 'on';
  }
}

// A code of the page's own. 1000 would end the session.
const CUT = 4000;

function socketOf(open: Set<{ lose(): void }>, blocked: () => boolean): typeof WebSocket {
  return class Socket extends WebSocket {
    #lost = false;

    constructor(url: string | URL, protocols?: string | string[]) {
      super(url, protocols);
      // This listener is the first, so it decides what the others get.
      const filter = (event: Event) => {
        if (event.type === 'close') open.delete(this);
        if (this.#lost && event.isTrusted) event.stopImmediatePropagation();
      };
      for (const type of ['open', 'message', 'error', 'close']) {
        this.addEventListener(type, filter);
      }
      open.add(this);
      if (blocked()) super.close();
    }

    /** Looks to the client as if the connection broke. */
    lose(): void {
      if (this.#lost) return;
      this.#lost = true;
      open.delete(this);
      super.close(CUT);
      this.dispatchEvent(new Event('error'));
      this.dispatchEvent(new CloseEvent('close', { code: 1006, wasClean: false }));
    }
  };
}
