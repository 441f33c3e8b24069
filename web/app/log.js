// The messages of the open chat.

import { byId, dayOf, el, timeOf } from './dom.js';
import { isShown } from './kinds.js';
import { TICKS, countOf, tickOf } from './ticks.js';

// A message counts as shown when this much of it is visible, because a long one never fits whole.
const SHOWN_PIXELS = 40;
const AT_BOTTOM_PIXELS = 60;

export class Log {
  #client;
  #chat = null;
  #entries = new Map();
  #items = new Map();
  #complete = false;
  #loading = false;
  #frame = 0;

  constructor(client) {
    this.#client = client;
    this.log = byId('log');
    this.list = byId('entries');
    this.waiting = byId('waiting');
    this.older = byId('older');
    this.jump = byId('jump');
  }

  /** Handles events of the page and of the client until the signal aborts. */
  listen(signal) {
    this.log.addEventListener('scroll', () => this.#scrolled(), { signal, passive: true });
    this.older.addEventListener('click', () => this.#loadOlder(), { signal });
    this.jump.addEventListener('click', () => this.toBottom(), { signal });
    document.addEventListener('visibilitychange', () => this.#look(), { signal });
    window.addEventListener('resize', () => this.#look(), { signal });
    const on = (type, listener) => this.#client.addEventListener(type, ({ detail }) => {
      if (detail.chat === this.#chat) listener(detail);
    }, { signal });
    on('entries', ({ entries }) => this.#add(entries));
    on('ticks', () => this.#tick());
    on('outbox', () => this.#wait());
    on('reload', () => this.open(this.#chat));
  }

  get chat() {
    return this.#chat;
  }

  /** Shows the newest messages of a chat. null shows no chat. */
  async open(chat) {
    this.#chat = chat;
    this.#entries.clear();
    this.#items.clear();
    this.list.replaceChildren();
    this.waiting.replaceChildren();
    this.#complete = false;
    this.jump.hidden = true;
    this.older.hidden = true;
    if (!chat) return;
    this.#wait();
    await this.#load(Infinity);
    if (this.#chat === chat) this.toBottom();
  }

  toBottom() {
    this.log.scrollTop = this.log.scrollHeight;
    this.jump.hidden = true;
    this.#look();
  }

  /** Returns the highest sequence on the screen, or 0. */
  displayed() {
    if (document.visibilityState !== 'visible' || this.log.clientHeight === 0) return 0;
    const bottom = this.log.getBoundingClientRect().bottom;
    for (let item = this.list.lastElementChild; item; item = item.previousElementSibling) {
      if (!item.dataset.to) continue;
      const box = item.getBoundingClientRect();
      if (box.top + Math.min(box.height, SHOWN_PIXELS) <= bottom) return Number(item.dataset.to);
    }
    return 0;
  }

  async #load(before) {
    const chat = this.#chat;
    this.#loading = true;
    this.older.hidden = false;
    this.older.disabled = true;
    this.older.textContent = 'Loading …';
    try {
      const page = await this.#client.history(chat, before);
      if (this.#chat !== chat) return;
      for (const entry of page.entries) this.#entries.set(entry.from, entry);
      this.#complete = page.complete;
      this.older.textContent = page.problem ? `${page.problem} Try again` : 'Older messages';
      this.#render();
    } catch (error) { // an error of the device's own store
      if (this.#chat === chat) this.older.textContent = `${error.message} Try again`;
    } finally {
      if (this.#chat === chat) {
        this.#loading = false;
        this.older.disabled = false;
        this.older.hidden = this.#complete;
      }
    }
  }

  // Loads older messages. What is on the screen stays in place while the list grows above it.
  async #loadOlder() {
    if (this.#loading || this.#complete || !this.#chat) return;
    // This is Infinity if not even the newest page could be loaded.
    const first = Math.min(...this.#entries.keys());
    const fromBottom = this.log.scrollHeight - this.log.scrollTop;
    await this.#load(first);
    this.log.scrollTop = this.log.scrollHeight - fromBottom;
  }

  #add(entries) {
    const first = Math.min(...this.#entries.keys());
    const bottom = this.#atBottom();
    let last = Math.max(0, ...this.#entries.keys());
    let inOrder = true;
    const added = [];
    for (const entry of entries) {
      // An entry that is older than the shown pages comes with its own page.
      if (this.#entries.has(entry.from) || entry.from < first && this.#entries.size > 0) continue;
      inOrder &&= entry.from > last;
      last = Math.max(last, entry.from);
      this.#entries.set(entry.from, entry);
      added.push(entry);
    }
    if (added.length === 0) return;
    if (inOrder) added.forEach((entry) => this.#append(entry, true));
    else this.#render();
    this.#tick();
    const news = added.filter((entry) => entry.gap || isShown(entry.message));
    if (bottom || news.at(-1)?.message?.sender_id === this.#client.user) this.toBottom();
    else if (news.length > 0) this.jump.hidden = false;
    this.#look();
  }

  #render() {
    this.list.replaceChildren();
    this.#items.clear();
    for (const from of [...this.#entries.keys()].sort((a, b) => a - b)) {
      this.#append(this.#entries.get(from), false);
    }
    this.#tick();
    this.#look();
  }

  #append(entry, fresh) {
    if (entry.gap) {
      const text = `${entry.to - entry.from + 1} messages, sent while you were not a member`;
      const range = { 'data-from': entry.from, 'data-to': entry.to };
      this.list.append(el('li', { class: 'gap', text, ...range }));
      return;
    }
    const message = entry.message;
    const previous = this.list.lastElementChild;
    if (!isShown(message)) {
      // It is read together with the message above it.
      if (previous?.dataset.to) previous.dataset.to = entry.to;
      return;
    }
    const at = new Date(message.created_at);
    if (previous?.dataset.day !== at.toDateString()) {
      this.list.append(el('li', { class: 'day', text: dayOf(at), 'data-day': at.toDateString() }));
    }
    const mine = message.sender_id === this.#client.user;
    const group = this.#client.chats.get(this.#chat)?.type === 'group';
    const named = !mine && group && previous?.dataset.sender !== message.sender_id;
    const tick = mine ? el('span', { class: 'tick', role: 'img', 'data-testid': 'tick' }) : null;
    const sender = named ? message.sender_id : '';
    const item = bubble({ mine, fresh, sender, content: message.content, at, tick });
    Object.assign(item.dataset, {
      testid: 'message',
      sequence: entry.from,
      to: entry.to,
      sender: message.sender_id,
      day: at.toDateString(),
    });
    if (tick) this.#items.set(entry.from, tick);
    this.list.append(item);
  }

  // Derives every tick from the boundary. There is no other state.
  #tick() {
    const boundary = this.#client.boundary(this.#chat);
    const others = this.#client.others(this.#chat);
    for (const [sequence, tick] of this.#items) {
      const count = others.length > 1 ? countOf(sequence, others) : null;
      paintTick(tick, tickOf(sequence, boundary), count);
    }
  }

  #wait() {
    const bottom = this.#atBottom();
    const items = this.#client.outbox.of(this.#chat).map((item) => {
      const tick = el('span', { class: 'tick', role: 'img', 'data-testid': 'tick' });
      paintTick(tick, item.state, null);
      const li = bubble({ mine: true, content: item.content, at: new Date(item.at), tick });
      li.dataset.testid = 'waiting';
      li.dataset.clientMessageId = item.client_message_id;
      if (item.state === 'failed') {
        const id = item.client_message_id;
        const outbox = this.#client.outbox;
        li.append(el('div', { class: 'actions' }, el('span', { text: item.problem }),
          button('Retry', 'retry', () => outbox.retry(id)),
          button('Discard', 'discard', () => outbox.discard(id))));
      }
      return li;
    });
    const more = items.length > this.waiting.childElementCount;
    this.waiting.replaceChildren(...items);
    if (bottom || more) this.log.scrollTop = this.log.scrollHeight;
  }

  #atBottom() {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < AT_BOTTOM_PIXELS;
  }

  #scrolled() {
    if (this.#atBottom()) this.jump.hidden = true;
    if (this.log.scrollTop < 80) this.#loadOlder();
    this.#look();
  }

  // Reports to the client what is on the screen, once per frame.
  #look() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      const sequence = this.#chat ? this.displayed() : 0;
      if (sequence > 0) this.#client.shown(this.#chat, sequence);
    });
  }
}

function button(text, testid, click) {
  return el('button', { type: 'button', text, 'data-testid': testid, on: { click } });
}

function bubble({ mine, fresh = false, sender = '', content, at, tick }) {
  const item = el('li', { class: `message${mine ? ' mine' : ''}${fresh ? ' fresh' : ''}` });
  if (sender) item.append(el('span', { class: 'sender', text: sender }));
  const time = el('time', { datetime: at.toISOString(), text: timeOf(at) });
  const meta = el('span', { class: 'meta' }, time);
  if (tick) meta.append(tick);
  item.append(el('span', { class: 'content', text: content, 'data-testid': 'content' }), meta);
  return item;
}

function paintTick(element, tick, count) {
  if (element.dataset.tick === tick && !count) return;
  const { text, label } = TICKS[tick];
  const words = count
    ? `${label}: reached ${count.delivered} of ${count.of}, read by ${count.read}`
    : label;
  element.dataset.tick = tick;
  element.className = `tick ${tick}`;
  if (element.textContent !== text) element.textContent = text;
  if (element.title !== words) {
    element.title = words;
    element.setAttribute('aria-label', words);
  }
}
