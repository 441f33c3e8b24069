// The event stream: an EventSource, and its replacement when it gives up.

const TYPES = [
  'session', 'message', 'gap', 'status_update', 'own_state', 'membership', 'chat_updated',
  'caught_up', 'reset', 'problem',
];

/**
 * Returns the pause before attempt n (from 0) in milliseconds. It is a random part of a limit that
 * doubles from 0.5 s to 30 s, so that clients that lost a server do not come back at once. `after`
 * is the Retry-After of an answer in seconds. The server spreads its clients by it, so the page
 * only adds a random part of a second.
 */
export function pauseBefore(attempt, after = 0, random = Math.random) {
  if (after > 0) return (after + random()) * 1_000;
  return random() * Math.min(30_000, 500 * 2 ** attempt);
}

/**
 * A stream that stays open. After a cut, EventSource itself reconnects with the last id that it
 * saw. It gives up on any HTTP status but 200: a used ticket gets 401, a restarting server 503.
 * Then this class opens a new one, with a new ticket and the position in the URL, so the session
 * continues.
 *
 * The states are connecting, live, replaced and closed. In the state replaced a newer connection
 * owns the session, and only the user may take it back.
 */
export class Stream {
  #source = null;
  #timer = null;
  #attempt = 0;
  #generation = 0;
  #wanted = false;
  #position = '';

  /**
   * @param onRefused called with the error when the server refuses the caller's credentials. Then
   * there is no new ticket, and a retry cannot help.
   */
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

  /** Handles a lost network. EventSource would take minutes to notice, so it is replaced. */
  lost() {
    if (this.#wanted) this.#later();
  }

  /** Handles a new network. Connections of an earlier network no longer work. */
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
    source.addEventListener('error', () => this.#lost(source));
    for (const type of TYPES) {
      source.addEventListener(type, (event) => this.#take(source, type, event));
    }
  }

  #take(source, type, event) {
    if (source !== this.#source) return;
    const payload = JSON.parse(event.data);
    if (type === 'problem') {
      if (payload.code === 'REPLACED') {
        this.#stop();
        this.onState('replaced');
      }
      return;
    }
    if (event.lastEventId) this.#position = event.lastEventId;
    if (type === 'session') {
      this.#attempt = 0;
      this.onState('live');
    }
    this.onEvent(type, payload, event.lastEventId);
  }

  #lost(source) {
    if (source !== this.#source) return;
    if (source.readyState === EventSource.CLOSED) this.#later();
    else this.onState('connecting');
  }

  #later(after) {
    this.#stop();
    this.onState('connecting');
    this.#timer = setTimeout(() => this.#connect(), pauseBefore(this.#attempt++, after));
  }
}
