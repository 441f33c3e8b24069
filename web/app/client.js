// One user on one device: the chats, the boundaries of their members, and the life of a stream.
// The view reads this state and gets events for its changes. It never uses the server or the store
// itself.

import { Acknowledger } from './acks.js';
import { ApiError } from './api.js';
import { counts, isShown } from './kinds.js';
import { Outbox, newID } from './outbox.js';
import { gapEntry, messageEntry } from './store.js';
import { Stream } from './stream.js';
import { NOTHING, least, merge } from './ticks.js';

const PAGE = 50;
const FETCH_RETRY_MS = 1_000;

/**
 * The events are CustomEvents that do not bubble: `chats` (the list), `entries` {chat, entries},
 * `ticks` {chat}, `outbox` {chat}, `reload` {chat} (the chat has another history), `connection`.
 */
export class Client extends EventTarget {
  /** Chat id to {id, type, name, head, read, unread, last, members, boundaries, all}. */
  chats = new Map();
  /**
   * connecting, live, replaced, closed, offline (as the user wishes), or refused (the credentials
   * are not valid, so the user must sign in again).
   */
  connection = 'connecting';
  caughtUp = false;
  /** Whether the server has sent the list of chats. Before that, `chats` comes from the store. */
  listed = false;
  /** Whether there was a connection before, so that being without one means that it was lost. */
  wasLive = false;
  /** The last problem of the connection, in words, or ''. */
  problem = '';

  #prefixes = new Map();
  #queue = [];
  #pumping = null;
  #position = '';
  #session = '';
  #repairs = new Set();
  #stopped = false;

  constructor({ api, store }) {
    super();
    this.api = api;
    this.store = store;
    this.user = api.caller.user;
    this.acks = new Acknowledger(api);
    this.outbox = new Outbox({
      api,
      store,
      onStored: (message) => this.#ingest([{ type: 'message', payload: message, id: '' }]),
      onChange: (chat) => this.#emit('outbox', { chat }),
    });
    this.stream = new Stream({
      url: (position) => api.streamURL(position),
      onEvent: (type, payload, id) => this.#take({ type, payload, id }),
      onState: (state) => this.#connected(state),
      onRefused: (error) => this.#refused(error),
    });
  }

  get offline() {
    return this.connection === 'offline';
  }

  /** The id of the last stored event, at which a later page can resume the session. */
  get position() {
    return this.#position;
  }

  /** Shows the stored chats, then connects. `position` resumes the session of an earlier page. */
  async start(position) {
    await this.outbox.load();
    for (const record of await this.store.chats()) {
      this.#prefixes.set(record.chat_id, record.prefix);
      const last = await this.store.last(record.chat_id);
      const known = { members: record.members, head: last?.to ?? 0 };
      if (isShown(last?.message)) known.last = last.message;
      this.chats.set(record.chat_id, newChat(record.chat_id, known));
    }
    this.#emit('chats');
    await this.goOnline(position);
  }

