// The eight rules of the client, checked from outside. The oracle knows what the server stored and
// sent, what each disk has kept, and what each user was shown.

import type { Change, Entry, Item, NewSend, Opened, StoredChat, Tick } from '../../src/types.js';
import type { Event, Message } from '../../src/wire.gen.js';
import type { FakeServer } from '../../src/testing/index.js';
import { contains, isOpen } from '../../src/testing/server/intervals.js';
import type { Request } from '../../src/testing/server/rest.js';
import type { Disk } from './disk.js';

export type Rule = 'ack_is_stored' | 'nothing_passed' | 'once' | 'order' | 'tick_monotone'
  | 'tick_is_true' | 'one_user' | 'redacted_stays' | 'never_stuck';

/** A rule does not hold. */
export class Broken extends Error {
  readonly rule: Rule;

  constructor(rule: Rule, detail: string) {
    super(`${rule}: ${detail}`);
    this.rule = rule;
  }
}

/** A tab as the oracle sees it. */
export interface Watched {
  readonly name: string;
  readonly user: string;
  readonly disk: Disk;
  readonly durable: boolean;
  /** The client has the disk open. Else it has a memory that the simulation does not see. */
  readonly attached: boolean;
  /** The disk and the identity of the data that the tab has open, or ''. */
  storeId: string;
  /** The highest sequence of each chat that the user was shown in this tab. */
  readonly shown: Map<string, number>;
}

/** What the steps of a store have returned. */
interface Kept {
  readonly user: string;
  /** The highest prefix of each chat and incarnation. */
  readonly prefixes: Map<string, number>;
  /** The highest ticks that were shown, by chat and message id. */
  readonly ticks: Map<string, number>;
}

/** A stored message, and how far it has really got. */
interface Reach {
  readonly chat: string;
  readonly sequence: number;
  /** The other members when it was stored. Those who have left since then do not count. */
  readonly others: readonly string[];
  /**
   * The highest tick that each of them has ever stood for. A restore takes nothing away: one member
   * may have said so to the data that were lost, and another to those that took their place.
   */
  readonly best: Map<string, number>;
  /** The highest tick that was true at some time. */
  rank: number;
}

const ranks: Readonly<Record<Tick, number>> = {
  failed: -1, sending: 0, sent: 1, delivered: 2, read: 3,
};

interface Ack {
  readonly chat: string;
  readonly acked: number;
  readonly read: number;
  readonly incarnation: string | undefined;
}

export class Oracle {
  readonly #server: FakeServer;
  readonly #kept = new Map<string, Kept>();
  /** Every message that was ever stored, by id. */
  readonly #messages = new Map<string, Message>();
  /** What each message has ever said, by id. */
  readonly #texts = new Map<string, Set<string>>();
  /** The message of each edit, by content. */
  readonly #edits = new Map<string, string>();
  readonly #reaches = new Map<string, Reach>();
  /** What each session has sent: messages and gaps, by the id of the event. */
  readonly #sessions = new Map<string, Map<number, Event>>();
  /** Events, by session, that came while their chat was of other data on the disk. */
  readonly #foreign = new Set<string>();
  /**
   * The sends of each disk and chat, in the order in which a store took them first. After data have
   * vanished, each tab adds what it had in its outbox to the next data. That may be a send which
   * another tab has seen stored, so their ordinals say nothing of the order of writing.
   */
  readonly #sends = new Map<Disk, Map<string, { content: string; id: string }[]>>();
  /** Sends that have left the outbox of a disk, because the server had stored them. */
  readonly #confirmed = new Set<string>();
  /**
   * Sends whose order is no longer promised. They failed once; or the server has lost them after
   * they were confirmed, and a tab that did not know of that has sent them again.
   */
  readonly #unordered = new Set<string>();
  /** Texts that a tab wrote while it did not have its disk. Other tabs sent at the same time. */
  readonly #apart = new Set<string>();
  /** What was acknowledged or read in lost data, by user, chat and incarnation. */
  readonly #lost = new Map<string, number>();
  /**
   * Who could see which message in data that were lost, as `MESSAGE USER`. The present data may not
   * know that the user was ever a member. They keep what they have.
   */
  readonly #couldSee = new Set<string>();
  /** What the users have written, by content. */
  readonly #written = new Map<string, { user: string; chat: string }>();
  broken: Broken | undefined;

