// A device's position in the stream, as the real server keeps it (delivery.md §3).

import type {
  ChatUpdated, Event, Membership, OwnState, Presence, Reset, StatusUpdate, Typing,
} from '../../wire.gen.js';
import { headOf, messageAt, type ChatRecord, type Data } from './data.js';
import { gapOf, isOpen, pieces } from './intervals.js';
import { Refusal } from './refusal.js';

/** What a session needs of its server. */
export interface Host {
  readonly data: Data;
  readonly heartbeatSeconds: number;
  readonly resumeSeconds: number;
  now(): number;
  statusesFor(user: string, chat: ChatRecord): StatusUpdate[];
  seenBy(user: string, update: StatusUpdate): StatusUpdate;
  ownState(user: string, chat: ChatRecord): OwnState;
  /** A session has given an event to its connection. */
  onEvent(session: string, event: Event): void;
  /** What a session has sent after an event will come again, with new numbers. */
  onResume(session: string, after: number): void;
}

/** Names whose status it is. */
function keyOf(update: StatusUpdate): string {
  return `${update.chat_id} ${'user_id' in update ? update.user_id : ''}`;
}

/** Reads a session for one connection. The newest reader of a session owns it. */
export interface Reader {
  /** There may be something to read. */
  wake(): void;
  /** The reader has lost the session. */
  lost(reason: Refusal): void;
}

interface Progress {
  readonly chat: string;
  next: number;
  start: number;
  head: number;
  acked: number;
  ackedRead: boolean;
  /** The client gave its cursor. */
  told: boolean;
  /** `caught_up` waits until the chat is sent up to here; 0 if it does not wait. */
  backlogTo: number;
}

/** An event that was sent, as far as needed to send it again. */
type Run =
  | { readonly kind: 'messages' | 'gap'; readonly id: number; readonly chat: string;
      readonly from: number; readonly to: number }
  | { readonly kind: 'status' | 'own'; readonly id: number; readonly chat: string }
  | { readonly kind: 'caught_up'; readonly id: number }
  | { readonly kind: 'control'; readonly id: number; readonly control: Control };

type Control =
  | { readonly type: 'membership'; readonly chat: string; readonly payload: Membership }
  | { readonly type: 'chat_updated'; readonly chat: string; readonly payload: ChatUpdated }
  | { readonly type: 'reset'; readonly chat: ''; readonly payload: Reset };

/** Omit for each member of a union. */
type Unnumbered<T> = T extends unknown ? Omit<T, 'id'> : never;

const pageEvents = 128;
const recentChats = 50;
const snapshotMembers = 5000;
const maxRuns = 1024;

export class Session {
  readonly id: string;
  readonly user: string;
  readonly device: string | null;
  /** How often a connection has left it. */
  left = 0;
  /** The client wants statuses. */
  readonly #snapshot: boolean;
  readonly #host: Host;
  readonly #chats = new Map<string, Progress>();
  #reader: Reader | undefined;
  #ended: Refusal | undefined;
  #lookAtAll = true;
  #catchUp: 'catching' | 'caught up' | 'awaiting cursors' = 'catching';
  // The log.
  #lastId = 0;
  #base = 0;
  #runs: Run[] = [];
  #opening: { resumed: boolean } | undefined;
  #controls: Control[] = [];
  #typing: Typing[] = [];
  /** The chats that the client shows, and until when; undefined: it has never said. */
  #looks: Map<string, { readonly until: number; fresh: boolean }> | undefined;
  #presence: Presence[] = [];
  // Statuses.
  readonly #raised = new Map<string, StatusUpdate>();
  /** What was told of others while the user hides what they read. */
  readonly #masked = new Map<string, number>();
  #refresh: string[] = [];
  #own: string[] = [];
  /** The chats in which the user's own status was written and is not told. */
  #written: string[] = [];
  #recentStatuses = false;
  #recentOwn = false;

  constructor(
    host: Host, id: string, user: string, device: string | null, snapshot: boolean,
  ) {
    this.#host = host;
    this.id = id;
    this.user = user;
    this.device = device;
    this.#snapshot = snapshot;
  }

  get attached(): boolean {
    return this.#reader !== undefined;
  }

  get ended(): boolean {
    return this.#ended !== undefined;
  }

  // ---- Connections ------------------------------------------------------------------------------

  /** Makes a connection the reader of the new session. */
  open(reader: Reader, reset: Reset['reason'] | undefined): void {
    if (reset !== undefined) this.#reset({ reason: reset, chat_id: null, through: null });
    this.#attach(reader, true, false);
  }

