// Everything around the messages: the user, the list of chats, the head of a chat, the text field,
// and the dialog.

import { byId, dayOf, el, paintAvatar, timeOf } from './dom.js';
import { Log } from './log.js';

const STATES = {
  connecting: 'connecting …',
  replaced: 'opened elsewhere',
  closed: 'not connected',
  offline: 'offline',
  refused: 'signed out',
};

// The banner does not appear if the connection opens within this time.
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

  /** Stops handling events. Afterwards the page shows nothing of the client. */
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
    const live = caughtUp ? 'online' : 'catching up …';
    state.textContent = problem || (connection === 'live' ? live : STATES[connection]);
    byId('switch').setAttribute('aria-checked', this.#online);
    if (connection === 'connecting' && byId('banner').hidden) {
      this.#bannerTimer ??= setTimeout(() => this.#banner(), BANNER_AFTER_MS);
    } else {
      this.#banner();
    }
  }

  // Shows the problem of the connection, and what happens to messages that are written meanwhile.
  #banner() {
    clearTimeout(this.#bannerTimer);
    this.#bannerTimer = null;
    const { connection, problem, wasLive } = this.#client;
    const trying = wasLive ? 'The connection is lost. Trying again …' : 'Connecting …';
    const words = {
      connecting: `${trying} ${problem} Messages that you write are sent later.`,
      offline: 'You are offline. You receive nothing. Messages that you write are sent later.',
      replaced: 'Another page has opened this session, so this page receives nothing.',
      closed: problem,
    }[connection];
    const banner = byId('banner');
    banner.hidden = !words;
    banner.dataset.state = connection;
    byId('banner-text').textContent = words ?? '';
    byId('take-over').hidden = connection !== 'replaced';
  }

  #list() {
    const chats = [...this.#client.chats.values()];
    chats.sort((a, b) => activity(b).localeCompare(activity(a)));
    byId('no-chats').hidden = chats.length > 0;
    byId('no-chats').textContent = this.#client.listed
      ? 'No chats yet. Start one with the user of another tab, for example.'
      : 'Loading …';
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
    const second = el('span', { class: 'line' },
      el('span', { class: 'preview', text: this.#preview(chat), 'data-testid': 'preview' }));
    if (chat.last) {
      const at = chat.last.created_at;
      first.append(el('time', { datetime: at, text: when(at) }));
    }
    if (chat.unread > 0) {
      const label = { 'aria-label': `${chat.unread} unread`, 'data-testid': 'unread' };
      second.append(el('span', { class: 'badge', text: chat.unread, ...label }));
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
    // On a phone, focus would open the keyboard, which hides the chat.
    if (matchMedia('(hover: hover)').matches) byId('text').focus();
    // An error needs no handling: the stream brings the boundaries later.
    this.#client.refreshStatus(id).then(() => this.#list(), () => {});
  }

  #head(chat) {
    const name = this.#nameOf(chat);
    byId('chat-name').textContent = name;
    paintAvatar(byId('chat-avatar'), name);
    const members = chat.members && chat.members.length <= 8 ? `: ${chat.members.join(', ')}` : '';
    byId('chat-members').textContent = chat.type === 'group'
      ? `${chat.memberCount} members${members}`
      : 'direct chat';
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