  constructor(server: FakeServer) {
    this.#server = server;
    server.onStored = (message) => {
      const { message_id: id, chat_id: chat, sequence, sender_id: sender } = message;
      this.#messages.set(id, message);
      this.#texts.set(id, new Set([message.content]));
      const target = server.data.chat(chat).messages[(message.relation?.sequence ?? 0) - 1];
      if (target !== undefined) this.#texts.get(target.message_id)?.add(target.content);
      const { client_message_id: send } = message;
      if (this.#confirmed.has(send)) this.#unordered.add(send);
      const others = server.data.roster(server.data.chat(chat)).map((m) => m.user)
        .filter((user) => user !== sender);
      this.#reaches.set(id, { chat, sequence, others, best: new Map(), rank: ranks.sent });
    };
    server.onResume = (session, after) => {
      const events = this.#sessions.get(session);
      for (const id of [...events?.keys() ?? []]) if (id > after) events?.delete(id);
    };
    server.onEvent = (session, event) => {
      if (event.type !== 'message' && event.type !== 'gap') return;
      const events = this.#sessions.get(session) ?? new Map<number, Event>();
      this.#sessions.set(session, events);
      events.set(event.id, event);
    };
  }

  fail(rule: Rule, detail: string): void {
    this.broken ??= new Broken(rule, detail);
  }

  /** A user has written a text. `apart`: in a tab without the disk, whose sends go on their own. */
  wrote(user: string, chat: string, content: string, apart = false): void {
    this.#written.set(content, { user, chat });
    if (apart) this.#apart.add(content);
  }

  /** A user edits a message. The contents of edits differ. */
  edits({ message_id: id, sender_id: user, chat_id: chat }: Message, content: string): void {
    this.wrote(user, chat, content);
    this.#edits.set(content, id);
  }

  // ---- Stores -----------------------------------------------------------------------------------

  #of(id: string, user: string): Kept {
    let kept = this.#kept.get(id);
    if (kept === undefined) {
      kept = { user, prefixes: new Map(), ticks: new Map() };
      this.#kept.set(id, kept);
    }
    return kept;
  }

  opened(tab: Watched, user: string, opened: Opened): void {
    if (user !== tab.user) this.fail('one_user', `${tab.name} opens the data of ${user}`);
    tab.storeId = opened.id;
    if (this.#of(opened.id, user).user !== user) {
      this.fail('one_user', `${tab.name} has the data of another user`);
    }
    this.told(opened.id, user, opened.chats);
  }

  /** Rows that a step has returned. */
  told(id: string, user: string, rows: readonly StoredChat[]): void {
    const kept = this.#of(id, user);
    for (const row of rows) {
      const key = `${row.chat.chat_id} ${row.incarnation}`;
      kept.prefixes.set(key, Math.max(kept.prefixes.get(key) ?? 0, row.prefix));
    }
  }

  /** A commit has had its effect. */
  async committed(
    tab: Watched, change: Change, rows: readonly StoredChat[], returned: boolean,
  ): Promise<void> {
    const kept = this.#of(tab.storeId, tab.user);
    for (const { chat_id: chat } of change.rebase ?? []) {
      for (const key of [...kept.ticks.keys()]) {
        if (key.startsWith(`${chat} `)) kept.ticks.delete(key);
      }
    }
    for (const send of change.sent ?? []) this.#confirmed.add(send);
    for (const one of change.failed ?? []) this.failed(one.client_message_id);
    if (returned) this.told(tab.storeId, tab.user, rows);
    for (const entry of change.entries ?? []) this.#checkEntry(tab, entry);
    for (const row of rows) await this.#checkPrefix(tab, row);
    if (change.position) {
      const { session_id: session, event_id: event } = change.position;
      await this.#checkPosition(tab, session, event, 'commits');
    }
  }

  /** A send has failed: the next one goes, and this one only if a person says so. */
  failed(send: string): void {
    this.#unordered.add(send);
  }

  added(tab: Watched, send: NewSend): void {
    const chats = this.#sends.get(tab.disk) ?? new Map<string, { content: string; id: string }[]>();
    this.#sends.set(tab.disk, chats);
    const list = chats.get(send.chat_id) ?? [];
    chats.set(send.chat_id, list);
    if (send.relation || list.some((s) => s.id === send.client_message_id)) return;
    list.push({ content: send.content ?? '', id: send.client_message_id });
  }

