// What the fake server stores. It does what a storage backend of the real server does.

import type { Chat, Member, Message } from '../../wire.gen.js';
import { mayRelate } from './annotations.js';
import { Blocks, closed } from './blocks.js';
import { contains, gapOf, isOpen, joined, left, pieces, type Interval } from './intervals.js';
import { invalidSequence, Refusal } from './refusal.js';

export interface MemberRecord {
  readonly user: string;
  role: string;
  intervals: readonly Interval[];
  joinedAt: number;
  metadata: Member['metadata'];
}

export interface ChatRecord {
  readonly id: string;
  readonly type: string;
  name: string;
  metadata: Chat['metadata'];
  version: number;
  /** Who sees what the members read. */
  receipts: 'optional' | 'required' | 'off';
  readonly history: string;
  readonly createdAt: number;
  /** What the request that made the chat said. */
  readonly creation: string;
  membersVersion: number;
  /** Message n is at n − 1. */
  readonly messages: Message[];
  /** The number of the life that stored message n is at n − 1. */
  readonly lives: number[];
  /** Whom changed messages named when they were stored. That is what counts. */
  readonly named: Map<number, Message['mentions']>;
  /** The sequence of each sender and client_message_id. */
  readonly keys: Map<string, number>;
  /** The members and the former ones. */
  readonly members: Map<string, MemberRecord>;
}

export interface StateRecord {
  acked: number;
  read: number;
  unreadFrom: number;
  ackedAt: number;
  readAt: number;
  /** What is read from here on is hidden from others; 0: nothing. */
  hiddenFrom: number;
  /** What `readAt` was then. */
  shownAt: number;
}

/** A wish to raise watermarks. */
export interface Raise {
  readonly acked: number;
  readonly read: number;
  /** If it is not 0, `acked` counts only if everything before it is acknowledged. */
  readonly ackedFrom?: number;
  readonly readWithinAcked?: boolean;
}

export type Kind = 'message' | 'system' | 'edit' | 'redact' | 'react' | 'pin' | 'control';

export interface Draft {
  readonly chat: string;
  readonly key: string;
  readonly content: string;
  readonly contentType: string;
  readonly kind: Kind;
  /** The message that this one changes, reacts to or pins, or the first of `list`, else null. */
  readonly relation: number | null;
  /** The messages of a redaction of several. */
  readonly list: readonly number[] | null;
  /** Of a reaction, else ''. */
  readonly emoji: string;
  readonly mentions: Message['mentions'];
  readonly attachments: Message['attachments'];
  readonly metadata: Message['metadata'];
  readonly seen: number | null;
  readonly sendBy: number | null;
}

export interface Page {
  readonly messages: Message[];
  readonly gaps: ReturnType<typeof gapOf>[];
  readonly hasMore: boolean;
  readonly next: number;
}

const nothing: StateRecord = {
  acked: 0, read: 0, unreadFrom: 0, ackedAt: 0, readAt: 0, hiddenFrom: 0, shownAt: 0,
};

export class Data {
  readonly chats = new Map<string, ChatRecord>();
  readonly states = new Map<string, StateRecord>();
  /** Who hides what they read, by user and chat, and with '' in all chats. */
  readonly hides = new Map<string, boolean>();
  /** Whom users have blocked. */
  blocks = new Blocks();
  /** Who is banned from groups. */
  bans = new Blocks();
  /** The first sequence that waits, by user and chat. */
  readonly pending = new Map<string, number>();
  readonly lives: { readonly number: number; readonly name: string }[] = [];

  /** Returns a copy that shares nothing that changes. */
  copy(): Data {
    const copy = new Data();
    for (const [id, c] of this.chats) {
      copy.chats.set(id, {
        ...c, messages: [...c.messages], lives: [...c.lives], keys: new Map(c.keys),
        named: new Map(c.named),
        members: new Map([...c.members].map(([user, m]) => [user, { ...m }])),
      });
    }
    for (const [key, state] of this.states) copy.states.set(key, { ...state });
    for (const [key, hides] of this.hides) copy.hides.set(key, hides);
    copy.blocks = this.blocks.copy();
    copy.bans = this.bans.copy();
    for (const [key, first] of this.pending) copy.pending.set(key, first);
    copy.lives.push(...this.lives);
    return copy;
  }

  beginLife(name: string): void {
    this.lives.push({ number: (this.lives.at(-1)?.number ?? 0) + 1, name });
  }

  get incarnation(): string {
    return this.lives.at(-1)?.name ?? '';
  }