  async goOnline(position = this.#position) {
    this.#position = position;
    this.#stopped = false;
    this.connection = 'connecting';
    this.#emit('connection');
    // The list comes first, because a chat that is new to this device begins at its watermark.
    if (!(await this.#untilAnswered(() => this.refreshChats()))) return;
    this.acks.resume();
    this.outbox.resume();
    this.stream.open(this.#position);
  }

  /**
   * Closes the stream, and sends a last acknowledgement. Afterwards nothing is acknowledged, sent
   * or marked as read.
   */
  async goOffline() {
    this.#stopped = true;
    this.outbox.pause();
    this.stream.close();
    this.connection = 'offline';
    this.caughtUp = false;
    this.#emit('connection');
    await this.#pumping;
    await this.acks.pause();
  }

  /** Handles a change of the network. `there` says whether there is one now. */
  networkChanged(there) {
    if (this.#stopped || !['connecting', 'live'].includes(this.connection)) return;
    if (!there) this.stream.lost();
    else this.stream.reconnect();
  }

  /** Handles the closing of the page: it acknowledges what is stored while there is time. */
  leave() {
    this.acks.exit();
    this.#stopped = true;
    this.stream.close();
  }

  /** Fetches the list of chats from the server. */
  async refreshChats() {
    const chats = await this.api.chats();
    for (const chat of chats) await this.#know(chat);
    const listed = new Set(chats.map((c) => c.chat_id));
    for (const id of this.chats.keys()) if (!listed.has(id)) this.chats.delete(id);
    this.listed = true;
    this.#emit('chats');
  }

  /** Creates a chat, or finds the existing direct chat. Returns its id. */
  async createChat(members, name) {
    const direct = members.length === 1 && name === '';
    const chat = await this.api.createChat({
      type: direct ? 'direct' : 'group',
      member_ids: members,
      ...(direct ? {} : { name, client_chat_id: newID() }),
    });
    await this.#know(chat);
    this.#emit('chats');
    return chat.chat_id;
  }

  /** Fetches the boundaries and the members of a chat. Boundaries still only grow. */
  async refreshStatus(id) {
    const chat = this.chats.get(id);
    if (!chat) return;
    const status = await this.api.deliveryStatus(id);
    chat.memberCount = status.member_count;
    if (status.pagination.has_more) {
      // The chat is too large to list. The stream sends the least boundary when it changes.
      // A new page must request it, and its cursor is the stored prefix.
      chat.boundaries = new Map();
      const cursor = { chat_id: id, last_acked_sequence: this.#prefixes.get(id) ?? 0 };
      const answer = await this.api.sync({ chats: [cursor], status_updates: true, limit: 1 });
      for (const all of answer.status_updates) this.#status(all);
      return;
    }
    chat.all = null;
    const boundaries = new Map();
    for (const m of status.members) {
      const boundary = { acked: m.last_acked_sequence, read: m.last_read_sequence ?? 0 };
      boundaries.set(m.user_id, merge(boundary, chat.boundaries.get(m.user_id) ?? NOTHING));
    }
    chat.boundaries = boundaries;
    chat.members = [...boundaries.keys()];
    this.#emit('ticks', { chat: id });
  }

  /** Returns the known boundaries of the other members. */
  others(id) {
    const others = [];
    for (const [user, boundary] of this.chats.get(id)?.boundaries ?? []) {
      if (user !== this.user) others.push(boundary);
    }
    return others;
  }

  /** Returns the least boundary of the others. The ticks of this user's messages follow from it. */
  boundary(id) {
    const chat = this.chats.get(id);
    if (!chat) return NOTHING;
    return chat.all ?? least(this.others(id));
  }

  /**
   * Returns a page of history that ends before `before` (default: at the newest message), ascending
   * and without a hole. It comes from the store, after fetching what the store lacks. `complete`
   * says that nothing is older. `problem` says why entries may be missing, or is ''.
   */
  async history(id, before = Infinity) {
    const newest = before === Infinity;
    let end = before;
    if (newest) {
      end = Math.max(this.chats.get(id)?.head ?? 0, (await this.store.last(id))?.to ?? 0) + 1;
    }
    let entries = await this.store.page(id, end, PAGE);
    const reached = entries[0]?.from ?? end;
    let exhausted = this.offline;
    let problem = '';
    if (entries.length < PAGE && reached > 1 && !this.offline) {
      try {
        exhausted = !(await this.#fetchBefore(id, reached));
        entries = await this.store.page(id, end, PAGE);
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        problem = error.message;
      }
    }
    if (entries.length === 0 && newest && (this.offline || problem)) {
      const last = await this.store.last(id);
      if (last) entries = await this.store.page(id, last.to + 1, PAGE);
    }
    const first = entries[0]?.from ?? end;
    const complete = first <= 1 || (exhausted && entries.length < PAGE);
    return { entries, complete, problem };
  }

  /** Sends a message in the open chat. Everything up to `seen` is on the screen. */
  send(id, content, seen) {
    return this.outbox.add(id, content, Math.min(seen, this.#prefixes.get(id) ?? 0));
  }

  /**
   * Marks everything up to `sequence` as read, because it is on the screen. It never exceeds the
   * prefix: read implies delivered, and what lies above a hole is not delivered.
   */
  shown(id, sequence) {
    const chat = this.chats.get(id);
    const read = Math.min(sequence, this.#prefixes.get(id) ?? 0);
    if (!chat || this.offline || read <= chat.read) return;
    this.#raiseRead(chat, read);
    this.acks.read(id, read);
  }

  // Handles events in order. Those that come while the store is busy form one batch.
  #take(event) {
    this.#queue.push(event);
    this.#pumping ??= this.#pump();
  }

  async #pump() {
    try {
      while (this.#queue.length > 0) {
        const batch = this.#queue.splice(0);
        if (!(await this.#ingest(batch))) break;
        this.#position = batch.at(-1).id || this.#position;
      }
    } catch (error) {
      this.#storeFailed(error);
    }
    // The rest was not stored. The position does not cover it, so the next connection repeats it.
    this.#queue.length = 0;
    this.#pumping = null;
  }

  // Stops, because this device cannot store messages, and so must not acknowledge any.
  #storeFailed(error) {
    this.#stopped = true;
    this.outbox.pause();
    this.stream.close();
    this.connection = 'closed';
    this.problem = `This device cannot store messages: ${error.message}`;
    this.#emit('connection');
  }

  // Stops, because the token has expired or is not valid. The stored messages and the outbox stay.
  #refused(error) {
    this.#stopped = true;
    this.outbox.pause();
    this.acks.stop();
    this.stream.close();
    this.connection = 'refused';
    this.caughtUp = false;
    this.problem = error.message;
    this.#emit('connection');
  }

  // Handles a batch of events. Returns false if the client went offline before all was stored.
  async #ingest(batch) {
    const held = batch.filter((e) => e.type === 'message' || e.type === 'gap');
    if (!(await this.#knowAll(new Set(held.map((e) => e.payload.chat_id))))) return false;
    await this.#keep(held.map(({ type, payload }) => (
      type === 'gap' ? gapEntry(payload) : messageEntry(payload)
    )));
    for (const { type, payload } of batch) {
      if (type === 'session') await this.#opened(payload);
      if (type === 'status_update') this.#status(payload);
      if (type === 'own_state') this.#own(payload);
      if (type === 'chat_updated') await this.#updated(payload);
      if (type === 'membership') await this.#membership(payload);
      if (type === 'caught_up') {
        this.caughtUp = true;
        this.#emit('connection');
      }
      if (type === 'reset') await this.#reset(payload);
    }
    return true;
  }

  // Stores entries, and only then shows and acknowledges them.
  async #keep(entries) {
    entries = entries.filter((e) => this.chats.has(e.chat_id));
    if (entries.length === 0) return;
    const prefixes = await this.store.take(entries);
    for (const [id, news] of Map.groupBy(entries, (e) => e.chat_id)) {
      const chat = this.chats.get(id);
      for (const e of news) {
        if (e.message?.sender_id === this.user) this.outbox.confirmed(e.message.client_message_id);
        if (e.to <= chat.head) continue;
        chat.head = e.to;
        if (isShown(e.message)) chat.last = e.message;
        if (counts(e.message) && e.message.sender_id !== this.user && e.to > chat.read) {
          chat.unread++;
        }
      }
      const known = this.#prefixes.get(id) ?? 0;
      const prefix = Math.max(prefixes.get(id) ?? 0, known);
      const grown = prefix - known;
      this.#prefixes.set(id, prefix);
      if (grown > 0) this.acks.stored(id, prefix, grown);
      if (news.some((e) => e.from > prefix + 1)) this.#repair(id);
      this.#emit('entries', { chat: id, entries: news });
    }
    this.#emit('chats');
  }

  // Fetches what is missing below an entry. Another device has acknowledged it, so the stream did
  // not bring it.
  async #repair(id) {
    if (this.#repairs.has(id)) return;
    this.#repairs.add(id);
    await this.#untilAnswered(async () => {
      for (let more = true; more && !this.#stopped; ) {
        const after = this.#prefixes.get(id);
        const page = await this.api.history(id, { after_sequence: after, limit: 500 });
        await this.#keep(entriesOf(id, page));
        more = page.pagination.has_more && this.#prefixes.get(id) > after;
      }
    });
    this.#repairs.delete(id);
  }

  // Fetches and stores the page before `before`. Returns whether the server has more.
  async #fetchBefore(id, before) {
    const page = await this.api.history(id, { before_sequence: before, limit: PAGE });
    await this.store.take(entriesOf(id, page));
    return page.pagination.has_more;
  }

  async #opened({ session_id: session, resumed }) {
    this.#session = session;
    // A new session starts at the watermark of all devices of this user. If this device has stored
    // less, its cursors bring the rest. They also replace acknowledgements that were lost.
    if (!resumed) await this.#sendCursors();
  }

