// Everything around the messages: who I am, the list of chats, the head of a chat, writing, the dialog.

import { byId, dayOf, el, paintAvatar, timeOf } from './dom.js';
import { Log } from './log.js';

const STATES = {
  connecting: 'connecting …',
  replaced: 'opened elsewhere',
  closed: 'not connected',
  offline: 'offline',
  refused: 'signed out',
};

// A connection that comes within this time is not worth a word.
const BANNER_AFTER_MS = 700;

export class View {
  #client;
  #log;
  #listening = new AbortController();
  #bannerTimer = null;

  constructor(client) {
    this.#client = client;
    this.#log = new Log(client);
    byId('me').textContent = client.user;
    paintAvatar(byId('me-avatar'), client.user);
    document.title = `${client.user} · Tidemark`;
    this.#listen();
    this.#connection();
    this.#list();
  }

  /** Stops listening; the page shows nothing of the client any more. */
  close() {
    this.#listening.abort();
    clearTimeout(this.#bannerTimer);
    this.#log.open(null);
    this.#show(null);
  }

  #listen() {
    const { signal } = this.#listening;
    const client = this.#client;
    this.#log.listen(signal);
    client.addEventListener('connection', () => this.#connection(), { signal });
    client.addEventListener('chats', () => this.#list(), { signal });
    const on = (id, type, listener) => byId(id).addEventListener(type, listener, { signal });
    on('switch', 'click', () => (this.#online ? client.goOffline() : client.goOnline()));
    on('take-over', 'click', () => client.goOnline());
    on('back', 'click', () => this.#show(null));
    on('compose', 'submit', (e) => this.#send(e));
    on('text', 'keydown', (e) => {
      if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) this.#send(e);
    });
    on('new', 'click', () => {
      byId('new-form').reset();
      byId('new-problem').textContent = '';
      byId('new-dialog').showModal();
    });
    on('new-cancel', 'click', () => byId('new-dialog').close());
    on('new-form', 'submit', (e) => this.#create(e));
  }

  get #online() {
    return this.#client.connection === 'connecting' || this.#client.connection === 'live';
  }

  #connection() {
    const { connection, caughtUp, problem } = this.#client;
    const state = byId('connection');
    state.dataset.state = connection;
    state.dataset.caughtUp = caughtUp;
    state.textContent = problem || (connection === 'live' ? (caughtUp ? 'online' : 'catching up …') : STATES[connection]);
    byId('switch').setAttribute('aria-checked', this.#online);
    if (connection === 'connecting' && byId('banner').hidden) {
      this.#bannerTimer ??= setTimeout(() => this.#banner(), BANNER_AFTER_MS);
    } else {
      this.#banner();
    }
  }

  // What is wrong with the connection, and what becomes of what is written meanwhile.
  #banner() {
    clearTimeout(this.#bannerTimer);
    this.#bannerTimer = null;
    const { connection, problem, wasLive } = this.#client;
    const words = {
      connecting: `${wasLive ? 'The connection is lost. Trying again …' : 'Connecting …'} ${problem} What you write is kept, and sent then.`,
      offline: 'You are offline. Nothing is received, and what you write waits.',
      replaced: 'This session was opened elsewhere, so nothing comes here any more.',
      closed: problem,
    }[connection];
    const banner = byId('banner');
    banner.hidden = !words;
    banner.dataset.state = connection;
    byId('banner-text').textContent = words ?? '';
    byId('take-over').hidden = connection !== 'replaced';
  }

  #list() {
    const chats = [...this.#client.chats.values()].sort((a, b) => activity(b).localeCompare(activity(a)));
    byId('no-chats').hidden = chats.length > 0;
    byId('no-chats').textContent = this.#client.listed ? 'No chats yet. Say hello to somebody: the other tab, for example.' : 'Loading …';
    const focused = document.activeElement?.dataset.chat;
    byId('chats').replaceChildren(...chats.map((chat) => this.#row(chat)));
    if (focused) byId('chats').querySelector(`[data-chat="${CSS.escape(focused)}"]`)?.focus();
    const open = this.#log.chat;
    if (open && !this.#client.chats.has(open)) this.#show(null);
    else if (open) this.#head(this.#client.chats.get(open));
  }

  #row(chat) {
    const name = this.#nameOf(chat);
    const avatar = el('span', { class: 'avatar', 'aria-hidden': 'true' });
    paintAvatar(avatar, name);
    const first = el('span', { class: 'line' }, el('span', { class: 'name', text: name }));
    const second = el('span', { class: 'line' }, el('span', { class: 'preview', text: this.#preview(chat), 'data-testid': 'preview' }));
    if (chat.last) first.append(el('time', { datetime: chat.last.created_at, text: when(chat.last.created_at) }));
    if (chat.unread > 0) {
      second.append(el('span', { class: 'badge', text: chat.unread, 'aria-label': `${chat.unread} unread`, 'data-testid': 'unread' }));
    }
    return el('li', {}, el('button', {
      type: 'button', 'data-testid': 'chat', 'data-chat': chat.id, 'data-name': name,
      'aria-current': String(chat.id === this.#log.chat), on: { click: () => this.#show(chat.id) },
    }, avatar, el('span', { class: 'body' }, first, second)));
  }

  #preview(chat) {
    if (!chat.last) return 'No messages yet';
    const { sender_id: sender, content } = chat.last;
    if (sender === this.#client.user) return `You: ${content}`;
    return chat.type === 'group' ? `${sender}: ${content}` : content;
  }

  #nameOf(chat) {
    const others = (chat.members ?? []).filter((user) => user !== this.#client.user);
    return chat.name || others.join(', ') || (chat.members ? 'Only me' : 'A chat');
  }

  async #show(id) {
    const chat = id ? this.#client.chats.get(id) : null;
    byId('app').classList.toggle('open', Boolean(chat));
    byId('nothing').hidden = Boolean(chat);
    byId('chat').hidden = !chat;
    if (chat) this.#head(chat);
    const opened = this.#log.open(chat ? id : null);
    this.#list();
    if (!chat) return;
    await opened;
    if (matchMedia('(hover: hover)').matches) byId('text').focus(); // On a phone the keyboard would hide the chat.
    this.#client.refreshStatus(id).then(() => this.#list(), () => {}); // What is not answered now is pushed later.
  }

  #head(chat) {
    const name = this.#nameOf(chat);
    byId('chat-name').textContent = name;
    paintAvatar(byId('chat-avatar'), name);
    const members = chat.members && chat.members.length <= 8 ? `: ${chat.members.join(', ')}` : '';
    byId('chat-members').textContent = chat.type === 'group' ? `${chat.memberCount} members${members}` : 'direct chat';
  }

  #send(event) {
    event.preventDefault();
    const text = byId('text');
    const chat = this.#log.chat;
    if (!chat || text.value.trim() === '') return;
    this.#client.send(chat, text.value, this.#log.displayed());
    text.value = '';
    this.#log.toBottom();
  }

  async #create(event) {
    event.preventDefault();
    const people = byId('people').value.split(/[\s,;]+/).filter(Boolean);
    try {
      const id = await this.#client.createChat(people, byId('group-name').value.trim());
      byId('new-dialog').close();
      await this.#show(id);
    } catch (error) {
      byId('new-problem').textContent = error.message;
    }
  }
}

function activity(chat) {
  return chat.last?.created_at ?? chat.createdAt;
}

function when(time) {
  const at = new Date(time);
  const day = dayOf(at);
  return day === 'Today' ? timeOf(at) : day;
}