  chat(id: string): ChatRecord {
    const found = this.chats.get(id);
    if (found === undefined) throw new Refusal('NOT_FOUND', `there is no chat ${id}`);
    return found;
  }

  /** Returns the chat and its member, or throws NOT_FOUND or NOT_A_MEMBER. */
  member(user: string, id: string): { chat: ChatRecord; member: MemberRecord } {
    const chat = this.chat(id);
    const member = chat.members.get(user);
    if (member === undefined || !isOpen(member.intervals)) throw notMember(user, id);
    return { chat, member };
  }

  /** Returns the current members, by id. */
  roster(chat: ChatRecord): MemberRecord[] {
    return [...chat.members.values()].filter((m) => isOpen(m.intervals))
      .sort((a, b) => (a.user < b.user ? -1 : 1));
  }

  /** Returns the chats of a user, by id. */
  chatsOf(user: string): ChatRecord[] {
    return [...this.chats.values()]
      .filter((c) => isOpen(c.members.get(user)?.intervals ?? []))
      .sort((a, b) => (a.id < b.id ? -1 : 1));
  }

  /** Returns the chats of a user, the latest activity first. */
  recentOf(user: string): ChatRecord[] {
    return this.chatsOf(user).sort((a, b) => activity(b) - activity(a) || (a.id < b.id ? -1 : 1));
  }

  state(user: string, chat: string): StateRecord {
    return this.states.get(stateKey(user, chat)) ?? nothing;
  }

  /** Whether what a user reads in a chat is hidden. */
  hidden(user: string, chat: string): boolean {
    const policy = this.chats.get(chat)?.receipts ?? 'optional';
    if (policy !== 'optional') return policy === 'off';
    return this.hides.get(stateKey(user, chat)) ?? this.hides.get(stateKey(user, '')) ?? false;
  }

  /** Returns a state as others see it. */
  shown(user: string, chat: string): StateRecord {
    const s = this.state(user, chat);
    return s.hiddenFrom === 0 ? s : { ...s, read: s.hiddenFrom - 1, readAt: s.shownAt };
  }

  /** Throws INVALID_SEQUENCE if the raise is above the head. Returns whether a mark moved. */
  advance(user: string, id: string, raise: Raise, now: number): boolean {
    const head = headOf(this.chat(id));
    if (raise.acked > head) throw invalidSequence('last_acked_sequence', above(raise.acked, head));
    if (raise.read > head) throw invalidSequence('last_read_sequence', above(raise.read, head));
    const before = this.state(user, id);
    const joins = (raise.ackedFrom ?? 0) === 0 || before.acked + 1 >= (raise.ackedFrom ?? 0);
    const acked = joins ? Math.max(before.acked, raise.acked) : before.acked;
    const target = raise.readWithinAcked === true ? Math.min(raise.read, acked) : raise.read;
    const read = Math.max(before.read, target);
    if (acked === before.acked && read === before.read) return false;
    const moved = read !== before.read;
    const hidden = this.hidden(user, id);
    const hides = !moved || (hidden && before.hiddenFrom > 0)
      ? { hiddenFrom: before.hiddenFrom, shownAt: before.shownAt }
      : hidden ? { hiddenFrom: before.read + 1, shownAt: before.readAt }
        : { hiddenFrom: 0, shownAt: 0 };
    this.states.set(stateKey(user, id), {
      ...hides, acked, read, unreadFrom: moved ? 0 : before.unreadFrom,
      ackedAt: acked === before.acked ? before.ackedAt : now,
      readAt: moved ? now : before.readAt,
    });
    return true;
  }

  markUnread(user: string, id: string, from: number): void {
    const head = headOf(this.chat(id));
    if (from > head) throw invalidSequence('from_sequence', above(from, head));
    const before = this.state(user, id);
    const unreadFrom = from <= before.read ? from : 0;
    if (unreadFrom === before.unreadFrom) return;
    this.states.set(stateKey(user, id), { ...before, unreadFrom });
  }

  unread(user: string, chat: ChatRecord): { messages: number; mentions: number } {
    const state = this.state(user, chat.id);
    const intervals = chat.members.get(user)?.intervals ?? [];
    const count = { messages: 0, mentions: 0 };
    const after = state.unreadFrom === 0 ? state.read : state.unreadFrom - 1;
    for (let n = after; n < chat.messages.length; n++) {
      const m = chat.messages[n];
      if (m?.kind !== 'message' || m.sender_id === user) continue;
      if (!contains(intervals, n + 1)) continue;
      count.messages++;
      const mentions = chat.named.get(n + 1) ?? m.mentions;
      if (mentions !== null && (mentions.all || mentions.user_ids.includes(user))) {
        count.mentions++;
      }
    }
    return count;
  }

