// One user on one device: the chats, what is known of the others in them, and the life of a stream.
// The view reads the state here and is told of changes; it never talks to server or store by itself.

import { Acknowledger } from './acks.js';
import { ApiError } from './api.js';
import { Outbox } from './outbox.js';
import { gapEntry, messageEntry } from './store.js';
import { Stream } from './stream.js';
import { NOTHING, least, merge } from './ticks.js';

const PAGE = 50;
const FETCH_RETRY_MS = 1_000;

/**
 * Changes are CustomEvents without bubbling: `chats` (the list), `entries` {chat, entries}, `ticks` {chat},
 * `outbox` {chat}, `reload` {chat} (the chat's history is another one), `connection`.
 */
export class Client extends EventTarget {
  /** Chat id to {id, type, name, head, read, unread, last, members, boundaries, all}. */
  chats = new Map();
  /** connecting, live, replaced, closed, refused (the credentials are: sign in again), or offline (by the user's wish). */
  connection = 'connecting';
  caughtUp = false;
  /** Whether the list of chats has come from the server; until then `chats` has what the device remembers. */
  listed = false;
  /** Whether there was a connection before: then the present lack of one is a loss. */
  wasLive = false;
  /** What went wrong last with the connection, in words; '' while all is well. */
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
      onChange: (chat) => this.#tell('outbox', { chat }),
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

  /** The last event that is stored: where a later page may go on in the same session. */
  get position() {
    return this.#position;
  }

  /** Shows what the device has, then connects. `position` continues the session of an earlier page. */
  async start(position) {
    await this.outbox.load();
    for (const record of await this.store.chats()) {
      this.#prefixes.set(record.chat_id, record.prefix);
      const last = await this.store.last(record.chat_id);
      this.chats.set(record.chat_id, newChat(record.chat_id, { members: record.members, head: last?.to ?? 0, last: last?.message }));
    }
    this.#tell('chats');
    await this.goOnline(position);
  }

