// What the fake server does, apart from how it is asked. One node, and no faults of its own.

import type {
  Event, Membership, Message, OwnState, Reset, StatusUpdate, SyncChat, SyncResponse,
} from '../../wire.gen.js';
import type { VirtualClock } from '../clock.js';
import type { Dice } from '../random.js';
import { mayPin } from './annotations.js';
import { closed } from './blocks.js';
import {
  Data, headOf, stateKey, timeOf, type ChatRecord, type Draft, type MemberRecord, type Raise,
  type StateRecord,
} from './data.js';
import { checkId, type AckItem, type StreamQuery, type SyncCall } from './decode.js';
import { contains, isOpen } from './intervals.js';
import { Presence } from './presence.js';
import { invalid, invalidSequence, Refusal, refusalOf } from './refusal.js';
import { Session, type Host, type Reader } from './session.js';

/** Milliseconds, as of the real server. */
export interface Times {
  readonly ackInterval: number;
  readonly statusInterval: number;
  readonly confirmInterval: number;
  readonly authorRetry: number;
  readonly grace: number;
  readonly typingEvery: number;
}

export const realTimes: Times = {
  ackInterval: 50, statusInterval: 100, confirmInterval: 4000, authorRetry: 1000, grace: 10_000,
  typingEvery: 3000,
};

/** A raise that is written with others soon. */
interface Waiting {
  readonly user: string;
  readonly chat: string;
  readonly session: string | undefined;
  readonly raise: Raise;
  /** How often a raise by the author's own message was tried. */
  readonly tries: number;
  /** The raise is expected to count, so the author has no pending row. */
  readonly covered?: boolean;
}

const sessionsPerUser = 32;

export class Core implements Host {
  data: Data;
  /** Called for each event that a session gives to its connection. */
  onEvent: (session: string, event: Event) => void = () => undefined;
  /** Called when a connection resumes a session after an event. */
  onResume: (session: string, after: number) => void = () => undefined;
  /** Called for each new message. */
  onStored: (message: Message) => void = () => undefined;
  readonly clock: VirtualClock;
  readonly heartbeatSeconds: number;
  readonly resumeSeconds: number;
  /** Above this number of members, a chat has one status for all of them. */
  readonly statusFanout: number;
  readonly #times: Times;
  readonly presence: Presence;
  readonly lastSeen: boolean;
  readonly #dice: Dice;
  readonly #sessions = new Map<string, Session>();
  readonly #replaced = new Map<string, { user: string; until: number; refusal: Refusal }>();
  readonly #typed = new Map<string, number>();
  #waiting: Waiting[] = [];
  #flushedAt = Number.NEGATIVE_INFINITY;
  #flushing = false;
  /** When something may be told again. */
  readonly #paused = new Map<string, 'paused' | 'again'>();
  /** The session that changed an own state, or '' for several. */
  readonly #ownBy = new Map<string, string>();
  /** After how long the statuses before the last ones are told again, or 0: never. */
  statusesLateMs = 0;
  /** The last statuses, by who moved in which chat. */
  readonly #published = new Map<string, readonly StatusUpdate[]>();
  /** The small chats in which the status of an author was told to nobody. */
  readonly #leftOut = new Set<string>();
  /** Counts the lives of the process: what was begun in an earlier one does nothing any more. */
  #boot = 0;

  constructor(
    clock: VirtualClock, dice: Dice,
    o: {
      times: Times; heartbeatSeconds: number; resumeSeconds: number; statusFanout: number;
      lastSeen?: boolean;
    },
  ) {
    this.clock = clock;
    this.#dice = dice;
    this.#times = o.times;
    this.heartbeatSeconds = o.heartbeatSeconds;
    this.resumeSeconds = o.resumeSeconds;
    this.statusFanout = o.statusFanout;
    this.lastSeen = o.lastSeen ?? false;
    this.presence = new Presence(this);
    this.data = new Data();
    this.data.beginLife(dice.text(16));
  }

  get incarnation(): string {
    return this.data.incarnation;
  }

