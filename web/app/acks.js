// Decides when to acknowledge. The store alone decides what may be acknowledged.

// ADR-008 §2.1 says: after 10 messages or 5 seconds. This page waits only 1 second, so that users
// who watch two windows see ✓✓ soon. A phone would wait 5 seconds to save its battery.
const ACK_AFTER_MESSAGES = 10;
const ACK_AFTER_MS = 1_000;
// Reading is rarer than receiving, and the sender waits for the blue ticks.
// This time only gathers one burst of scrolling.
const READ_AFTER_MS = 200;
const RETRY_AFTER_MS = 2_000;

/**
 * Gathers boundaries and sends them, at most one request at a time. It keeps a boundary until the
 * server has answered, so the next request covers a lost one. While paused, it sends nothing and
 * forgets nothing.
 */
export class Acknowledger {
  #wanted = new Map();
  #confirmed = new Map();
  #messages = 0;
  #timer = null;
  #due = Infinity;
  #flying = false;
  #paused = true;

  constructor(api) {
    this.api = api;
  }

  /** Records that the chat is stored up to `prefix`, of which `messages` messages are new. */
  stored(chat, prefix, messages) {
    if (!this.#raise(chat, 'acked', prefix)) return;
    this.#messages += messages;
    this.#schedule(this.#messages >= ACK_AFTER_MESSAGES ? 0 : ACK_AFTER_MS);
  }

  /** Records that the chat has been shown up to `sequence`. */
  read(chat, sequence) {
    if (this.#raise(chat, 'read', sequence)) this.#schedule(READ_AFTER_MS);
  }

  /** Records what the server already has, so that it is not sent again. */
  known(chat, boundary) {
    const known = this.#confirmed.get(chat) ?? { acked: 0, read: 0 };
    this.#confirmed.set(chat, {
      acked: Math.max(known.acked, boundary.acked),
      read: Math.max(known.read, boundary.read),
    });
  }

  forget(chat) {
    this.#wanted.delete(chat);
    this.#confirmed.delete(chat);
  }

  resume() {
    this.#paused = false;
    if (this.#outstanding().length > 0) this.#schedule(0);
  }

  /** Sends what is outstanding and stops. */
  async pause() {
    await this.flush();
    this.#paused = true;
    this.#cancel();
  }

  /** Stops without sending anything, because the server refuses the caller. */
  stop() {
    this.#paused = true;
    this.#cancel();
  }

  /** Sends what is outstanding by a request that outlives the page. */
  exit() {
    const chats = this.#outstanding();
    if (!this.#paused && chats.length > 0) this.api.acknowledgeOnExit(chats);
  }

  async flush() {
    this.#cancel();
    const chats = this.#outstanding();
    if (this.#paused || this.#flying || chats.length === 0) return;
    this.#flying = true;
    this.#messages = 0;
    let failed = false;
    try {
      await this.api.acknowledge(chats);
      // A refusal is final (the user left the chat, or the database is new): do not send it again.
      for (const c of chats) {
        const acked = c.last_acked_sequence ?? 0;
        this.known(c.chat_id, { acked, read: c.last_read_sequence ?? 0 });
      }
    } catch {
      failed = true;
    }
    this.#flying = false;
    if (this.#outstanding().length > 0) this.#schedule(failed ? RETRY_AFTER_MS : ACK_AFTER_MS);
  }

  #raise(chat, which, sequence) {
    const wanted = this.#wanted.get(chat) ?? { acked: 0, read: 0 };
    if (sequence <= wanted[which]) return false;
    this.#wanted.set(chat, { ...wanted, [which]: sequence });
    return true;
  }

  #outstanding() {
    const chats = [];
    for (const [chat, wanted] of this.#wanted) {
      const confirmed = this.#confirmed.get(chat) ?? { acked: 0, read: 0 };
      const ack = { chat_id: chat };
      if (wanted.acked > confirmed.acked) ack.last_acked_sequence = wanted.acked;
      if (wanted.read > confirmed.read) ack.last_read_sequence = wanted.read;
      if (Object.keys(ack).length > 1) chats.push(ack);
    }
    return chats;
  }

  #schedule(delay) {
    if (this.#paused) return;
    const due = performance.now() + delay;
    if (due >= this.#due) return;
    clearTimeout(this.#timer);
    this.#due = due;
    this.#timer = setTimeout(() => this.flush(), delay);
  }

  #cancel() {
    clearTimeout(this.#timer);
    this.#timer = null;
    this.#due = Infinity;
  }
}