  async goOnline(position = this.#position) {
    this.#position = position;
    this.#stopped = false;
    this.connection = 'connecting';
    this.#tell('connection');
    // The list comes first: where the server's watermark stands is where a chat new to this device begins.
    if (!(await this.#untilAnswered(() => this.refreshChats()))) return;
    this.acks.resume();
    this.outbox.resume();
    this.stream.open(this.#position);
  }

  /** Closes the stream after a last acknowledgement; from then on nothing is acknowledged, sent or marked read. */
  async goOffline() {
    this.#stopped = true;
    this.outbox.pause();
    this.stream.close();
    this.connection = 'offline';
    this.caughtUp = false;
    this.#tell('connection');
    await this.#pumping;
    await this.acks.pause();
  }

  /** The device lost its network, or has one again. */
  networkChanged(there) {
    if (this.#stopped || !['connecting', 'live'].includes(this.connection)) return;
    if (!there) this.stream.lost();
    else this.stream.reconnect();
  }

  /** The page goes away: say what is stored while there is time. */
  leave() {
    this.acks.exit();
    this.#stopped = true;
    this.stream.close();
  }

  /** Reads the list of chats from the server. */
  async refreshChats() {
    const chats = await this.api.chats();
    for (const chat of chats) await this.#know(chat);
    const listed = new Set(chats.map((c) => c.chat_id));
    for (const id of this.chats.keys()) if (!listed.has(id)) this.chats.delete(id);
    this.listed = true;
    this.#tell('chats');
  }

  /** Creates a chat, or finds the direct one; returns its id. */
  async createChat(members, name) {
    const direct = members.length === 1 && name === '';
    const chat = await this.api.createChat({
      type: direct ? 'direct' : 'group',
      member_ids: members,
      ...(direct ? {} : { name }),
    });
    await this.#know(chat);
    this.#tell('chats');
    return chat.chat_id;
  }

  /** Reads the boundaries of the others. Here the query is the arbiter of who is a member; values only grow. */
  async refreshStatus(id) {
    const chat = this.chats.get(id);
    if (!chat) return;
    const status = await this.api.deliveryStatus(id);
    chat.memberCount = status.member_count;
    if (status.pagination.has_more) {
      // Too large to list. The stream tells what all have when that changes; a page that was just loaded has to ask. The cursor is what is stored.
      chat.boundaries = new Map();
      const cursor = { chat_id: id, last_acked_sequence: this.#prefixes.get(id) ?? 0 };
      for (const all of (await this.api.sync({ chats: [cursor], statuses: true, limit: 1 })).statuses) this.#status(all);
      return;
    }
    chat.all = null;
    const boundaries = new Map();
    for (const m of status.members) {
      const told = { acked: m.last_acked_sequence, read: m.last_read_sequence ?? 0 };
      boundaries.set(m.user_id, merge(told, chat.boundaries.get(m.user_id) ?? NOTHING));
    }
    chat.boundaries = boundaries;
    chat.members = [...boundaries.keys()];
    this.#tell('ticks', { chat: id });
  }

  /** The boundaries of the other members that are known. */
  others(id) {
    const others = [];
    for (const [user, boundary] of this.chats.get(id)?.boundaries ?? []) {
      if (user !== this.user) others.push(boundary);
    }
    return others;
  }

  /** The least boundary of the others: what the ticks of my messages follow from. */
  boundary(id) {
    const chat = this.chats.get(id);
    if (!chat) return NOTHING;
    return chat.all ?? least(this.others(id));
  }

  /**
   * A page of history that ends before `before` (default: at the newest), ascending, without a hole. It comes from
   * the store; what the store lacks is fetched and stored first. `complete` says that nothing is older; `problem` why
   * there may be less than there could be, '' if nothing went wrong.
   */
  async history(id, before = Infinity) {
    const newest = before === Infinity;
    const end = newest ? Math.max(this.chats.get(id)?.head ?? 0, (await this.store.last(id))?.to ?? 0) + 1 : before;
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
    return { entries, complete: (entries[0]?.from ?? end) <= 1 || (exhausted && entries.length < PAGE), problem };
  }

  /** Sends a message in the open chat, of which everything up to `seen` is on the screen. */
  send(id, content, seen) {
    return this.outbox.add(id, content, Math.min(seen, this.#prefixes.get(id) ?? 0));
  }

  /**
   * Everything up to `sequence` is on the screen. Never beyond the prefix: read implies delivered, and what lies
   * above a hole has not been delivered.
   */
  shown(id, sequence) {
    const chat = this.chats.get(id);
    const read = Math.min(sequence, this.#prefixes.get(id) ?? 0);
    if (!chat || this.offline || read <= chat.read) return;
    this.#raiseRead(chat, read);
    this.acks.read(id, read);
  }

  // Events are taken in order, as many at once as have come while the store was busy.
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
      this.#broke(error);
    }
    // What is left was not stored, so the position does not cover it: the next connection brings it again.
    this.#queue.length = 0;
    this.#pumping = null;
  }

  // The device cannot store (no room, database gone): then it must not acknowledge, and need not listen.
  #broke(error) {
    this.#stopped = true;
    this.outbox.pause();
    this.stream.close();
    this.connection = 'closed';
    this.problem = `This device cannot store messages: ${error.message}`;
    this.#tell('connection');
  }

  // The token has expired, or never was one. What is stored and what waits in the outbox stays for the next time.
  #refused(error) {
    this.#stopped = true;
    this.outbox.pause();
    this.acks.stop();
    this.stream.close();
    this.connection = 'refused';
    this.caughtUp = false;
    this.problem = error.message;
    this.#tell('connection');
  }

  // Returns false if it went offline before everything was stored.
  async #ingest(batch) {
    const held = batch.filter((e) => e.type === 'message' || e.type === 'gap');
    if (!(await this.#knowAll(new Set(held.map((e) => e.payload.chat_id))))) return false;
    await this.#keep(held.map((e) => (e.type === 'gap' ? gapEntry(e.payload) : messageEntry(e.payload))));
    for (const { type, payload } of batch) {
      if (type === 'open') await this.#opened(payload);
      if (type === 'status_update') this.#status(payload);
      if (type === 'membership') await this.#membership(payload);
      if (type === 'caught_up') {
        this.caughtUp = true;
        this.#tell('connection');
      }
      if (type === 'reset') await this.#reset(payload);
    }
    return true;
  }

  // Stores entries, and only then lets them count: shown, acknowledged.
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
        if (e.message) chat.last = e.message;
        if (e.message && e.message.sender_id !== this.user && e.to > chat.read) chat.unread++;
      }
      const known = this.#prefixes.get(id) ?? 0;
      const prefix = Math.max(prefixes.get(id) ?? 0, known);
      const grown = prefix - known;
      this.#prefixes.set(id, prefix);
      if (grown > 0) this.acks.stored(id, prefix, grown);
      if (news.some((e) => e.from > prefix + 1)) this.#repair(id);
      this.#tell('entries', { chat: id, entries: news });
    }
    this.#tell('chats');
  }

  // Something is missing below what came: another device has acknowledged it, so the stream did not owe it to us.
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

  // Returns whether the server has more before what it gave.
  async #fetchBefore(id, before) {
    const page = await this.api.history(id, { before_sequence: before, limit: PAGE });
    await this.store.take(entriesOf(id, page));
    return page.pagination.has_more;
  }

  async #opened({ session, resumed }) {
    this.#session = session;
    // A new session starts at the watermark of all my devices. What this one stored may be less: it says so, and
    // gets the rest. The same call makes good for acknowledgements that were lost.
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
    this.#tell('reload', { chat: id });
    this.#tell('chats');
  }