  /** Makes a connection the reader, and sends again what followed the event `after`. */
  resume(reader: Reader, after: number, announce: boolean): void {
    if (after < this.#base || after > this.#lastId) {
      this.#reset({ reason: 'unknown_position', chat_id: null, through: null });
      this.#catchUp = 'awaiting cursors';
      this.#attach(reader, announce, false);
      return;
    }
    this.#host.onResume(this.id, after);
    this.#confirm(after);
    const again = this.#runs;
    this.#runs = [];
    for (const run of again) this.#sendAgain(run);
    this.#attach(reader, announce, true);
  }

  detach(reader: Reader): boolean {
    if (this.#reader !== reader) return false;
    this.#reader = undefined;
    return true;
  }

  /** Returns the first sequence of each chat that is known and not acknowledged. */
  behind(): { chat: string; first: number }[] {
    return [...this.#chats.values()].filter((p) => p.head > p.acked).map((p) => (
      { chat: p.chat, first: p.ackedRead ? p.acked + 1 : Math.max(p.acked + 1, p.start) }));
  }

  end(reason: Refusal): void {
    this.#ended = reason;
    this.#reader?.lost(reason);
    this.#reader = undefined;
  }

  #attach(reader: Reader, announce: boolean, resumed: boolean): void {
    this.#reader?.lost(new Refusal('REPLACED', 'a newer connection owns the session'));
    this.#reader = reader;
    if (announce) {
      this.#opening = { resumed };
      this.#looks?.clear();
      this.#presence = [];
      if (this.#snapshot && !resumed) this.#recentStatuses = true;
      if (this.#catchUp === 'caught up') this.#catchUp = 'catching';
    }
    if (this.#catchUp !== 'caught up') this.#expectReady();
    reader.wake();
  }

  #sendAgain(run: Run): void {
    switch (run.kind) {
      case 'messages':
      case 'gap': {
        const p = this.#progress(run.chat, run.from);
        p.head = Math.max(p.head, run.to);
        if (run.from < p.next) rewind(p, run.from);
        break;
      }
      case 'status':
        add(this.#refresh, run.chat);
        break;
      case 'own':
        add(this.#own, run.chat);
        break;
      case 'caught_up':
        if (this.#catchUp === 'caught up') this.#catchUp = 'catching';
        break;
      case 'control':
        this.#controls.push(run.control);
    }
  }

  // ---- News -------------------------------------------------------------------------------------

  /** A chat has a message that the session may have to send. */
  notify(chat: string, sequence: number): void {
    const p = this.#reach(chat, sequence);
    p.head = Math.max(p.head, sequence);
    this.#wake();
  }

  membersChanged(changes: readonly Membership[]): void {
    for (const payload of changes) {
      const own = payload.user_id === this.user;
      if (own && payload.change === 'removed') {
        this.#leave(payload.chat_id);
      } else if (own && payload.change === 'added' &&
        (this.#snapshot || this.#chats.has(payload.chat_id))) {
        add(this.#refresh, payload.chat_id);
      }
      const chat = own && payload.change === 'removed' ? '' : payload.chat_id;
      this.#controls.push({ type: 'membership', chat, payload });
    }
    this.#wake();
  }

  chatUpdated(payload: ChatUpdated): void {
    this.#controls = this.#controls.filter(
      (c) => c.type !== 'chat_updated' || c.chat !== payload.chat_id);
    this.#controls.push({ type: 'chat_updated', chat: payload.chat_id, payload });
    this.#wake();
  }

  typing(payload: Typing): void {
    const looked = this.#looks?.get(payload.chat_id)?.until ?? 0;
    if (this.#looks && looked <= this.#host.now()) return;
    if (!this.attached || this.#typing.some((t) => t.chat_id === payload.chat_id &&
      t.user_id === payload.user_id)) return;
    this.#typing.push(payload);
    this.#wake();
  }

  /** The client shows these chats. Those that it did not show before are new to it. */
  look(chats: readonly string[], until: number): void {
    const before = this.#looks;
    const now = this.#host.now();
    this.#looks = new Map(chats.map((id) => {
      const old = before?.get(id);
      return [id, { until, fresh: !old || old.fresh || old.until <= now }];
    }));
    this.#presence = this.#presence.filter((p) => this.#looks?.has(p.chat_id));
    this.#typing = this.#typing.filter((t) => this.#looks?.has(t.chat_id));
  }

  /** The client gets all members of the chats that it shows, or of one of them. */
  lookAgain(only?: string): void {
    for (const [id, one] of this.#looks ?? []) one.fresh ||= only === undefined || only === id;
  }

  /** Returns the chats that the client shows. After this, none of them is new to it. */
  looks(now: number): { id: string; fresh: boolean }[] {
    return [...this.#looks ?? []].filter(([, { until }]) => until > now).map(([id, one]) => {
      const { fresh } = one;
      one.fresh = false;
      return { id, fresh };
    });
  }

  /** One event of a chat waits at most, with the latest of each member. */
  present(payload: Presence): void {
    const older = this.#presence.find((p) => p.chat_id === payload.chat_id)?.members ?? [];
    const newer = payload.members;
    const rest = older.filter((m) => newer?.every((n) => n.user_id !== m.user_id));
    this.#presence = [
      ...this.#presence.filter((p) => p.chat_id !== payload.chat_id),
      { ...payload, members: newer && [...newer, ...rest] },
    ];
    this.#wake();
  }

  acknowledged(chat: string, acked: number): void {
    const p = this.#chats.get(chat);
    if (p !== undefined) p.acked = Math.max(p.acked, acked);
  }

  /** The user's own status in a chat was written. Returns whether it is the first such chat. */
  written(chat: string): boolean {
    if (!this.#snapshot) return false;
    add(this.#written, chat);
    return this.#written.length === 1;
  }

  tellWritten(statusOf: (chat: string) => StatusUpdate): void {
    for (const chat of this.#written) this.#raise(statusOf(chat));
    this.#written = [];
  }

  /** Nobody is told of themselves. */
  raised(update: StatusUpdate): void {
    if ('user_id' in update && update.user_id === this.user) return;
    const seen = this.#host.seenBy(this.user, update);
    const key = keyOf(update);
    if (this.#host.data.hidden(this.user, update.chat_id)) {
      // Who sees no reads gets no event of them.
      const acked = 'user_id' in seen ? seen.last_acked_sequence : seen.all_acked_sequence;
      if (acked <= (this.#masked.get(key) ?? 0)) return;
      this.#masked.set(key, acked);
    }
    this.#raise(seen);
  }

  /** The user has changed who sees what they read. */
  receiptsChanged(): void {
    this.#masked.clear();
    if (this.#snapshot) this.#recentStatuses = true;
    this.#wake();
  }

  /** It may have changed who sees what the members of a chat read. */
  policyChanged(chat: string): void {
    for (const key of this.#masked.keys()) {
      if (key.startsWith(`${chat} `)) this.#masked.delete(key);
    }
    if (this.#snapshot) add(this.#refresh, chat);
    this.#wake();
  }

  #raise(update: StatusUpdate): void {
    this.#raised.set(keyOf(update), update);
    this.#wake();
  }

  /** An older status comes late. It takes the place of no newer one. */
  raisedLate(update: StatusUpdate): void {
    if (!this.#raised.has(keyOf(update))) this.raised(update);
  }

  refreshOwn(chat: string): void {
    add(this.#own, chat);
    this.#wake();
  }

  /** The client has stored a message of this stream, and so everything before it. */
  confirm(reader: Reader, chat: string, acked: number): void {
    if (this.#reader !== reader) return;
    for (let i = this.#runs.length - 1; i >= 0; i--) {
      const run = this.#runs[i];
      if (run?.kind !== 'messages' && run?.kind !== 'gap') continue;
      if (run.chat !== chat || run.from > acked) continue;
      if (acked <= run.to) this.#confirm(run.id);
      return;
    }
  }

  /** Moves the session to a device's cursors. */
  seek(
    cursors: readonly { chat: string; cursor: number; former: boolean }[],
    refused: readonly Reset[], statuses: boolean,
  ): void {
    for (const reset of refused) this.#reset(reset);
    for (const p of this.#chats.values()) {
      const first = Math.max(p.start, p.acked + 1);
      if (first < p.next) rewind(p, first);
    }
    for (const { chat, cursor, former } of cursors) {
      const p = this.#progress(chat, cursor + 1);
      p.told = true;
      p.head = Math.max(p.head, p.next - 1);
      if (!former) {
        p.ackedRead = true;
        p.acked = Math.max(p.acked, cursor);
        p.head = Math.max(p.head, headOf(this.#host.data.chat(chat)));
        if (statuses) add(this.#refresh, chat);
      }
      p.start = cursor + 1;
      p.next = cursor + 1;
    }
    if (statuses) {
      this.#recentStatuses = true;
      this.#recentOwn = true;
    }
    this.#lookAtAll = true;
    this.#catchUp = 'catching';
    this.#expectReady();
    this.#wake();
  }

  // ---- Reading ----------------------------------------------------------------------------------

  /** Returns the next events, about a page, or none. */
  next(reader: Reader): Event[] {
    const events = this.#next(reader);
    for (const event of events) this.#host.onEvent(this.id, event);
    return events;
  }

  #next(reader: Reader): Event[] {
    if (this.#ended !== undefined) throw this.#ended;
    if (this.#reader !== reader) {
      throw new Refusal('REPLACED', 'a newer connection owns the session');
    }
    const events: Event[] = [];
    if (this.#opening !== undefined) {
      const { resumed } = this.#opening;
      this.#opening = undefined;
      this.#lastId++;
      events.push({
        id: this.#lastId, type: 'session', payload: {
          session_id: this.id, user_id: this.user, resumed, event_id: this.#lastId,
          heartbeat_seconds: this.#host.heartbeatSeconds,
          resume_seconds: this.#host.resumeSeconds, incarnation: this.#host.data.incarnation,
          attachments: false,
        },
      });
    }
    for (const control of this.#controls) {
      events.push(this.#number({ kind: 'control', control }, (id) => controlEvent(id, control)));
    }
    this.#controls = [];
    this.#look();
    this.#sendMessages(events);
    if (events.length >= pageEvents) return events;
    if (this.#catchUp === 'catching' && [...this.#chats.values()].every((p) => !waits(p))) {
      this.#catchUp = 'caught up';
      events.push(this.#number({ kind: 'caught_up' }, (id) => (
        { id, type: 'caught_up', payload: {} })));
    }
    if (this.#catchUp === 'caught up') this.#sendRefreshed(events);
    for (const update of this.#raised.values()) this.#sendStatus(events, update);
    this.#raised.clear();
    for (const payload of this.#typing) events.push({ type: 'typing', payload });
    this.#typing = [];
    for (const payload of this.#presence) events.push({ type: 'presence', payload });
    this.#presence = [];
    return events;
  }

  /** Finds the chats whose messages the user has not acknowledged. */
  #look(): void {
    if (!this.#lookAtAll) return;
    this.#lookAtAll = false;
    for (const chat of this.#host.data.chatsOf(this.user)) {
      const { acked } = this.#host.data.state(this.user, chat.id);
      if (headOf(chat) <= acked) continue;
      const p = this.#reach(chat.id, acked + 1);
      this.#learnAcked(p, acked);
      p.head = Math.max(p.head, headOf(chat));
      if (this.#catchUp !== 'caught up') p.backlogTo = Math.max(p.backlogTo, p.head);
      if (this.#snapshot && !this.#recentStatuses) add(this.#refresh, chat.id);
    }
  }

  #sendMessages(events: Event[]): void {
    for (const p of this.#chats.values()) {
      if (!p.ackedRead) {
        this.#learnAcked(p, this.#host.data.state(this.user, p.chat).acked);
      }
      if (p.next > p.head) continue;
      const chat = this.#host.data.chats.get(p.chat);
      const intervals = chat?.members.get(this.user)?.intervals ?? [];
      if (chat === undefined || !isOpen(intervals)) {
        this.#leave(p.chat);
        continue;
      }
      for (const piece of pieces(intervals, p.next, Math.min(p.head, headOf(chat)))) {
        if (!piece.visible) {
          events.push(this.#number(
            { kind: 'gap', chat: p.chat, from: piece.from, to: piece.to },
            (id) => ({ id, type: 'gap', payload: gapOf(p.chat, piece) })));
          p.next = piece.to + 1;
          continue;
        }
        for (; p.next <= piece.to; p.next++) {
          if (events.length >= pageEvents) return;
          const payload = this.#host.data.served(this.user, messageAt(chat, p.next));
          events.push(this.#number(
            { kind: 'messages', chat: p.chat, from: p.next, to: p.next },
            (id) => ({ id, type: 'message', payload })));
        }
      }
    }
  }

  #sendRefreshed(events: Event[]): void {
    if (this.#recentStatuses || this.#recentOwn) {
      let members = 0;
      for (const chat of this.#host.data.recentOf(this.user).slice(0, recentChats)) {
        if (this.#recentOwn) add(this.#own, chat.id);
        const count = this.#host.data.roster(chat).length;
        if (!this.#recentStatuses || members + count > snapshotMembers) continue;
        members += count;
        add(this.#refresh, chat.id);
      }
      this.#recentStatuses = false;
      this.#recentOwn = false;
    }
    for (const id of this.#refresh) {
      const chat = this.#visible(id);
      if (chat === undefined) continue;
      for (const update of this.#host.statusesFor(this.user, chat)) {
        this.#sendStatus(events, update);
      }
    }
    this.#refresh = [];
    for (const id of this.#own) {
      const chat = this.#visible(id);
      if (chat === undefined) continue;
      const payload = this.#host.ownState(this.user, chat);
      events.push(this.#number({ kind: 'own', chat: id }, (n) => (
        { id: n, type: 'own_state', payload })));
    }
    this.#own = [];
  }

  #sendStatus(events: Event[], payload: StatusUpdate): void {
    if (this.#visible(payload.chat_id) === undefined) return;
    events.push(this.#number({ kind: 'status', chat: payload.chat_id }, (id) => (
      { id, type: 'status_update', payload })));
  }

  // ---- Helpers ----------------------------------------------------------------------------------

  #visible(id: string): ChatRecord | undefined {
    const chat = this.#host.data.chats.get(id);
    return isOpen(chat?.members.get(this.user)?.intervals ?? []) ? chat : undefined;
  }

  #wake(): void {
    this.#reader?.wake();
  }

  #reset(payload: Reset): void {
    this.#controls.push({ type: 'reset', chat: '', payload });
  }

  #number(run: Unnumbered<Run>, event: (id: number) => Event): Event {
    this.#lastId++;
    this.#runs.push({ ...run, id: this.#lastId });
    if (this.#runs.length > maxRuns) {
      this.#base = this.#runs[maxRuns / 8 - 1]?.id ?? this.#base;
      this.#runs.splice(0, maxRuns / 8);
    }
    return event(this.#lastId);
  }

  #confirm(id: number): void {
    if (id <= this.#base) return;
    this.#base = id;
    this.#runs = this.#runs.filter((r) => r.id > id);
  }

  #progress(chat: string, start: number): Progress {
    let p = this.#chats.get(chat);
    if (p === undefined) {
      p = {
        chat, next: start, start, head: 0, acked: 0, ackedRead: false, told: false, backlogTo: 0,
      };
      this.#chats.set(chat, p);
    }
    return p;
  }

  #reach(chat: string, sequence: number): Progress {
    const p = this.#progress(chat, sequence);
    if (sequence < p.start && !p.told) {
      p.start = sequence;
      if (sequence < p.next) rewind(p, sequence);
    }
    return p;
  }

  #learnAcked(p: Progress, acked: number): void {
    p.acked = Math.max(p.acked, acked);
    if (p.ackedRead) return;
    p.ackedRead = true;
    if (acked + 1 < p.start) {
      p.start = acked + 1;
      if (acked + 1 < p.next) rewind(p, acked + 1);
    }
  }

  #expectReady(): void {
    for (const p of this.#chats.values()) {
      if (p.next <= p.head) p.backlogTo = Math.max(p.backlogTo, p.head);
    }
  }

  #leave(chat: string): void {
    const p = this.#chats.get(chat);
    if (p !== undefined) {
      if (p.head > p.acked) this.#lookAtAll = true;
      p.head = 0;
      p.backlogTo = 0;
      p.next = Math.max(Math.min(p.next, p.acked + 1), 1);
      p.start = Math.min(p.start, p.next);
    }
    this.#refresh = this.#refresh.filter((id) => id !== chat);
    this.#own = this.#own.filter((id) => id !== chat);
    this.#written = this.#written.filter((id) => id !== chat);
    for (const [key, update] of this.#raised) {
      if (update.chat_id === chat) this.#raised.delete(key);
    }
    this.#controls = this.#controls.filter((c) => c.chat !== chat);
    this.#typing = this.#typing.filter((t) => t.chat_id !== chat);
    this.#presence = this.#presence.filter((p) => p.chat_id !== chat);
    this.#looks?.delete(chat);
    this.#runs = this.#runs.map((r) => (r.kind === 'control' && r.control.chat === chat
      ? { kind: 'status', id: r.id, chat } : r));
  }
}

function controlEvent(id: number, c: Control): Event {
  switch (c.type) {
    case 'membership':
      return { id, type: c.type, payload: c.payload };
    case 'chat_updated':
      return { id, type: c.type, payload: c.payload };
    case 'reset':
      return { id, type: c.type, payload: c.payload };
  }
}

function rewind(p: Progress, to: number): void {
  p.head = Math.max(p.head, p.next - 1);
  p.next = to;
}

function waits(p: Progress): boolean {
  return p.backlogTo > 0 && p.next <= p.backlogTo;
}

function add(list: string[], chat: string): void {
  if (!list.includes(chat)) list.push(chat);
}