  #checkEntry(tab: Watched, entry: Entry): void {
    const { message } = entry;
    if (message === undefined) return;
    const known = this.#messages.get(message.message_id);
    if (known?.sequence !== message.sequence || !this.#said(message)) {
      this.fail('nothing_passed', `${tab.name} stores ${JSON.stringify(message)}, ` +
        `which the server never had`);
    }
    if (entry.from !== message.sequence || entry.to !== message.sequence) {
      this.fail('nothing_passed', `${tab.name} stores a message over ${String(entry.from)}–` +
        String(entry.to));
    }
    if (this.#isForeign(tab.user, message)) {
      this.fail('one_user', `${tab.name} stores a message of a foreign chat`);
    }
  }

  /** The server has had this message with this content. */
  #said(message: Message): boolean {
    return this.#texts.get(message.message_id)?.has(message.content) === true;
  }

  /** The user was never a member of the chat of a message, in the present data and in lost ones. */
  #isForeign(user: string, { chat_id: chat, message_id: id }: Message): boolean {
    return this.#server.data.chats.get(chat)?.members.has(user) === false
      && !this.#couldSee.has(`${id} ${user}`);
  }

  /** The entries of a chat as they are on the disk. */
  async #entries(tab: Watched, chat: string): Promise<readonly Entry[]> {
    for (const [key, data] of tab.disk.data.users) {
      if (!key.endsWith(` ${tab.user}`)) continue;
      return data.transact((t) => t.entries(chat, 0, Number.MAX_SAFE_INTEGER));
    }
    return [];
  }

  async #checkPrefix(tab: Watched, row: StoredChat): Promise<void> {
    const { chat_id: chat } = row.chat;
    let next = row.base + 1;
    for (const entry of await this.#entries(tab, chat)) {
      if (entry.to < next) continue;
      if (entry.from > next) break;
      next = entry.to + 1;
    }
    if (next <= row.prefix) {
      this.fail('nothing_passed', `${tab.name} has ${chat} only to ${String(next - 1)}, ` +
        `but its prefix is ${String(row.prefix)}`);
    }
  }

  /** All messages of a session up to an event must be on the disk, or below the base. */
  async #checkPosition(
    tab: Watched, session: string, event: number, does: string, polls = false,
  ): Promise<void> {
    const events = [...this.#sessions.get(session) ?? []];
    // Data that have vanished were there when the position was stored.
    if (events.length === 0 || !await this.#isThere(tab)) return;
    const byChat = new Map<string, readonly Entry[]>();
    const rows = await this.#rows(tab);
    for (const [id, sent] of events) {
      if (id > event || (sent.type !== 'message' && sent.type !== 'gap')) continue;
      const { chat_id: chat } = sent.payload;
      const row = rows.get(chat);
      const from = sent.type === 'message' ? sent.payload.sequence : sent.payload.from_sequence;
      const to = sent.type === 'message' ? sent.payload.sequence : sent.payload.to_sequence;
      // What the server took back, or is of other data than the store's, does not count.
      if (sent.type === 'message' && !this.#present(sent.payload)) continue;
      if (row !== undefined && row.incarnation !== this.#server.data.incarnation) {
        this.#foreign.add(`${session} ${String(id)}`);
        continue;
      }
      // Each poll goes on after what came. What came before the sync is fetched after it.
      if (polls && this.#foreign.has(`${session} ${String(id)}`)) continue;
      if (row?.left === true || (row !== undefined && to <= row.base)) continue;
      // The server told nothing of the chat when the message came.
      const member = this.#server.data.chats.get(chat)?.members.get(tab.user);
      if (row === undefined && !isOpen(member?.intervals ?? [])) continue;
      const entries = byChat.get(chat) ?? await this.#entries(tab, chat);
      byChat.set(chat, entries);
      let next = Math.max(from, (row?.base ?? 0) + 1);
      for (const entry of entries) {
        if (entry.from <= next && entry.to >= next) next = entry.to + 1;
      }
      if (next > to) continue;
      this.fail('nothing_passed', `${tab.name} ${does} the position ${String(event)}, but ` +
        `${chat} ${String(next)} of the event ${String(id)} is not stored`);
    }
  }

  /** The disk still has the data that the tab opened. */
  async #isThere(tab: Watched): Promise<boolean> {
    for (const [key, data] of tab.disk.data.users) {
      if (!key.endsWith(` ${tab.user}`)) continue;
      return data.transact(async (t) => tab.storeId.endsWith(` ${(await t.meta())?.id ?? ''}`));
    }
    return false;
  }

  async #rows(tab: Watched): Promise<ReadonlyMap<string, StoredChat>> {
    for (const [key, data] of tab.disk.data.users) {
      if (!key.endsWith(` ${tab.user}`)) continue;
      const rows = await data.transact((t) => t.chats(-1));
      return new Map(rows.map((row) => [row.chat.chat_id, row]));
    }
    return new Map();
  }

  /** The server still has this message. */
  #present(m: Message): boolean {
    const found = this.#server.data.chats.get(m.chat_id)?.messages[m.sequence - 1];
    return found?.message_id === m.message_id;
  }

  // ---- Requests ---------------------------------------------------------------------------------

  request(tab: Watched, request: Request): void {
    const { pathname, searchParams: query } = request.url;
    const path = pathname.replace(/^\/api\/v1/, '');
    const named = request.headers.get('x-user-id');
    if (named !== undefined && named !== tab.user) {
      this.fail('one_user', `${tab.name} names ${named} in a request`);
    }
    const header = request.headers.has('authorization');
    if (header && named === undefined) {
      this.fail('one_user', `${tab.name} does not name its user in ${request.method} ${path}`);
    }
    const body = request.body === '' ? undefined : JSON.parse(request.body) as unknown;
    if (path === '/acks') this.#acks(tab, body);
    if (path === '/sync') this.#cursors(tab, body);
    const state = /^\/chats\/([^/]+)\/delivery-state$/.exec(path);
    if (state?.[1] !== undefined && isObject(body)) {
      this.#ack(tab, { chat: state[1], ...marks(body), incarnation: undefined });
    }
    if (path === '/poll' || path === '/ws') {
      const session = query.get('session_id');
      const after = Number(query.get('after_event_id') ?? 0);
      if (session !== null) this.#resumes(tab, session, after, path === '/poll');
    }
    if (path === '/events') {
      const at = request.headers.get('last-event-id') ?? query.get('last_event_id') ?? '';
      const dot = at.lastIndexOf('.');
      if (dot > 0) this.#resumes(tab, at.slice(0, dot), Number(at.slice(dot + 1)));
    }
  }

  frame(tab: Watched, text: string): void {
    const frame = JSON.parse(text) as unknown;
    if (!isObject(frame) || !isObject(frame['payload'])) return;
    const { type, payload } = frame;
    if (type === 'sync_request') this.#cursors(tab, payload);
    if (type !== 'ack' && type !== 'read') return;
    if ('chats' in payload) this.#acks(tab, payload);
    else this.#acks(tab, { chats: [payload] });
  }

  #resumes(tab: Watched, session: string, event: number, polls = false): void {
    if (!tab.durable) return;
    void this.#checkPosition(tab, session, event, 'resumes from', polls);
    // What the server had sent after it, it sends again, under new numbers.
    const events = this.#sessions.get(session);
    for (const id of [...events?.keys() ?? []]) if (id > event) events?.delete(id);
  }

  #acks(tab: Watched, body: unknown): void {
    if (!isObject(body) || !Array.isArray(body['chats'])) return;
    const { incarnation } = body;
    for (const one of body['chats'] as unknown[]) {
      if (!isObject(one) || typeof one['chat_id'] !== 'string') continue;
      this.#ack(tab, {
        chat: one['chat_id'], ...marks(one),
        incarnation: typeof incarnation === 'string' ? incarnation : undefined,
      });
    }
  }

  #cursors(tab: Watched, body: unknown): void {
    if (!isObject(body) || !Array.isArray(body['chats'])) return;
    for (const one of body['chats'] as unknown[]) {
      if (!isObject(one) || typeof one['chat_id'] !== 'string') continue;
      this.#ack(tab, {
        chat: one['chat_id'], ...marks(one),
        incarnation: typeof one['incarnation'] === 'string' ? one['incarnation'] : undefined,
      });
    }
  }

  /** What is acknowledged or read must have been kept or, without a disk, shown. */
  #ack(tab: Watched, ack: Ack): void {
    const { data } = this.#server;
    const state = data.state(tab.user, ack.chat);
    const incarnation = ack.incarnation ?? data.incarnation;
    const kept = this.#kept.get(tab.storeId);
    const stored = tab.durable ? kept?.prefixes.get(`${ack.chat} ${incarnation}`) ?? 0 : 0;
    const lost = this.#lost.get(`${tab.user} ${ack.chat} ${incarnation}`) ?? 0;
    // What the user has read elsewhere they have received, and the server says so already.
    const known = Math.max(state.acked, state.read);
    const most = Math.max(stored, tab.shown.get(ack.chat) ?? 0, known, lost);
    const n = Math.max(ack.acked, ack.read);
    if (n > most && this.#receivable(tab, ack.chat, most + 1, n)) {
      this.fail('ack_is_stored', `${tab.name} acknowledges ${ack.chat} ${String(n)}, but ` +
        `has kept or shown no more than ${String(most)}`);
    }
  }

  /** A message of this range is one that the tab must keep or, without a disk, show. */
  #receivable({ user, durable }: Watched, id: string, from: number, to: number): boolean {
    const chat = this.#server.data.chats.get(id);
    const intervals = chat?.members.get(user)?.intervals ?? [];
    for (let n = from; n <= to; n++) {
      const isRelation = (chat?.messages[n - 1]?.relation ?? null) !== null;
      if (contains(intervals, n) && (durable || !isRelation)) return true;
    }
    return false;
  }

  // ---- Views ------------------------------------------------------------------------------------

  /** The items of a timeline. `before` has the ticks that the tab has shown. */
  items(tab: Watched, chat: string, items: readonly Item[], before: Map<string, number>): void {
    const sequences = new Set<number>();
    const keys = new Set<string>();
    const contents = new Set<string>();
    let last = 0;
    for (const item of items) {
      if (keys.has(item.key)) this.fail('once', `${tab.name} shows the key ${item.key} twice`);
      keys.add(item.key);
      if (item.sequence !== undefined) {
        if (sequences.has(item.sequence)) {
          this.fail('once', `${tab.name} shows ${chat} ${String(item.sequence)} twice`);
        }
        sequences.add(item.sequence);
        if (item.sequence < last) this.fail('order', `${tab.name} shows ${chat} out of order`);
        last = item.sequence;
      }
      const content = item.message?.content ?? item.content ?? '';
      if (item.mine && content !== '') {
        if (contents.has(content)) this.fail('once', `${tab.name} shows "${content}" twice`);
        contents.add(content);
      }
      if (item.message !== undefined) this.#mayShow(tab, item.message);
      if (item.tick !== undefined && item.tick !== 'failed') {
        this.#tick(tab, chat, item.key, ranks[item.tick], before);
        this.#checkTick(tab, item.message, item.tick);
      }
    }
  }

  #mayShow(tab: Watched, m: Message): void {
    if (!this.#said(m)) {
      this.fail('nothing_passed', `${tab.name} shows a message that the server never had`);
    }
    if (m.revision?.kind === 'redact' && m.content !== '') {
      this.fail('redacted_stays', `${tab.name} shows "${m.content}", which was redacted`);
    }
    if (this.#isForeign(tab.user, m)) {
      this.fail('one_user', `${tab.name} shows a message of a chat of others`);
    }
  }

  #tick(
    tab: Watched, chat: string, item: string, rank: number, before: Map<string, number>,
  ): void {
    const key = `${chat} ${item}`;
    const shown = before.get(key) ?? -1;
    if (rank < shown) {
      this.fail('tick_monotone', `${tab.name} shows the tick ${String(rank)} of "${item}" ` +
        `after ${String(shown)}`);
    }
    before.set(key, Math.max(shown, rank));
    if (!tab.durable || rank < 1) return;
    const ticks = this.#of(tab.storeId, tab.user).ticks;
    ticks.set(key, Math.max(ticks.get(key) ?? 0, rank));
  }

  /** All who had to get the message had received or read it, now or earlier. */
  #checkTick(tab: Watched, message: Message | undefined, tick: Tick): void {
    const reach = this.#reaches.get(message?.message_id ?? '');
    if (message === undefined || reach === undefined || ranks[tick] <= reach.rank) return;
    this.#measure(message.message_id, reach);
    if (ranks[tick] <= reach.rank) return;
    this.fail('tick_is_true', `${tab.name} shows ${reach.chat} ${String(reach.sequence)} as ` +
      `${tick}, which was never true`);
  }

  #measure(id: string, reach: Reach): void {
    const { data } = this.#server;
    const chat = data.chats.get(reach.chat);
    if (reach.rank === ranks.read || chat?.messages[reach.sequence - 1]?.message_id !== id) return;
    const now = reach.others.filter((user) => isOpen(chat.members.get(user)?.intervals ?? []));
    for (const user of now) {
      const { acked, read } = data.state(user, chat.id);
      const rank = read >= reach.sequence ? ranks.read
        : acked >= reach.sequence ? ranks.delivered : ranks.sent;
      reach.best.set(user, Math.max(rank, reach.best.get(user) ?? ranks.sent));
    }
    const least = Math.min(ranks.read, ...now.map((user) => reach.best.get(user) ?? ranks.sent));
    reach.rank = Math.max(reach.rank, least);
  }

  /** What a new tab must not fall below. */
  ticksOf(storeId: string): Map<string, number> {
    return new Map(this.#kept.get(storeId)?.ticks);
  }

  /** The server's data are about to be replaced by older ones. */
  loses(): void {
    const { data } = this.#server;
    for (const chat of data.chats.values()) {
      for (const [user, { intervals }] of chat.members) {
        const { acked, read } = data.state(user, chat.id);
        this.#lost.set(`${user} ${chat.id} ${data.incarnation}`, Math.max(acked, read));
        for (const { message_id: id, sequence } of chat.messages) {
          if (contains(intervals, sequence)) this.#couldSee.add(`${id} ${user}`);
        }
      }
    }
    this.forgetTicks();
  }

  /** The data of a store were made again from the server's, or were removed. */
  forgetTicks(chat?: string): void {
    for (const kept of this.#kept.values()) {
      for (const key of [...kept.ticks.keys()]) {
        if (chat === undefined || key.startsWith(`${chat} `)) kept.ticks.delete(key);
      }
    }
  }

  // ---- The server's data ------------------------------------------------------------------------

  /** What was written must be stored once, and in the order of writing. */
  checkServer(): void {
    for (const [id, reach] of this.#reaches) this.#measure(id, reach);
    for (const chat of this.#server.data.chats.values()) {
      const at = new Map<string, number>();
      for (const m of chat.messages) {
        const written = this.#written.get(m.content);
        if (written === undefined) continue;
        if (at.has(m.content)) {
          this.fail('once', `${chat.id} has "${m.content}" twice`);
        }
        at.set(m.content, m.sequence);
        const edited = this.#edits.get(m.content) ?? m.message_id;
        if (edited !== m.message_id) {
          this.fail('one_user', `"${m.content}" is in ${m.message_id} in place of ${edited}`);
        }
        if (written.user !== m.sender_id || written.chat !== chat.id) {
          this.fail('one_user', `"${m.content}" of ${written.user} is stored for ${m.sender_id}`);
        }
      }
      for (const chats of this.#sends.values()) this.#checkOrder(chats.get(chat.id) ?? [], at);
    }
  }

  /** What is redacted must be nowhere: on the disk, if the tab has that open, or on the page. */
  async checkRedacted(tab: Watched, views: string): Promise<void> {
    const kept = tab.attached ? await this.#dump(tab) : '';
    for (const chat of this.#server.data.chats.values()) {
      const intervals = chat.members.get(tab.user)?.intervals ?? [];
      // Nobody tells former members.
      if (!isOpen(intervals)) continue;
      for (const { message_id: id, revision } of chat.messages) {
        if (revision?.kind !== 'redact') continue;
        for (const text of this.#texts.get(id) ?? []) {
          const quoted = JSON.stringify(text);
          if (text === '' || !kept.includes(quoted) && !views.includes(quoted)) continue;
          this.fail('redacted_stays', `${tab.name} still has ${quoted} of ${chat.id}: ` +
            (views.includes(quoted) ? views : kept));
        }
      }
    }
  }

  async #dump(tab: Watched): Promise<string> {
    const rows = [...(await this.#rows(tab)).values()];
    const entries = await Promise.all(rows.map((row) => this.#entries(tab, row.chat.chat_id)));
    const outbox = await Promise.all([...tab.disk.data.users]
      .filter(([key]) => key.endsWith(` ${tab.user}`))
      .map(([, data]) => data.transact((t) => t.outbox())));
    return JSON.stringify([rows, entries, outbox]);
  }

  #checkOrder(
    all: readonly { content: string; id: string }[], at: ReadonlyMap<string, number>,
  ): void {
    const sends = all.filter((s) => !this.#unordered.has(s.id) && !this.#apart.has(s.content));
    let last = 0;
    let before = '';
    for (const send of sends) {
      const sequence = at.get(send.content);
      if (sequence === undefined) continue;
      if (sequence < last) {
        this.fail('order', `"${send.content}" was written after "${before}" and is stored before`);
      }
      last = sequence;
      before = send.content;
    }
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function marks(f: Record<string, unknown>): { acked: number; read: number } {
  const n = (v: unknown): number => (typeof v === 'number' ? v : 0);
  return { acked: n(f['last_acked_sequence']), read: n(f['last_read_sequence']) };
}
