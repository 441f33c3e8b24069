// The messages that were written and are not confirmed yet. They survive a reload, and keep their
// order within a chat. Every attempt has the same client_message_id, so a message that is sent
// twice is stored once.

import { pauseBefore } from './stream.js';

// After so many refusals, which take over a minute, the message shows ✗ and waits for the user.
// Attempts without an answer do not count: the page shows that there is no connection, and the
// message waits for as long as needed.
const ATTEMPTS = 10;

export class Outbox {
  #items = [];
  #paused = true;
  #timer = null;
  #running = false;
  // The number of failed attempts in a row. The pauses grow with it.
  #pauses = 0;
  // The Retry-After of the last refusal, in seconds.
  #after = 0;

  /**
   * @param onStored called with each confirmed message. It must store the message, which removes
   * it from the database's outbox.
   * @param onChange called with a chat id when the visible items of the chat have changed.
   */
  constructor({ api, store, onStored, onChange }) {
    this.api = api;
    this.store = store;
    this.onStored = onStored;
    this.onChange = onChange;
  }

  async load() {
    this.#items = await this.store.outbox();
  }

  of(chat) {
    return this.#items.filter((i) => i.chat_id === chat);
  }

  /** Queues a message. `seen` is the highest sequence that was visible when it was written. */
  async add(chat, content, seen) {
    const item = {
      client_message_id: newID(),
      chat_id: chat,
      content,
      seen,
      at: this.#nextTime(),
      state: 'sending',
      attempts: 0,
      problem: '',
    };
    this.#items.push(item);
    this.onChange(chat);
    await this.store.putOutbox(item);
    this.#run();
  }

  async retry(id) {
    const item = this.#items.find((i) => i.client_message_id === id);
    if (!item) return;
    await this.#update(item, { state: 'sending', attempts: 0, problem: '' });
    this.#run();
  }

  async discard(id) {
    const item = this.#items.find((i) => i.client_message_id === id);
    if (!item) return;
    this.#remove(item);
    await this.store.dropOutbox(id);
  }

  /** Handles a message of this user on the stream. It is stored, even if no answer came. */
  confirmed(id) {
    const item = this.#items.find((i) => i.client_message_id === id);
    if (item) this.#remove(item);
  }

  resume() {
    this.#paused = false;
    this.#pauses = 0;
    this.#run();
  }

  pause() {
    this.#paused = true;
    clearTimeout(this.#timer);
  }

  async #run() {
    if (this.#running) return;
    clearTimeout(this.#timer);
    this.#running = true;
    let item;
    while (!this.#paused && (item = this.#items.find((i) => i.state === 'sending'))) {
      if (await this.#send(item)) {
        this.#pauses = 0;
        continue;
      }
      this.#timer = setTimeout(() => this.#run(), pauseBefore(this.#pauses, this.#after));
      break;
    }
    this.#running = false;
  }

  // Returns whether no further attempt is needed: the item is confirmed, or has failed.
  async #send(item) {
    try {
      const message = await this.api.send(item.chat_id, {
        client_message_id: item.client_message_id,
        content: item.content,
        ...(item.seen > 0 ? { seen_sequence: item.seen } : {}),
      });
      await this.onStored(message);
      this.#remove(item);
      return true;
    } catch (error) {
      this.#after = error.after ?? 0;
      const attempts = item.attempts + (error.status === 0 || error.status === 401 ? 0 : 1);
      const failed = error.final || attempts >= ATTEMPTS;
      this.#pauses++;
      const state = failed ? 'failed' : 'sending';
      await this.#update(item, { attempts, state, problem: failed ? error.message : '' });
      return failed;
    }
  }

  async #update(item, change) {
    if (!this.#items.includes(item)) return; // The stream has confirmed it meanwhile.
    Object.assign(item, change);
    this.onChange(item.chat_id);
    await this.store.putOutbox(item);
  }

  #remove(item) {
    this.#items = this.#items.filter((i) => i !== item);
    this.onChange(item.chat_id);
  }

  // Returns a time above that of the last item, so that items of one millisecond keep their order.
  #nextTime() {
    return Math.max(Date.now(), (this.#items.at(-1)?.at ?? 0) + 1);
  }
}

/**
 * Returns an id that begins with the time, so that new ids are neighbours in the server's index.
 * crypto.randomUUID would need HTTPS.
 */
export function newID() {
  const random = crypto.getRandomValues(new Uint8Array(10));
  const hex = Array.from(random, (b) => b.toString(16).padStart(2, '0')).join('');
  return `${Date.now().toString(16).padStart(12, '0')}-${hex}`;
}