  /** Stores a message, or returns the one that was stored before under the same key. */
  append(
    user: string, draft: Draft, messageId: string, now: number, backend: boolean,
  ): { message: Message; duplicate: boolean } {
    const chat = this.chat(draft.chat);
    const before = this.sent(user, draft);
    if (before !== undefined) return { message: before, duplicate: true };
    this.mustSend(user, chat, backend && draft.kind === 'redact');
    const { relation, emoji, list } = draft;
    const named = list ?? (relation === null ? [] : [relation]);
    for (const [i, target] of named.entries()) {
      const field = list === null ? 'relation.sequence' : `relation.sequences[${i}]`;
      mayRelate(user, draft, chat, target, backend, field);
    }
    const says: Says = {
      content: draft.content, content_type: draft.contentType, mentions: draft.mentions,
      attachments: draft.attachments, metadata: draft.metadata,
    };
    const message: Message = {
      chat_id: chat.id, sequence: headOf(chat) + 1, message_id: messageId, sender_id: user,
      client_message_id: draft.key, ...relation === null ? says : nothingSaid, kind: draft.kind,
      relation: relation === null ? null
        : { sequence: relation, sequences: list, emoji: emoji === '' ? null : emoji, target: null },
      revision: null, created_at: timeOf(now), members_version: chat.membersVersion,
    };
    chat.messages.push(message);
    chat.lives.push(this.lives.at(-1)?.number ?? 0);
    chat.keys.set(keyOf(user, draft.key), message.sequence);
    if (changes(message)) for (const target of named) revise(chat, target, message, says);
    return { message, duplicate: false };
  }

  /** Throws unless the user may send to the chat. A backend redacts also in a closed one. */
  mustSend(user: string, chat: ChatRecord, redacts = false): void {
    const member = chat.members.get(user);
    if (member === undefined || !isOpen(member.intervals)) throw notMember(user, chat.id);
    if (member.role === 'reader') throw new Refusal('DENIED', 'readers may not send');
    if (!redacts && this.blocks.closed(chat)) throw closed();
  }

  /** Returns the message of a key. Throws CONFLICT if it is another one than the draft. */
  sent(user: string, draft: Draft): Message | undefined {
    const chat = this.chat(draft.chat);
    const sequence = chat.keys.get(keyOf(user, draft.key));
    if (sequence === undefined) return undefined;
    const first = messageAt(chat, sequence);
    if (!isSame(chat, first, draft)) {
      throw new Refusal('CONFLICT', 'the client_message_id was used for another message');
    }
    return first;
  }

  /** Returns a message as a user gets it: a change has its target, if the user may see that. */
  served(user: string, message: Message): Message {
    const { relation } = message;
    if (relation === null || relation.sequences !== null || !changes(message)) return message;
    const chat = this.chat(message.chat_id);
    const sees = contains(chat.members.get(user)?.intervals ?? [], relation.sequence);
    const target = sees ? messageAt(chat, relation.sequence) : null;
    return { ...message, relation: { ...relation, target } };
  }

  /** Returns at most `limit` messages after a sequence, and the gaps between them. */
  after(user: string, id: string, after: number, limit: number): Page {
    const { chat, member } = this.member(user, id);
    const page = { messages: [] as Message[], gaps: [] as Page['gaps'], next: after };
    for (const piece of pieces(member.intervals, after + 1, headOf(chat))) {
      if (page.messages.length >= limit) break;
      if (!piece.visible) {
        page.gaps.push(gapOf(id, piece));
        page.next = piece.to;
        continue;
      }
      const to = Math.min(piece.to, piece.from + limit - page.messages.length - 1);
      page.messages.push(...chat.messages.slice(piece.from - 1, to)
        .map((message) => this.served(user, message)));
      page.next = to;
      if (to < piece.to) break;
    }
    return { ...page, hasMore: page.next < headOf(chat) };
  }

  /** Returns at most `limit` messages before a sequence, and the gaps between them. */
  before(user: string, id: string, before: number, limit: number): Page {
    const { chat, member } = this.member(user, id);
    const page = { messages: [] as Message[], gaps: [] as Page['gaps'], next: before };
    for (const piece of pieces(member.intervals, 1, before - 1).reverse()) {
      if (page.messages.length >= limit) break;
      if (!piece.visible) {
        page.gaps.unshift(gapOf(id, piece));
        page.next = piece.from;
        continue;
      }
      const from = Math.max(piece.from, piece.to - (limit - page.messages.length) + 1);
      page.messages.unshift(...chat.messages.slice(from - 1, piece.to)
        .map((message) => this.served(user, message)));
      page.next = from;
      if (from > piece.from) break;
    }
    return { ...page, hasMore: page.next > 1 };
  }