  /** Loses what only the process has. With other data, a new life of them begins. */
  restart(data?: Data): void {
    this.#boot++;
    if (data === undefined) this.#flush();
    this.presence.restart();
    this.#sessions.clear();
    this.#replaced.clear();
    this.#typed.clear();
    this.#paused.clear();
    this.#ownBy.clear();
    this.#published.clear();
    this.#leftOut.clear();
    this.#waiting = [];
    this.#flushing = false;
    if (data === undefined) return;
    this.data = data;
    this.data.beginLife(this.#dice.text(16));
  }

  // ---- Sessions ---------------------------------------------------------------------------------

  /** Opens a session for a stream, or resumes the one that it names. */
  open(user: string, q: StreamQuery, reader: Reader, poll: boolean): Session {
    let reset: Reset['reason'] | undefined;
    if (q.session !== undefined) {
      const found = this.#sessions.get(q.session);
      if (found?.user === user) {
        found.resume(reader, q.after, !poll);
        return found;
      }
      const gone = this.missing(user, q.session);
      if (poll || gone.code === 'REPLACED') throw gone;
      reset = 'unknown_session';
    }
    const device = q.device ?? null;
    for (const other of this.sessionsOf(user)) {
      if (device !== null && other.device === device) {
        this.end(other, new Refusal('REPLACED', 'the device has a newer session'));
      }
    }
    if (this.sessionsOf(user).length >= sessionsPerUser) {
      throw new Refusal('RATE_LIMITED', 'too many sessions', null, 10 + this.#dice.roll(50));
    }
    const session = new Session(this, this.#dice.text(22), user, device, q.statuses);
    this.#sessions.set(session.id, session);
    if (this.sessionsOf(user).length === 1) this.presence.came(user);
    session.open(reader, reset);
    return session;
  }

  /** Returns the refusal for a client whose session is not there. */
  missing(user: string, id: string): Refusal {
    const past = this.#replaced.get(id);
    if (past?.user === user && this.clock.now() < past.until) return past.refusal;
    return new Refusal('SESSION_GONE', 'the session is unknown or has ended');
  }

  /** A connection has ended. With `over`, its session has, too. */
  leave(session: Session, reader: Reader, over: boolean): void {
    const held = session.detach(reader);
    if (session.ended || !held) return;
    if (over) {
      this.#flush();
      this.end(session, new Refusal('SESSION_GONE', 'the session has ended'));
      return;
    }
    const boot = this.#boot;
    const left = ++session.left;
    this.clock.timer(this.resumeSeconds * 1000, () => {
      if (boot !== this.#boot || session.ended || session.attached || left !== session.left) return;
      this.end(session, new Refusal('SESSION_GONE', 'the session has expired'));
    });
  }

  end(session: Session, reason: Refusal): void {
    this.#sessions.delete(session.id);
    if (this.sessionsOf(session.user).length === 0) this.presence.left(session.user);
    if (reason.code === 'REPLACED') {
      const until = this.clock.now() + this.resumeSeconds * 1000;
      this.#replaced.set(session.id, { user: session.user, until, refusal: reason });
    }
    session.end(reason);
    for (const { chat, first } of session.behind()) this.#mark(session.user, chat, first);
  }

  now(): number {
    return this.clock.now();
  }

  sessions(): Session[] {
    return [...this.#sessions.values()];
  }

  /** A session that has ended, or is another user's, has no looks: its stream tells its client. */
  look(user: string, id: string, chats: readonly string[]): void {
    const session = this.#sessions.get(id);
    if (session?.user === user) this.presence.look(session, chats);
    else this.presence.mayLook(user, chats, 'chat_ids');
  }

  sessionsOf(user: string): Session[] {
    return [...this.#sessions.values()].filter((s) => s.user === user);
  }

  endSessions(user: string, ids: readonly string[]): void {
    for (const session of this.sessionsOf(user)) {
      if (ids.includes(session.id)) {
        this.end(session, new Refusal('REPLACED', 'the user has ended the session'));
      }
    }
  }

  // ---- Messages ---------------------------------------------------------------------------------

  send(
    who: { user: string; backend: boolean }, draft: Draft,
  ): { message: Message; duplicate: boolean } {
    const { user } = who;
    this.#checkAuthority(who, draft);
    const chat = this.data.chats.get(draft.chat);
    const hidden = draft.kind !== 'message' && draft.kind !== 'system';
    const seen = draft.seen ?? (who.backend || hidden ? 0 : null);
    if (seen !== null && seen > (chat === undefined ? 0 : headOf(chat))) {
      this.data.member(user, draft.chat);
      throw invalidSequence('seen_sequence', 'is above the head of the chat');
    }
    this.#checkTarget(who, draft);
    const now = this.clock.now();
    if (draft.sendBy !== null && draft.sendBy > now + 6 * 86_400_000) {
      throw invalid('send_by', 'is more than 6 days ahead');
    }
    if (draft.sendBy !== null && draft.sendBy < now) return this.#late(user, draft, now);
    const done = this.data.append(user, draft, uuidV7(now, this.#dice), now, who.backend);
    if (!done.duplicate) this.onStored(done.message);
    const covered = !done.duplicate && this.#authored(user, done.message, seen);
    this.#handOver(done.message, done.duplicate, covered);
    return done;
  }

  #late(user: string, draft: Draft, now: number): { message: Message; duplicate: boolean } {
    const message = this.data.sent(user, draft);
    if (message !== undefined) return { message, duplicate: true };
    this.data.mustSend(user, this.data.chat(draft.chat));
    if (now < (draft.sendBy ?? 0) + 60_000) {
      throw new Refusal('UNAVAILABLE', 'send_by is over', 'send_by');
    }
    throw new Refusal('EXPIRED', 'send_by is over', 'send_by');
  }

  #checkAuthority(who: { user: string; backend: boolean }, draft: Draft): void {
    if (who.backend) return;
    if (draft.kind === 'system') throw new Refusal('DENIED', 'only a backend may do that');
    if (draft.mentions?.all !== true) return;
    const { chat, member } = this.data.member(who.user, draft.chat);
    if (chat.type === 'group' && member.role !== 'owner' && member.role !== 'admin') {
      throw new Refusal('DENIED', 'only an owner or an admin may mention all');
    }
  }

  /** Members relate messages to those that they see. Those who may pin undo each pin. */
  #checkTarget(
    who: { user: string; backend: boolean }, { chat, kind, relation, list }: Draft,
  ): void {
    const { intervals = [] } = this.data.chats.get(chat)?.members.get(who.user) ?? {};
    if (relation === null || who.backend || !isOpen(intervals)) return;
    const unseen = list?.findIndex((one) => !contains(intervals, one)) ?? -1;
    if (unseen >= 0) {
      throw new Refusal('NOT_FOUND', 'there is no such message', `relation.sequences[${unseen}]`);
    }
    if (list !== null || contains(intervals, relation)) return;
    const found = this.data.chat(chat);
    const isPin = found.messages[relation - 1]?.kind === 'pin';
    if (kind === 'redact' && isPin && mayPin(found, who.user)) return;
    throw new Refusal('NOT_FOUND', 'there is no such message', 'relation.sequence');
  }

  #handOver(message: Message, duplicate: boolean, covered: boolean): void {
    const chat = this.data.chat(message.chat_id);
    for (const { user } of this.data.roster(chat)) {
      if (duplicate && this.data.state(user, chat.id).acked >= message.sequence) continue;
      const sessions = this.sessionsOf(user);
      for (const session of sessions) session.notify(chat.id, message.sequence);
      if (sessions.length === 0) {
        if (!covered || user !== message.sender_id) this.#mark(user, chat.id, message.sequence);
        continue;
      }
      const boot = this.#boot;
      this.clock.timer(this.#times.grace, () => {
        if (boot === this.#boot) this.#markMissed(user, chat);
      });
    }
  }

  /**
   * Raises what the author's own message implies: everything before it was read. Returns whether it
   * will count as acknowledged.
   */
  #authored(user: string, message: Message, seen: number | null): boolean {
    const n = message.sequence;
    let top = this.data.state(user, message.chat_id).acked;
    for (const w of this.#waiting) {
      if (w.user !== user || w.chat !== message.chat_id) continue;
      if ((w.raise.ackedFrom ?? 0) <= top + 1) top = Math.max(top, w.raise.acked);
    }
    const covered = n <= top + 1;
    const acked = { acked: n, ackedFrom: n };
    const raise = seen === null ? { ...acked, read: n, readWithinAcked: true }
      : { ...acked, read: seen > 0 && seen + 1 >= n ? n : seen };
    this.#wait({ user, chat: message.chat_id, session: undefined, raise, tries: 0, covered });
    return covered;
  }

  // ---- Acknowledgements -------------------------------------------------------------------------

  /** Raises watermarks at once, and returns the state after each. Each one fails alone. */
  acknowledge(
    user: string, items: readonly AckItem[], incarnation?: string,
  ): (Refusal | StateRecord)[] {
    const times = new Map<string, number>();
    for (const { chat } of items.filter((i) => i.refused === undefined)) {
      const n = (times.get(chat) ?? 0) + 1;
      times.set(chat, n);
      if (n > 10) throw invalid('chats', `names ${chat} more than 10 times`);
    }
    return items.map((item) => {
      if (item.refused !== undefined) return item.refused;
      try {
        this.data.member(user, item.chat);
        if (incarnation !== undefined && incarnation !== this.incarnation) {
          throw invalidSequence('incarnation', 'is not the present one of the data');
        }
        this.#advance(user, item.chat, item, undefined);
        return this.data.state(user, item.chat);
      } catch (error) {
        return refusalOf(error);
      }
    });
  }

  /** Takes acknowledgements of a stream, which are written soon and never answered. */
  takeAcks(
    session: Session, reader: Reader, items: readonly AckItem[], incarnation: string | undefined,
  ): void {
    if (incarnation !== undefined && incarnation !== this.incarnation) return;
    for (const item of items) {
      if (item.refused !== undefined) continue;
      const { user } = session;
      this.#wait({ user, chat: item.chat, session: session.id, raise: item, tries: 0 });
      if (item.acked > 0) session.confirm(reader, item.chat, item.acked);
    }
  }

  #wait(w: Waiting): void {
    this.#waiting.push(w);
    if (this.#flushing) return;
    this.#flushing = true;
    const boot = this.#boot;
    const due = Math.max(0, this.#flushedAt + this.#times.ackInterval - this.clock.now());
    this.clock.timer(due, () => {
      if (boot === this.#boot) this.#flush();
    });
  }

  #flush(): void {
    this.#flushing = false;
    this.#flushedAt = this.clock.now();
    const all = this.#waiting;
    this.#waiting = [];
    for (const w of all) {
      const chat = this.data.chats.get(w.chat);
      const author = w.raise.ackedFrom !== undefined;
      const member = isOpen(chat?.members.get(w.user)?.intervals ?? []);
      if (chat === undefined || (!author && !member)) continue;
      const head = headOf(chat);
      const within = (n: number): number => (n > head ? 0 : n);
      const raise = { ...w.raise, acked: within(w.raise.acked), read: within(w.raise.read) };
      this.#advance(w.user, w.chat, raise, w.session);
      if (author && this.data.state(w.user, w.chat).acked < w.raise.acked) this.#tryAgain(w);
    }
  }

  /** A run of the author's own messages did not join what they have acknowledged. */
  #tryAgain(w: Waiting): void {
    if (w.tries > 0) {
      if (w.covered === true) this.#mark(w.user, w.chat, w.raise.acked);
      return;
    }
    const boot = this.#boot;
    this.clock.timer(this.#times.authorRetry, () => {
      if (boot === this.#boot) this.#wait({ ...w, tries: 1 });
    });
  }

  #advance(user: string, chat: string, raise: Raise, by: string | undefined): void {
    const before = this.data.state(user, chat);
    const shown = JSON.stringify(this.exposed(user, chat));
    const moved = this.data.advance(user, chat, raise, this.clock.now());
    const after = this.data.state(user, chat);
    for (const session of this.sessionsOf(user)) session.acknowledged(chat, after.acked);
    if (raise.acked > 0) this.#clear(user, chat);
    const own = raise.ackedFrom ?? 0;
    const small = this.data.roster(this.data.chat(chat)).length <= this.statusFanout;
    if (small && (moved || own === 0)) this.#confirm(user, chat);
    if (!moved) return;
    // Only messages of the user were crossed: that changes no tick of others.
    const ownRun = own > 0 && (after.read === before.read || own <= before.read + 1);
    if (shown === JSON.stringify(this.exposed(user, chat))) {
      // Others see nothing of it.
    } else if (!(small && ownRun)) {
      this.#tell(`status ${stateKey(user, chat)}`, () => {
        this.#publishStatus(user, chat);
      });
    } else {
      this.#leftOut.add(chat);
    }
    const unmarked = before.unreadFrom !== 0 && after.unreadFrom === 0;
    if (unmarked || (after.read > before.read && (own === 0 || own > before.read + 1))) {
      this.#ownChanged(user, chat, by ?? '');
    }
  }