  async #sendCursors() {
    // A cursor that is refused comes back on the stream, as `reset`.
    const cursors = [...this.chats.keys()].map((id) => ({ chat_id: id, last_acked_sequence: this.#prefixes.get(id) ?? 0 }));
    for (let i = 0; i < cursors.length; i += 500) {
      const session = this.#session;
      const ok = await this.#untilAnswered(async () => {
        const answer = await this.api.sync({ session, chats: cursors.slice(i, i + 500) });
        for (const status of answer.statuses ?? []) this.#status(status);
      });
      if (!ok) return;
    }
  }

  #status({ chat_id: id, user_id: user, last_acked_sequence: acked, last_read_sequence: read, ...all }) {
    const chat = this.chats.get(id);
    if (!chat) return;
    if (user === undefined) {
      const told = { acked: all.all_acked_sequence, read: all.all_read_sequence };
      chat.all = chat.all ? merge(chat.all, told) : told;
    } else {
      chat.boundaries.set(user, merge(chat.boundaries.get(user) ?? NOTHING, { acked, read }));
      if (user === this.user) this.#raiseRead(chat, read); // Read on another device of mine.
    }
    this.#tell('ticks', { chat: id });
  }

  async #membership({ chat_id: id, user_id: user, change }) {
    if (user === this.user && change === 'removed') {
      this.chats.delete(id);
      this.#tell('chats');
      return;
    }
    await this.#knowAll(new Set([id]));
    await this.#untilAnswered(() => this.refreshStatus(id));
  }

  #raiseRead(chat, read) {
    if (read <= chat.read) return;
    chat.read = read;
    chat.unread = Math.max(0, Math.min(chat.unread, chat.head - read));
    this.#tell('chats');
  }

  async #knowAll(ids) {
    for (const id of ids) {
      if (this.chats.has(id) && this.#prefixes.has(id)) continue;
      if (!(await this.#untilAnswered(async () => this.#know(await this.api.chat(id))))) return false;
    }
    return true;
  }

  // Takes in a chat as the server tells it. A chat that is new to this device begins at the watermark.
  async #know(told) {
    const id = told.chat_id;
    const record = await this.store.know(id, told.last_acked_sequence);
    if (!this.#prefixes.has(id)) this.#prefixes.set(id, record.prefix);
    this.acks.known(id, { acked: told.last_acked_sequence, read: told.last_read_sequence });
    const chat = this.chats.get(id) ?? newChat(id, { members: record.members });
    Object.assign(chat, { type: told.type, name: told.name ?? '', memberCount: told.member_count, createdAt: told.created_at });
    chat.read = Math.max(chat.read, told.last_read_sequence);
    if (told.head_sequence >= chat.head) {
      Object.assign(chat, { head: told.head_sequence, unread: told.unread_count, last: told.last_message ?? chat.last });
    }
    this.chats.set(id, chat);
    if (!chat.members && chat.type === 'direct') {
      chat.members = (await this.api.members(id)).map((m) => m.user_id);
      await this.store.setMembers(id, chat.members);
    }
  }

  // Repeats what must get through until the server answers; a refusal is an answer. False: we went offline first.
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
        this.#tell('connection');
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
    this.#tell('connection');
  }

  #tell(type, detail = {}) {
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
  return [...page.messages.map(messageEntry), ...page.gaps.map((gap) => gapEntry(gap, id))].sort((a, b) => a.from - b.from);
}