  addMember(chat: ChatRecord, user: string, role: string, now: number): boolean {
    const former = chat.members.get(user);
    if (former !== undefined && isOpen(former.intervals)) return false;
    const head = headOf(chat);
    if (former === undefined && chat.history === 'since_join') {
      this.advance(user, chat.id, { acked: head, read: head }, now);
    }
    chat.members.set(user, {
      user, role, joinedAt: now, metadata: null,
      intervals: joined(former?.intervals ?? [], head, chat.history, former !== undefined),
    });
    return true;
  }

  removeMember(chat: ChatRecord, member: MemberRecord): void {
    member.intervals = left(member.intervals, headOf(chat));
    member.metadata = null;
    this.pending.delete(stateKey(member.user, chat.id));
    chat.membersVersion++;
  }

  /** Returns up to where a position of another life is one of the present data. */
  shared(id: string, incarnation: string, sequence: number): number {
    const chat = this.chats.get(id);
    const life = this.lives.find((l) => l.name === incarnation);
    if (chat === undefined || life === undefined) return 0;
    let n = Math.min(sequence, headOf(chat));
    while (n > 0 && (chat.lives[n - 1] ?? 0) > life.number) n--;
    return n;
  }
}

type Says =
  Pick<Message, 'content' | 'content_type' | 'mentions' | 'attachments' | 'metadata'>;

/** What a relation says itself, and what a redaction leaves of a message. */
const nothingSaid: Says = {
  content: '', content_type: 'text/plain', mentions: null, attachments: [], metadata: null,
};

/** Whether a message changes the one to which it is related. */
const changes = ({ kind }: Message): boolean => kind === 'edit' || kind === 'redact';

/** Changes a message. Messages are shared with backups, so another one takes its place. */
function revise(chat: ChatRecord, sequence: number, by: Message, says: Says): void {
  const target = messageAt(chat, sequence);
  if (target.revision?.kind === 'redact') return;
  if (!chat.named.has(sequence)) chat.named.set(sequence, target.mentions);
  const { kind, sender_id, created_at: at } = by;
  chat.messages[sequence - 1] = {
    ...target, ...kind === 'redact' ? nothingSaid : says,
    revision: { sequence: by.sequence, kind, by: sender_id, revised_at: at },
  };
}

/** Whether a message may be what a draft became. */
function isSame(chat: ChatRecord, first: Message, draft: Draft): boolean {
  const list = first.relation?.sequences ?? null;
  if (first.kind !== draft.kind || (first.relation?.sequence ?? null) !== draft.relation
    || JSON.stringify(list) !== JSON.stringify(draft.list)) {
    return false;
  }
  if (draft.relation !== null && draft.kind !== 'edit') {
    return (first.relation?.emoji ?? '') === draft.emoji;
  }
  const says = draft.relation === null ? first : messageAt(chat, draft.relation);
  const changed = says.revision?.sequence ?? 0;
  if (changed !== (draft.relation === null ? 0 : first.sequence)) return true;
  const same = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
  return says.content === draft.content && says.content_type === draft.contentType
    && same(says.mentions, draft.mentions) && same(says.attachments, draft.attachments)
    && same(says.metadata, draft.metadata);
}

export function stateKey(user: string, chat: string): string {
  return `${user} ${chat}`;
}

function keyOf(user: string, key: string): string {
  return `${user} ${key}`;
}

export function headOf(chat: ChatRecord): number {
  return chat.messages.length;
}

export function messageAt(chat: ChatRecord, sequence: number): Message {
  const found = chat.messages[sequence - 1];
  if (found === undefined) throw new Error(`${chat.id} has no message ${String(sequence)}`);
  return found;
}

export function activity(chat: ChatRecord): number {
  const last = chat.messages.at(-1);
  return last === undefined ? chat.createdAt : Date.parse(last.created_at);
}

export function timeOf(ms: number): string {
  return new Date(ms).toISOString();
}

export function notMember(user: string, chat: string): Refusal {
  return new Refusal('NOT_A_MEMBER', `${user} is not a member of the chat ${chat}`);
}

function above(n: number, head: number): string {
  return `is ${String(n)}, but the chat ends at ${String(head)}`;
}
