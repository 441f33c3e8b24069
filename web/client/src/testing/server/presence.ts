// Who is online, and who is told: docs/presence.md.

import type { MemberPresence, Presence as Payload, PresenceResults } from '../../wire.gen.js';
import type { VirtualClock } from '../clock.js';
import { timeOf, type ChatRecord, type Data } from './data.js';
import { isOpen } from './intervals.js';
import { invalid, refusalOf } from './refusal.js';
import type { Session } from './session.js';

const lastsMs = 60_000;
const lingersMs = 30_000;
const periodMs = 1_000;
const pauseMs = 100;
const maxLooks = 20;
const maxNamed = 50;

/** What presence needs of its server. */
export interface PresenceHost {
  readonly data: Data;
  readonly clock: VirtualClock;
  /** Whether it is kept when users were last seen. */
  readonly lastSeen: boolean;
  sessions(): Iterable<Session>;
  sessionsOf(user: string): readonly Session[];
}

export class Presence {
  readonly #host: PresenceHost;
  /** When users left who count as online for a while longer. */
  readonly #left = new Map<string, number>();
  readonly #seen = new Map<string, number>();
  readonly #hidden = new Set<string>();
  readonly #changed = new Set<string>();
  #toldAt = Number.NEGATIVE_INFINITY;
  #dueAt = Number.POSITIVE_INFINITY;
  #cancel = (): void => undefined;

  constructor(host: PresenceHost) {
    this.#host = host;
  }

  /** The sessions are lost. */
  restart(): void {
    for (const { user } of this.#host.sessions()) this.#left.set(user, this.#host.clock.now());
    this.#changed.clear();
    this.#cancel();
    this.#dueAt = Number.POSITIVE_INFINITY;
  }

  /** Sets which chats the client of a session shows. It has to be a member of each. */
  look(session: Session, chats: readonly string[]): void {
    this.mayLook(session.user, chats, 'chat_ids');
    session.look(chats, this.#host.clock.now() + lastsMs);
    if (chats.length > 0) this.#later(pauseMs);
  }

  mayLook(user: string, chats: readonly string[], param: string): void {
    if (chats.length > maxLooks) throw invalid(param, 'names too many chats');
    for (const id of chats) this.#host.data.member(user, id);
  }

  /** A user has their first session. */
  came(user: string): void {
    if (!this.#left.delete(user)) this.#change(user);
  }

  /** A user has no session any more. */
  left(user: string): void {
    const { clock } = this.#host;
    const at = clock.now();
    this.#left.set(user, at);
    clock.timer(lingersMs, () => {
      if (this.#left.get(user) !== at) return;
      this.#left.delete(user);
      if (!this.#hidden.has(user)) this.#seen.set(user, at);
      this.#change(user);
    });
  }

  visible(user: string): boolean {
    return !this.#hidden.has(user);
  }

  setVisible(user: string, visible: boolean): void {
    if (visible === this.visible(user)) return;
    if (visible) this.#hidden.delete(user);
    else this.#hidden.add(user);
    this.#seen.delete(user);
    for (const session of this.#host.sessionsOf(user)) session.lookAgain();
    this.#change(user);
  }

  /** A chat was closed or opened: who looks at it gets all of its members. */
  turned(id: string): void {
    for (const session of this.#host.sessions()) session.lookAgain(id);
    this.#later(pauseMs);
  }

  /** Answers `GET /presence`. */
  results(user: string, chats: readonly string[]): PresenceResults {
    if (chats.length > maxLooks) throw invalid('chat_id', 'names too many chats');
    return {
      visible: this.visible(user),
      results: chats.map((id) => {
        try {
          return { ...this.#payload(user, this.#host.data.member(user, id).chat), problem: null };
        } catch (error) {
          const problem = refusalOf(error).detail();
          return { chat_id: id, online_count: null, members: null, problem };
        }
      }),
    };
  }

  /** Whether sessions show, or a user who left less than 30 s ago. */
  #isOnline(user: string): boolean {
    return this.#left.has(user) || this.#host.sessionsOf(user).length > 0;
  }

  #member(looker: string, user: string): MemberPresence {
    const shown = this.visible(looker) && this.visible(user);
    const online = shown && this.#isOnline(user);
    const seen = shown && !online && this.#host.lastSeen ? this.#seen.get(user) : undefined;
    return { user_id: user, online, last_seen_at: seen === undefined ? null : timeOf(seen) };
  }

  #payload(looker: string, chat: ChatRecord, only?: ReadonlySet<string>): Payload {
    const users = this.#host.data.roster(chat).map((m) => m.user);
    if (users.length > maxNamed) {
      const count = users.filter((user) => this.#isOnline(user)).length;
      return { chat_id: chat.id, online_count: count, members: null };
    }
    const closed = this.#host.data.blocks.closed(chat);
    return {
      chat_id: chat.id, online_count: null,
      members: users.filter((user) => only?.has(user) !== false)
        .map((user) => closed ? { user_id: user, online: false, last_seen_at: null }
          : this.#member(looker, user)),
    };
  }

  #change(user: string): void {
    this.#changed.add(user);
    this.#later(Math.max(pauseMs, this.#toldAt + periodMs - this.#host.clock.now()));
  }

  #later(ms: number): void {
    const { clock } = this.#host;
    if (clock.now() + ms >= this.#dueAt) return;
    this.#cancel();
    this.#dueAt = clock.now() + ms;
    this.#cancel = clock.timer(ms, () => {
      this.#dueAt = Number.POSITIVE_INFINITY;
      this.#tell();
    });
  }

  /** Tells all members to sessions that have just looked, and changes to the others. */
  #tell(): void {
    const now = this.#host.clock.now();
    this.#toldAt = now;
    const changed = new Set(this.#changed);
    this.#changed.clear();
    for (const session of this.#host.sessions()) {
      for (const { id, fresh } of session.looks(now)) {
        const chat = this.#host.data.chats.get(id);
        if (!chat || !isOpen(chat.members.get(session.user)?.intervals ?? [])) continue;
        if (!fresh && !this.visible(session.user)) continue;
        const payload = this.#payload(session.user, chat, fresh ? undefined : changed);
        if (!fresh && payload.members?.length === 0) continue;
        if (!fresh && !payload.members && changed.size === 0) continue;
        session.present(payload);
      }
    }
  }
}
