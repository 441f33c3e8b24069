// The event stream: one EventSource, and what to do when it gives up.

const TYPES = ['open', 'message', 'gap', 'status_update', 'membership', 'caught_up', 'reset', 'error'];

/**
 * The pause before attempt n (from 0) in milliseconds: a random part of 0.5 s doubling to 30 s, so that clients that lost a server do not come
 * back together. `after` is the Retry-After of an answer in seconds; the server has spread its clients by it, to the second.
 */
export function pauseBefore(attempt, after = 0, random = Math.random) {
  if (after > 0) return (after + random()) * 1_000;
  return random() * Math.min(30_000, 500 * 2 ** attempt);
}

/**
 * A stream that stays open. EventSource reconnects by itself after a cut, with the Last-Event-ID it saw; it gives
 * up for good on any HTTP status but 200 (a used-up ticket is 401, a restarting server 503). Then a new one is
 * made, with a new ticket and the position in the URL, so that the session goes on all the same.
 *
 * States: connecting, live, replaced (a newer connection owns the session; only the user may take it back), closed.
 */
export class Stream {
  #source = null;
  #timer = null;
  #attempt = 0;
  #generation = 0;
  #wanted = false;
  #position = '';

  /** @param onRefused called with the error when the caller's own credentials are refused: no new ticket, and no use in trying again. */
  constructor({ url, onEvent, onState, onRefused }) {
    this.url = url;
    this.onEvent = onEvent;
    this.onState = onState;
    this.onRefused = onRefused;
  }

  /** Opens the stream, after `position` (an event id of an earlier connection, or ''). */
  open(position = '') {
    this.close();
    this.#wanted = true;
    this.#position = position;
    this.#attempt = 0;
    this.#connect();
  }

  close() {
    this.#wanted = false;
    this.#stop();
    this.onState('closed');
  }

  /** The network is gone. EventSource would not notice for minutes, so it is given up, and tried again. */
  lost() {
    if (this.#wanted) this.#later();
  }

  /** The network is there again, maybe another one: whatever was open before is worth nothing. */
  reconnect() {
    if (!this.#wanted) return;
    this.#attempt = 0;
    this.#connect();
  }

  #stop() {
    this.#generation++;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  async #connect() {
    this.#stop();
    const generation = this.#generation;
    this.onState('connecting');
    let url;
    try {
      url = await this.url(this.#position);
    } catch (error) {
      if (generation !== this.#generation) return;
      if (error.status === 401) this.onRefused(error);
      else this.#later(error.after);
      return;
    }
    if (generation !== this.#generation) return;
    const source = new EventSource(url);
    this.#source = source;
    for (const type of TYPES) source.addEventListener(type, (event) => this.#take(source, type, event));
  }

  // `open` and `error` are names of our events and of EventSource's own; only ours carry data.
  #take(source, type, event) {
    if (source !== this.#source) return;
    if (!(event instanceof MessageEvent)) {
      if (type === 'error') this.#lost(source);
      return;
    }
    const payload = JSON.parse(event.data);
    if (type === 'error') {
      if (payload.code === 'REPLACED') {
        this.#stop();
        this.onState('replaced');
      }
      return;
    }
    if (event.lastEventId) this.#position = event.lastEventId;
    if (type === 'open') {
      this.#attempt = 0;
      this.onState('live');
    }
    this.onEvent(type, payload, event.lastEventId);
  }

  #lost(source) {
    if (source.readyState === EventSource.CLOSED) this.#later();
    else this.onState('connecting');
  }

  #later(after) {
    this.#stop();
    this.onState('connecting');
    this.#timer = setTimeout(() => this.#connect(), pauseBefore(this.#attempt++, after));
  }
}