  async #reset({ reason, chat_id: id }) {
    if (reason !== 'ahead') {
      await this.#sendCursors();
      return;
    }
    const chat = await this.api.chat(id).catch(() => null);
    this.acks.forget(id);
    await this.store.restart(id, chat?.last_acked_sequence ?? 0);
    this.#prefixes.set(id, chat?.last_acked_sequence ?? 0);
    this.chats.delete(id);
    if (chat) await this.#know(chat);
    this.#emit('reload', { chat: id });
    this.#emit('chats');
  }

  async #sendCursors() {
    // The stream answers a cursor that is refused by a `reset`.
    const cursors = [...this.chats.keys()].map((id) => (
      { chat_id: id, last_acked_sequence: this.#prefixes.get(id) ?? 0 }
    ));
    for (let i = 0; i < cursors.length; i += 500) {
      const session = this.#session;
      const ok = await this.#untilAnswered(async () => {
        const chats = cursors.slice(i, i + 500);
        const answer = await this.api.sync({ session_id: session, chats });
        for (const status of answer.status_updates ?? []) this.#status(status);
      });
      if (!ok) return;
    }
  }

  #status(status) {
    const { chat_id: id, scope, user_id: user } = status;
    const chat = this.chats.get(id);
    if (!chat) return;
    if (scope === 'chat') {
      const all = { acked: status.all_acked_sequence, read: status.all_read_sequence };
      chat.all = chat.all ? merge(chat.all, all) : all;
    } else if (scope === 'member') {
      const { last_acked_sequence: acked, last_read_sequence: read } = status;
      chat.boundaries.set(user, merge(chat.boundaries.get(user) ?? NOTHING, { acked, read }));
      if (user === this.user) this.#raiseRead(chat, read); // another device of this user read it
    }
    this.#emit('ticks', { chat: id });
  }

  // Another device of this user has read, or has marked messages as unread.
  #own({ chat_id: id, last_read_sequence: read, unread_count: unread }) {
    const chat = this.chats.get(id);
    if (!chat || read < chat.read) return;
    chat.read = read;
    chat.unread = unread;
    this.#emit('chats');
  }

  // The name of a chat has changed.
  async #updated({ chat_id: id }) {
    const chat = this.chats.get(id);
    if (!chat) return;
    await this.#untilAnswered(async () => { chat.name = (await this.api.chat(id)).name; });
    this.#emit('chats');
  }

  async #membership({ chat_id: id, user_id: user, change }) {
    if (user === this.user && change === 'removed') {
      this.chats.delete(id);
      this.#emit('chats');
      return;
    }
    await this.#knowAll(new Set([id]));
    await this.#untilAnswered(() => this.refreshStatus(id));
  }

  #raiseRead(chat, read) {
    if (read <= chat.read) return;
    chat.read = read;
    chat.unread = Math.max(0, Math.min(chat.unread, chat.head - read));
    this.#emit('chats');
  }

  async #knowAll(ids) {
    for (const id of ids) {
      if (this.chats.has(id) && this.#prefixes.has(id)) continue;
      const fetch = async () => this.#know(await this.api.chat(id));
      if (!(await this.#untilAnswered(fetch))) return false;
    }
    return true;
  }

  // Records a chat that the server sent. One that is new to this device begins at its watermark.
  async #know(sent) {
    const id = sent.chat_id;
    const record = await this.store.know(id, sent.last_acked_sequence);
    if (!this.#prefixes.has(id)) this.#prefixes.set(id, record.prefix);
    this.acks.known(id, { acked: sent.last_acked_sequence, read: sent.last_read_sequence });
    const chat = this.chats.get(id) ?? newChat(id, { members: record.members });
    Object.assign(chat, {
      type: sent.type,
      name: sent.name ?? '',
      memberCount: sent.member_count,
      createdAt: sent.created_at,
    });
    chat.read = Math.max(chat.read, sent.last_read_sequence);
    if (sent.head_sequence >= chat.head) {
      chat.head = sent.head_sequence;
      chat.unread = sent.unread_count;
      if (isShown(sent.last_message)) chat.last = sent.last_message;
    }
    this.chats.set(id, chat);
    if (!chat.members && chat.type === 'direct') {
      chat.members = (await this.api.members(id)).map((m) => m.user_id);
      await this.store.setMembers(id, chat.members);
    }
  }

  // Repeats an attempt until the server answers, or refuses it for good. Returns false if the
  // client went offline first.
  async #untilAnswered(attempt) {
    while (!this.#stopped) {
      try {
        await attempt();
        return true;
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.final) return true;
        if (error.status === 401) {
          this.#refused(error);
          return false;
        }
        this.problem = error.message;
        this.#emit('connection');
      }
      await new Promise((resolve) => setTimeout(resolve, FETCH_RETRY_MS));
    }
    return false;
  }

  #connected(state) {
    if (this.#stopped) return;
    this.connection = state;
    this.problem = '';
    if (state !== 'live') this.caughtUp = false;
    if (state === 'live') {
      this.wasLive = true;
      this.outbox.resume();
    }
    this.#emit('connection');
  }

  #emit(type, detail = {}) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

function newChat(id, known) {
  return {
    id, type: 'group', name: '', head: 0, read: 0, unread: 0, memberCount: 0, createdAt: '',
    last: null, members: null, boundaries: new Map(), all: null, ...known,
  };
}

function entriesOf(id, page) {
  const gaps = page.gaps.map((gap) => gapEntry(gap, id));
  return [...page.messages.map(messageEntry), ...gaps].sort((a, b) => a.from - b.from);
}