  /** Tells the user's clients what was written, a while later. */
  #confirm(user: string, chat: string): void {
    const boot = this.#boot;
    for (const session of this.sessionsOf(user)) {
      if (!session.written(chat)) continue;
      this.clock.timer(this.#times.confirmInterval, () => {
        if (boot === this.#boot) session.tellWritten((id) => this.#ownStatus(user, id));
      });
    }
  }

  // ---- Sync -------------------------------------------------------------------------------------

  sync(user: string, r: SyncCall): SyncResponse {
    if (r.cursors.length > 10_000) throw invalid('chats', 'names too many chats');
    const session = r.session === undefined ? undefined : this.#sessions.get(r.session);
    if (r.session !== undefined && session?.user !== user) throw this.missing(user, r.session);
    const names = r.cursors.map((c) => checkId('chat_id', c.chat));
    if (new Set(names).size < names.length) throw invalid('chats', 'names a chat twice');
    const chats = r.cursors.map((c) => this.#takeCursor(user, c));
    if (session !== undefined) {
      const refused = chats.filter((c) => c.reset !== null || c.problem !== null);
      const accepted = r.cursors.filter(
        (_, i) => chats[i]?.reset === null && chats[i].problem === null);
      const former = r.cursors.filter((c, i) => chats[i]?.problem?.code === 'NOT_A_MEMBER' &&
        c.acked <= this.#sharedOf(c));
      session.seek(
        [...accepted.map((c) => ({ chat: c.chat, cursor: c.acked, former: false })),
          ...former.map((c) => ({ chat: c.chat, cursor: c.acked, former: true }))],
        refused.flatMap((c) => (c.reset === null ? [] : [c.reset])), r.statuses);
      return { chats: refused, status_updates: [], has_more: false };
    }
    return this.#syncAnswer(user, r, chats);
  }

  #sharedOf(c: SyncCall['cursors'][number]): number {
    const chat = this.data.chats.get(c.chat);
    const bound = Math.min(c.acked, chat === undefined ? 0 : headOf(chat));
    if (c.incarnation === undefined || c.incarnation === this.incarnation) return bound;
    return this.data.shared(c.chat, c.incarnation, bound);
  }

  #takeCursor(user: string, c: SyncCall['cursors'][number]): SyncChat {
    const empty = {
      chat_id: c.chat, head_sequence: 0, messages: [], gaps: [], has_more: false, reset: null,
      problem: null,
    };
    try {
      this.data.member(user, c.chat);
    } catch (error) {
      return { ...empty, problem: refusalOf(error).detail() };
    }
    const head = headOf(this.data.chat(c.chat));
    const found = { ...empty, head_sequence: head };
    const shared = this.#sharedOf(c);
    const foreign = c.incarnation !== undefined && c.incarnation !== this.incarnation;
    if (foreign && c.acked > shared) {
      return { ...found, reset: { reason: 'restored', chat_id: c.chat, through: shared } };
    }
    if (c.acked > head) {
      return { ...found, reset: { reason: 'ahead', chat_id: c.chat, through: null } };
    }
    if (c.acked > 0) this.#advance(user, c.chat, { acked: c.acked, read: 0 }, undefined);
    return found;
  }

  #syncAnswer(user: string, r: SyncCall, named: readonly SyncChat[]): SyncResponse {
    const after = new Map(r.cursors.map((c) => [c.chat, c.acked]));
    const behind = this.data.chatsOf(user).filter(
      (c) => !after.has(c.id) && headOf(c) > this.data.state(user, c.id).acked);
    const chats: SyncChat[] = [...named];
    for (const c of behind) {
      after.set(c.id, this.data.state(user, c.id).acked);
      chats.push({
        chat_id: c.id, head_sequence: headOf(c), messages: [], gaps: [], has_more: false,
        reset: null, problem: null,
      });
    }
    const filled = chats.map((c) => {
      if (c.reset !== null || c.problem !== null) return c;
      const page = this.data.after(user, c.chat_id, after.get(c.chat_id) ?? 0, r.limit);
      return { ...c, messages: page.messages, gaps: page.gaps, has_more: page.hasMore };
    });
    const updates = r.statuses ? filled.flatMap((c) => this.statuses(user, c.chat_id)) : [];
    return {
      chats: filled, status_updates: updates, has_more: filled.some((c) => c.has_more),
    };
  }

  // ---- Statuses ---------------------------------------------------------------------------------

  /** Returns the statuses of a chat, or none if the user is no member. */
  statuses(user: string, id: string): StatusUpdate[] {
    const chat = this.data.chats.get(id);
    const member = isOpen(chat?.members.get(user)?.intervals ?? []);
    return chat === undefined || !member ? [] : this.statusesFor(user, chat);
  }

  /** Returns the statuses of a chat as a user sees them. */
  statusesFor(user: string, chat: ChatRecord): StatusUpdate[] {
    const all = this.data.blocks.closed(chat) ? [this.#ownStatus(user, chat.id)]
      : this.statusesOf(chat).map((update) => this.seenBy(user, update));
    return all.filter(
      (u) => ('user_id' in u ? u.last_acked_sequence : u.all_acked_sequence) > 0);
  }

  /** Returns a status as a user sees it: with their own marks, and if they hide, no reads. */
  seenBy(user: string, update: StatusUpdate): StatusUpdate {
    if ('user_id' in update && update.user_id === user) {
      return this.#ownStatus(user, update.chat_id);
    }
    if (!this.data.hidden(user, update.chat_id)) return update;
    return 'user_id' in update ? { ...update, last_read_sequence: 0, read_at: null }
      : { ...update, all_read_sequence: 0 };
  }

  statusesOf(chat: ChatRecord): StatusUpdate[] {
    const roster = this.data.roster(chat);
    if (roster.length <= this.statusFanout) {
      return roster.filter(({ user }) => {
        const { acked, read } = this.data.state(user, chat.id);
        return acked > 0 || read > 0;
      }).map(({ user }) => this.#statusOf(user, chat.id));
    }
    const all = roster.map(({ user }) => this.exposed(user, chat.id));
    const least = {
      acked: Math.min(...all.map((b) => b.acked)), read: Math.min(...all.map((b) => b.read)),
    };
    if (least.acked === 0 && least.read === 0) return [];
    return [{
      chat_id: chat.id, scope: 'chat', all_acked_sequence: least.acked,
      all_read_sequence: least.read,
    }];
  }

  /** Returns a member's watermarks as others see them. */
  exposed(
    user: string, chat: string,
  ): { acked: number; read: number; ackedAt: number; readAt: number } {
    const { acked, read, ackedAt, readAt } = this.data.shown(user, chat);
    return read > acked ? { acked: read, read, ackedAt: readAt, readAt }
      : { acked, read, ackedAt, readAt };
  }

  /** Returns a member's watermarks as another one sees them. */
  exposedTo(
    other: string, user: string, chat: string,
  ): { acked: number; read: number; ackedAt: number; readAt: number } {
    const of = this.data.chats.get(chat);
    if (of && this.data.blocks.closed(of)) {
      return other === user ? this.#real(user, chat) : { acked: 0, read: 0, ackedAt: 0, readAt: 0 };
    }
    const b = this.exposed(user, chat);
    return other !== user && this.data.hidden(other, chat) ? { ...b, read: 0, readAt: 0 } : b;
  }

  ownState(user: string, chat: ChatRecord): OwnState {
    const state = this.data.state(user, chat.id);
    const unread = this.data.unread(user, chat);
    return {
      chat_id: chat.id, last_acked_sequence: state.acked, last_read_sequence: state.read,
      unread_from_sequence: state.unreadFrom === 0 ? null : state.unreadFrom,
      unread_count: unread.messages, mention_count: unread.mentions,
    };
  }

  #ownStatus(user: string, chat: string): StatusUpdate {
    return this.#statusOf(user, chat, this.#real(user, chat));
  }

  /** Returns a member's watermarks as they see them. */
  #real(
    user: string, chat: string,
  ): { acked: number; read: number; ackedAt: number; readAt: number } {
    const { acked, read, ackedAt, readAt } = this.data.state(user, chat);
    return read > acked ? { acked: read, read, ackedAt: readAt, readAt }
      : { acked, read, ackedAt, readAt };
  }

  #statusOf(user: string, chat: string, b = this.exposed(user, chat)): StatusUpdate {
    const at = (ms: number): string | null => (ms === 0 ? null : timeOf(ms));
    return {
      chat_id: chat, scope: 'member', user_id: user, last_acked_sequence: b.acked,
      last_read_sequence: b.read, acked_at: at(b.ackedAt), read_at: at(b.readAt),
    };
  }

  #publishStatus(user: string, id: string): void {
    const chat = this.data.chat(id);
    if (this.data.blocks.closed(chat)) return;
    const roster = this.data.roster(chat);
    const updates = roster.length > this.statusFanout ? this.statusesOf(chat)
      : [this.#statusOf(user, id)];
    this.#forSessions(roster, (session) => {
      for (const update of updates) session.raised(update);
    });
    this.#repeatLate(stateKey(user, id), chat, updates);
  }

  /** Publishes once more what was said before these statuses, if the server is to be late. */
  #repeatLate(key: string, chat: ChatRecord, updates: readonly StatusUpdate[]): void {
    const before = this.#published.get(key) ?? [];
    this.#published.set(key, updates);
    if (this.statusesLateMs === 0) return;
    const boot = this.#boot;
    this.clock.timer(this.statusesLateMs, () => {
      if (boot !== this.#boot) return;
      this.#forSessions(this.data.roster(chat), (session) => {
        for (const update of before) session.raisedLate(update);
      });
    });
  }

  #ownChanged(user: string, chat: string, by: string): void {
    const key = stateKey(user, chat);
    this.#ownBy.set(key, (this.#ownBy.get(key) ?? by) === by ? by : '');
    this.#tell(`own ${key}`, () => {
      const except = this.#ownBy.get(key);
      this.#ownBy.delete(key);
      for (const session of this.sessionsOf(user)) {
        if (session.id !== except) session.refreshOwn(chat);
      }
    });
  }

  /** Calls `publish` soon, and then at most once in an interval. */
  #tell(key: string, publish: () => void): void {
    if (this.#paused.has(key)) {
      this.#paused.set(key, 'again');
      return;
    }
    const boot = this.#boot;
    this.#paused.set(key, 'paused');
    this.clock.timer(0, () => {
      if (boot === this.#boot) publish();
    });
    this.clock.timer(this.#times.statusInterval, () => {
      if (boot !== this.#boot) return;
      const again = this.#paused.get(key) === 'again';
      this.#paused.delete(key);
      if (again) this.#tell(key, publish);
    });
  }

  markUnread(user: string, chat: string, from: number): void {
    this.data.member(user, chat);
    this.#flush();
    this.data.markUnread(user, chat, from);
    this.#ownChanged(user, chat, '');
  }

  setReceipts(user: string, chat: string, hides: boolean | undefined): void {
    if (chat !== '') this.data.member(user, chat);
    this.#flush();
    if (hides === undefined) this.data.hides.delete(stateKey(user, chat));
    else this.data.hides.set(stateKey(user, chat), hides);
    for (const session of this.sessionsOf(user)) session.receiptsChanged();
  }

  /** Sets who sees what the members of a chat read. */
  setPolicy(chat: ChatRecord, receipts: ChatRecord['receipts']): void {
    this.#flush();
    chat.receipts = receipts;
  }

  /** A user blocks another one, or does so no longer. */
  block(user: string, other: string, blocks: boolean): void {
    const pair = [...this.data.chats.values()].find((c) => c.type === 'direct'
      && c.members.has(user) && c.members.has(other));
    const before = pair && this.data.blocks.closed(pair);
    if (blocks) this.data.blocks.add(user, other, this.clock.now());
    else this.data.blocks.remove(user, other);
    if (!pair || this.data.blocks.closed(pair) === before) return;
    pair.version++;
    pair.membersVersion++;
    this.announceUpdate(pair);
    this.presence.turned(pair.id);
    if (before) this.recompute(pair);
  }

  // ---- Members ----------------------------------------------------------------------------------

  /** Tells the members' sessions, and those of `also`, of changes. */
  announce(chat: ChatRecord, changes: readonly Membership[], also: readonly string[] = []): void {
    this.#forSessions(this.data.roster(chat), (session) => {
      session.membersChanged(changes);
    });
    for (const user of also) {
      for (const session of this.sessionsOf(user)) session.membersChanged(changes);
    }
  }

  /** Each first member gets only their own membership. */
  announceChat(chat: ChatRecord): void {
    for (const m of this.data.roster(chat)) {
      for (const session of this.sessionsOf(m.user)) {
        session.membersChanged([membership(chat, m, 'added')]);
      }
    }
  }

  announceUpdate(chat: ChatRecord, receipts = false): void {
    this.#forSessions(this.data.roster(chat), (session) => {
      session.chatUpdated({ chat_id: chat.id, version: chat.version });
      if (receipts) session.policyChanged(chat.id);
    });
  }

  /** The new members have to receive what they may see. */
  welcome(chat: ChatRecord, users: readonly string[]): void {
    for (const user of users) {
      const { acked } = this.data.state(user, chat.id);
      if (acked >= headOf(chat)) continue;
      this.#mark(user, chat.id, acked + 1);
      for (const session of this.sessionsOf(user)) session.notify(chat.id, headOf(chat));
    }
  }

  /** Publishes the minimum of a chat that has grown large, if an author was left out in it. */
  grew(chat: ChatRecord): void {
    const isLarge = this.data.roster(chat).length > this.statusFanout;
    if (isLarge && this.#leftOut.delete(chat.id)) this.recompute(chat);
  }

  /** Publishes the statuses of a chat that a removal has made small, or whose minimum moved. */
  recompute(chat: ChatRecord): void {
    const updates = this.statusesOf(chat);
    this.#forSessions(this.data.roster(chat), (session) => {
      for (const update of updates) session.raised(update);
    });
  }

  typing(user: string, id: string): void {
    const { chat, member } = this.data.member(user, id);
    if (member.role === 'reader') throw new Refusal('DENIED', 'readers may not send');
    if (this.data.blocks.closed(chat)) throw closed();
    const roster = this.data.roster(chat);
    const now = this.clock.monotonic();
    const last = this.#typed.get(stateKey(user, id)) ?? Number.NEGATIVE_INFINITY;
    if (roster.length > this.statusFanout || now - last < this.#times.typingEvery) return;
    this.#typed.set(stateKey(user, id), now);
    this.#forSessions(roster.filter((m) => m.user !== user), (session) => {
      session.typing({ chat_id: id, user_id: user, expires_in_seconds: 6 });
    });
  }

  #forSessions(roster: readonly MemberRecord[], tell: (session: Session) => void): void {
    for (const { user } of roster) this.sessionsOf(user).forEach(tell);
  }

  // ---- Pending rows -----------------------------------------------------------------------------

  #mark(user: string, chat: string, first: number): void {
    const key = stateKey(user, chat);
    const before = this.data.pending.get(key);
    this.data.pending.set(key, before === undefined ? first : Math.min(before, first));
  }

  #markMissed(user: string, chat: ChatRecord): void {
    const { acked } = this.data.state(user, chat.id);
    if (isOpen(chat.members.get(user)?.intervals ?? []) && headOf(chat) > acked) {
      this.#mark(user, chat.id, acked + 1);
    }
  }

  #clear(user: string, chat: string): void {
    const key = stateKey(user, chat);
    const { acked } = this.data.state(user, chat);
    const first = this.data.pending.get(key);
    if (first === undefined || first > acked) return;
    if (acked >= headOf(this.data.chat(chat))) this.data.pending.delete(key);
    else this.data.pending.set(key, acked + 1);
  }
}

export function membership(
  chat: ChatRecord, m: MemberRecord, change: Membership['change'],
): Membership {
  return {
    chat_id: chat.id, user_id: m.user, change, role: change === 'removed' ? null : m.role,
    members_version: chat.membersVersion,
  };
}

function uuidV7(now: number, dice: Dice): string {
  const time = Math.floor(now).toString(16).padStart(12, '0');
  const more = [...dice.bytes(10)].map((b) => b.toString(16).padStart(2, '0')).join('');
  return `${time.slice(0, 8)}-${time.slice(8)}-7${more.slice(0, 3)}-a${more.slice(3, 6)}-` +
    more.slice(6, 18).padEnd(12, '0');
}
