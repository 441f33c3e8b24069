// The REST calls of the fake server.

import type {
  AckResults, BanList, BlockList, Chat, ChatList, DeliveryState, DeliveryStatus, Member, MemberList,
  Message, MessageList, Pagination, PinList, ReactionList, StatusResults,
} from '../../wire.gen.js';
import { mayPin, reactionsTo, standing } from './annotations.js';
import type { Auth, Identity } from './auth.js';
import { closed, type Times } from './blocks.js';
import { membership, type Core } from './core.js';
import {
  activity, headOf, messageAt, stateKey, timeOf, type ChatRecord, type MemberRecord, type Page,
} from './data.js';
import * as decode from './decode.js';
import { contains, isOpen } from './intervals.js';
import { invalid, invalidSequence, Refusal, refusalOf } from './refusal.js';

/** A request. Names of headers are in lower case. */
export interface Request {
  readonly method: string;
  readonly url: URL;
  readonly headers: ReadonlyMap<string, string>;
  readonly body: string;
}

/** A whole answer. */
export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

interface Call {
  readonly who: Identity;
  readonly request: Request;
  readonly query: URLSearchParams;
  /** The variable parts of the path. */
  readonly path: readonly string[];
}

interface Route {
  readonly method: string;
  readonly path: RegExp;
  /** What the call needs: a user, or also a backend without one. `ticket`: a ticket is enough. */
  readonly user: 'needed' | 'optional' | 'ticket';
  readonly run: (call: Call) => { status?: number; body?: object };
}

/** With reactions, the messages of a page are within so many sequences. */
const countedRange = 200;

export class Rest {
  readonly #core: Core;
  readonly #auth: Auth;
  readonly #routes: readonly Route[];
  #requests = 0;

  constructor(core: Core, auth: Auth) {
    this.#core = core;
    this.#auth = auth;
    this.#routes = this.#table();
  }

  /** Answers a request whose path begins after `/api/v1`. */
  answer(request: Request, path: string): Answer {
    const requestId = `R${String(++this.#requests)}`;
    const answer = ((): Answer => {
      try {
        return this.#answer(request, path, requestId);
      } catch (error) {
        return problem(refusalOf(error), requestId);
      }
    })();
    return {
      ...answer,
      headers: { ...answer.headers, 'tidemark-incarnation': this.#core.incarnation },
    };
  }

  #answer(request: Request, path: string, requestId: string): Answer {
    const there = this.#routes.filter((r) => r.path.test(path));
    if (there.length === 0) throw new Refusal('NOT_FOUND', 'there is no such path');
    const route = there.find((r) => r.method === request.method);
    if (route === undefined) throw new Refusal('METHOD_NOT_ALLOWED', 'wrong method');
    const query = request.url.searchParams;
    const who = route.user === 'ticket' ? this.#auth.beacon(request.headers, query)
      : this.#auth.header(request.headers);
    if (who.user === '' && route.user !== 'optional') throw invalid('X-User-ID', 'is missing');
    const found = (route.path.exec(path) ?? []).slice(1).map(decodeURIComponent);
    const { status = 200, body } = route.run({ who, request, query, path: found });
    const headers: Record<string, string> = {
      'x-request-id': requestId, 'cache-control': 'no-store',
    };
    if (body === undefined) return { status: 204, headers, body: '' };
    headers['content-type'] = 'application/json';
    return { status, headers, body: JSON.stringify(body) };
  }

  #table(): Route[] {
    const route = (
      method: string, path: string, run: Route['run'], user: Route['user'] = 'needed',
    ): Route => ({
      method, user, run, path: new RegExp(`^${path.replaceAll('*', '([^/]+)')}$`),
    });
    return [
      route('GET', '/chats', (c) => this.#listChats(c)),
      route('POST', '/chats', (c) => this.#createChat(c), 'optional'),
      route('GET', '/chats/*', (c) => this.#getChat(c), 'optional'),
      route('PATCH', '/chats/*', (c) => this.#updateChat(c), 'optional'),
      route('GET', '/chats/*/members', (c) => this.#listMembers(c), 'optional'),
      route('POST', '/chats/*/members', (c) => this.#addMembers(c), 'optional'),
      route('PATCH', '/chats/*/members/*', (c) => this.#updateMember(c), 'optional'),
      route('DELETE', '/chats/*/members/*', (c) => this.#removeMember(c), 'optional'),
      route('GET', '/chats/*/bans', (c) => this.#listBans(c), 'optional'),
      route('PUT', '/chats/*/bans/*', (c) => this.#ban(c), 'optional'),
      route('DELETE', '/chats/*/bans/*', (c) => this.#unban(c), 'optional'),
      route('GET', '/blocks', (c) => this.#listBlocks(c)),
      route('PUT', '/blocks/*', (c) => this.#block(c, true)),
      route('DELETE', '/blocks/*', (c) => this.#block(c, false)),
      route('GET', '/chats/*/messages', (c) => this.#listMessages(c)),
      route('POST', '/chats/*/messages', (c) => this.#sendMessage(c)),
      route('GET', '/chats/*/messages/*/reactions', (c) => this.#listReactions(c)),
      route('GET', '/chats/*/pins', (c) => this.#listPins(c)),
      route('GET', '/chats/*/delivery-state', (c) => this.#getState(c)),
      route('PATCH', '/chats/*/delivery-state', (c) => this.#updateState(c)),
      route('PUT', '/chats/*/delivery-state/unread', (c) => this.#markUnread(c)),
      route('GET', '/chats/*/delivery-status', (c) => this.#deliveryStatus(c)),
      route('GET', '/delivery-states', (c) => this.#listStates(c)),
      route('POST', '/chats/*/typing', (c) => this.#typing(c)),
      route('GET', '/statuses', (c) => this.#listStatuses(c)),
      route('GET', '/unread', (c) => this.#unread(c)),
      route('GET', '/pending', (c) => this.#listPending(c)),
      route('GET', '/presence', ({ who, query }) => (
        { body: this.#core.presence.results(who.user, query.getAll('chat_id')) })),
      route('PUT', '/presence/settings', (c) => this.#hide(c)),
      route('GET', '/receipts/settings', ({ who, query }) => (
        { body: this.#receipts(who.user, query.get('chat_id') ?? undefined) })),
      route('PUT', '/receipts/settings', (c) => this.#setReceipts(c)),
      route('PUT', '/sessions/*/look', (c) => this.#look(c)),
      route('GET', '/sessions', (c) => this.#listSessions(c)),
      route('DELETE', '/sessions', (c) => this.#endSessions(c)),
      route('DELETE', '/sessions/*', (c) => this.#endSession(c)),
      route('POST', '/acks', (c) => this.#acks(c), 'ticket'),
      route('POST', '/sync', (c) => (
        { body: this.#core.sync(c.who.user, decode.sync(bodyOf(c.request))) })),
      route('POST', '/tickets', (c) => this.#ticket(c)),
      route('POST', '/tokens', (c) => this.#token(c), 'optional'),
    ];
  }

  // ---- Chats ------------------------------------------------------------------------------------

  #listChats({ who, query }: Call): { body: ChatList } {
    const limit = decode.limitOf(query);
    const token = decode.decodeToken('c', query);
    const [millis = '', id = ''] = token.split('|', 2);
    const all = this.#core.data.recentOf(who.user);
    const from = token === '' ? 0 : all.findIndex((c) => activity(c) < Number(millis) ||
      (activity(c) === Number(millis) && c.id > id));
    const rest = from < 0 ? [] : all.slice(from);
    const last = rest[limit - 1];
    const more = rest.length > limit && last !== undefined;
    return {
      body: {
        chats: rest.slice(0, limit).map((c) => this.#view(who, c)),
        pagination: pagination(more
          ? decode.encodeToken('c', `${String(activity(last))}|${last.id}`) : null),
      },
    };
  }

  #createChat({ who, request }: Call): { status: number; body: Chat } {
    const f = bodyOf(request);
    const type = decode.text(f, 'type');
    if (type === undefined) throw invalid('type', 'is missing');
    if (type !== 'direct' && type !== 'group') throw invalid('type', 'must be direct or group');
    const named = decode.ids(f, 'member_ids');
    const name = decode.text(f, 'name') ?? '';
    const metadata = emptyToNull(decode.object(f, 'metadata', 4096));
    const chatId = decode.id(f, 'chat_id');
    const key = decode.id(f, 'client_chat_id');
    const history = decode.text(f, 'history') ?? 'full';
    if (history !== 'full' && history !== 'since_join') throw invalid('history', 'is unknown');
    if (named === undefined) throw invalid('member_ids', 'is missing');
    if (type === 'group' && chatId === undefined && key === undefined) {
      throw invalid('client_chat_id', 'is missing');
    }
    if (chatId !== undefined && /^chat_[a-z2-7]{26}$/.test(chatId)) {
      throw invalid('chat_id', 'is reserved');
    }
    if (chatId !== undefined && key !== undefined) {
      throw new Refusal('INVALID', 'chat_id and client_chat_id exclude each other');
    }
    const creator = who.backend && who.user === '' ? [] : [who.user];
    const members = [...new Set([...creator, ...named])].sort();
    if (decode.bytes(name) > 256) throw new Refusal('TOO_LARGE', 'name is too large', 'name');
    if (type === 'direct' && members.length !== 2) {
      throw new Refusal('INVALID', 'a direct chat has two members');
    }
    if (members.length > 1001) throw invalid('member_ids', 'names too many users');
    const creation = JSON.stringify([who.user, type, history, name, metadata, members]);
    const id = chatId ?? digest(key === undefined ? `${type} ${members.join(' ')}`
      : `${who.user} ${key}`);
    const { chats } = this.#core.data;
    const pair = type === 'direct' ? [...chats.values()].find((c) => c.type === 'direct' &&
      members.every((m) => c.members.has(m))) : undefined;
    const existing = pair ?? chats.get(id);
    const { blocks } = this.#core.data;
    const apart = type === 'direct' ? blocks.apart(members[0] ?? '', members[1] ?? '')
      : who.user !== '' && members.some((m) => blocks.apart(who.user, m));
    if (apart && !pair && existing?.creation !== creation) throw closed();
    if (existing !== undefined) {
      if (pair === undefined && existing.creation !== creation) {
        throw new Refusal('CONFLICT', 'the id is used by another chat',
          chatId === undefined ? 'client_chat_id' : 'chat_id');
      }
      if (who.user !== '') this.#core.data.member(who.user, existing.id);
      return { status: 200, body: this.#view(who, existing) };
    }
    const now = this.#core.clock.now();
    const chat: ChatRecord = {
      id, type, name, metadata, version: 1, receipts: 'optional', history, createdAt: now,
      creation, membersVersion: 1, messages: [], lives: [], named: new Map(), keys: new Map(),
      members: new Map(members.map((user) => [user, {
        user, role: user === who.user ? 'owner' : 'member', joinedAt: now, metadata: null,
        intervals: [{ from: 1, to: 0 }],
      }])),
    };
    chats.set(id, chat);
    this.#core.announceChat(chat);
    return { status: 201, body: this.#view(who, chat) };
  }

  #getChat({ who, path }: Call): { body: Chat } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const chat = who.user === '' ? this.#core.data.chat(id)
      : this.#core.data.member(who.user, id).chat;
    return { body: this.#view(who, chat) };
  }

  #updateChat({ who, path, request }: Call): { body: Chat } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const f = bodyOf(request);
    const name = decode.text(f, 'name');
    const metadata = decode.object(f, 'metadata', 4096);
    const receipts = decode.text(f, 'read_receipts');
    if (receipts !== undefined && receipts !== 'optional' && receipts !== 'required'
      && receipts !== 'off') {
      throw invalid('read_receipts', 'is unknown');
    }
    if (name === undefined && metadata === undefined && receipts === undefined) {
      throw invalid('name', 'is needed');
    }
    if (decode.bytes(name ?? '') > 256) throw new Refusal('TOO_LARGE', 'name', 'name');
    if (receipts !== undefined && !who.backend) {
      this.#core.data.member(who.user, id);
      throw new Refusal('DENIED', 'only a backend may do that', 'read_receipts');
    }
    const chat = name === undefined && metadata === undefined
      ? this.#core.data.chat(id) : this.#manage(who, id).chat;
    const said = () => JSON.stringify([chat.name, chat.metadata, chat.receipts]);
    const before = said();
    if (name !== undefined) chat.name = name;
    if (metadata !== undefined) chat.metadata = emptyToNull(metadata);
    if (receipts !== undefined) this.#core.setPolicy(chat, receipts);
    if (said() !== before) chat.version++;
    this.#core.announceUpdate(chat, receipts !== undefined);
    return { body: this.#view(who, chat) };
  }

  /** Returns a group and the caller's membership, if they may change the group. */
  #manage(who: Identity, id: string): { chat: ChatRecord; member: MemberRecord | undefined } {
    const chat = this.#core.data.chat(id);
    const found = chat.members.get(who.user);
    const member = isOpen(found?.intervals ?? []) ? found : undefined;
    if (member === undefined && !who.backend) this.#core.data.member(who.user, id);
    if (chat.type === 'direct') throw new Refusal('DENIED', 'a direct chat cannot be changed');
    if (!who.backend && !manages(member?.role ?? '', 'member')) {
      throw new Refusal('DENIED', 'only an owner or an admin may do that');
    }
    return { chat, member };
  }

  #view(who: Identity, c: ChatRecord): Chat {
    const { data } = this.#core;
    const own = who.user !== '';
    const state = data.state(who.user, c.id);
    const unread = data.unread(who.user, c);
    const member = c.members.get(who.user);
    const last = c.messages.filter(({ kind }) => kind === 'message' || kind === 'system').at(-1);
    const visible = own && last !== undefined && (member?.intervals ?? []).some(
      (i) => last.sequence >= i.from && (i.to === 0 || last.sequence <= i.to));
    const other = c.type === 'direct' && own
      ? [...c.members.keys()].find((user) => user !== who.user) : undefined;
    const peer = other === undefined ? undefined : this.#core.exposedTo(who.user, other, c.id);
    return {
      chat_id: c.id, type: c.type, name: c.name, metadata: c.metadata, version: c.version,
      history: c.history, created_at: timeOf(c.createdAt),
      role: own && isOpen(member?.intervals ?? []) ? member?.role ?? null : null,
      member_count: data.roster(c).length, head_sequence: headOf(c),
      floor_sequence: 1, read_receipts: c.receipts,
      keep_days: null, hold: who.backend ? false : null,
      closed: data.blocks.closed(c),
      last_acked_sequence: own ? state.acked : null, last_read_sequence: own ? state.read : null,
      unread_count: own ? unread.messages : null, mention_count: own ? unread.mentions : null,
      unread_from_sequence: own && state.unreadFrom > 0 ? state.unreadFrom : null,
      peer: other === undefined || peer === undefined ? null : {
        user_id: other, last_acked_sequence: peer.acked, last_read_sequence: peer.read,
      },
      last_message: visible ? last : null,
    };
  }

  // ---- Members ----------------------------------------------------------------------------------

  #listMembers({ who, path, query }: Call): { body: MemberList } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const limit = decode.limitOf(query);
    const after = decode.decodeToken('m', query);
    const chat = who.user === '' ? this.#core.data.chat(id)
      : this.#core.data.member(who.user, id).chat;
    return { body: this.#members(chat, after, limit) };
  }

  #members(chat: ChatRecord, after: string, limit: number): MemberList {
    const rest = this.#core.data.roster(chat).filter((m) => m.user > after);
    return {
      members_version: chat.membersVersion, members: rest.slice(0, limit).map(memberOf),
      pagination: page(rest, limit, 'm', (m) => m.user),
    };
  }

  #addMembers({ who, path, request }: Call): { body: MemberList } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const f = bodyOf(request);
    const users = [...new Set(decode.ids(f, 'user_ids') ?? [])].sort();
    const role = roleOf(f) ?? 'member';
    if (users.length === 0) throw invalid('user_ids', 'must name at least one user');
    const { chat, member } = this.#manage(who, id);
    if (!who.backend) grant(member, role);
    this.#mayAdd(who, chat, users);
    const now = this.#core.clock.now();
    const added = users.filter((user) => this.#core.data.addMember(chat, user, role, now));
    if (added.length > 0) chat.membersVersion++;
    // Sessions know the chat first. So the membership makes them send its statuses.
    this.#core.welcome(chat, users);
    this.#core.announce(chat, added.flatMap((user) => {
      const m = chat.members.get(user);
      return m === undefined ? [] : [membership(chat, m, 'added')];
    }));
    if (added.length > 0) this.#core.grew(chat);
    return { body: this.#members(chat, '', 1000) };
  }

  #updateMember({ who, path, request }: Call): { body: object } {
    const [id = '', user = ''] = path;
    decode.checkId('chat_id', id);
    decode.checkId('user_id', user);
    const f = bodyOf(request);
    const role = roleOf(f);
    const metadata = decode.object(f, 'metadata', 1024);
    if (role === undefined && metadata === undefined) throw invalid('role', 'is needed');
    const { chat, member } = this.#manage(who, id);
    const target = chat.members.get(user);
    if (target === undefined || !isOpen(target.intervals)) {
      throw new Refusal('NOT_FOUND', 'the user is no member', 'user_id');
    }
    if (!who.backend) {
      if (target !== member && !manages(member?.role ?? '', target.role)) {
        throw new Refusal('DENIED', 'an admin may not change an owner or an admin');
      }
      if (role !== undefined && role !== target.role) grant(member, role);
    }
    const changes = [membership(chat, target, role === undefined ? 'metadata_changed'
      : 'role_changed')];
    const before = JSON.stringify([target.role, target.metadata]);
    const heir = target.role === 'owner' && role !== undefined && role !== 'owner'
      ? this.#heir(chat, user, true) : undefined;
    if (role !== undefined) target.role = role;
    if (metadata !== undefined) target.metadata = emptyToNull(metadata);
    if (JSON.stringify([target.role, target.metadata]) !== before) chat.membersVersion++;
    const told = changes.map((c) => (
      { ...c, role: target.role, members_version: chat.membersVersion }));
    this.#core.announce(chat, heir === undefined ? told
      : [...told, membership(chat, heir, 'role_changed')]);
    return { body: { members_version: chat.membersVersion, member: memberOf(target) } };
  }

  /** Makes another member an owner if the user is the last one. */
  #heir(chat: ChatRecord, user: string, needed: boolean): MemberRecord | undefined {
    const roster = this.#core.data.roster(chat);
    if (chat.members.get(user)?.role !== 'owner' ||
      roster.some((m) => m.role === 'owner' && m.user !== user)) return undefined;
    const eldest = (role: string): MemberRecord | undefined => roster
      .filter((m) => m.role === role && m.user !== user)
      .sort((a, b) => a.joinedAt - b.joinedAt)[0];
    const heir = eldest('admin') ?? eldest('member');
    if (heir === undefined && needed) {
      throw new Refusal('DENIED', 'nobody can succeed the last owner', 'role');
    }
    if (heir !== undefined) heir.role = 'owner';
    return heir;
  }

  #removeMember({ who, path }: Call): { body?: object } {
    const [id = '', user = ''] = path;
    decode.checkId('chat_id', id);
    decode.checkId('user_id', user);
    const { data } = this.#core;
    const chat = data.chat(id);
    const target = chat.members.get(user);
    const there = target !== undefined && isOpen(target.intervals);
    if (who.user === user && !who.backend) {
      if (!there) return {};
      if (chat.type === 'direct') throw new Refusal('DENIED', 'the members are fixed');
    } else {
      const { member } = this.#manage(who, id);
      if (there && !who.backend && !manages(member?.role ?? '', target.role)) {
        throw new Refusal('DENIED', 'an admin may not remove an owner or an admin');
      }
    }
    if (!there) return {};
    this.#remove(chat, target);
    return {};
  }

  #remove(chat: ChatRecord, target: MemberRecord): void {
    const { data } = this.#core;
    const { user } = target;
    const heir = this.#heir(chat, user, false);
    const wasLarge = data.roster(chat).length > this.#core.statusFanout;
    data.removeMember(chat, target);
    const changes = [membership(chat, target, 'removed')];
    if (heir !== undefined) changes.push(membership(chat, heir, 'role_changed'));
    this.#core.announce(chat, changes, [user]);
    if (wasLarge) this.#core.recompute(chat);
  }

  // ---- Blocks and bans --------------------------------------------------------------------------

  /** Nobody adds whom they have blocked, or who has blocked them, or who is banned. */
  #mayAdd(who: Identity, chat: ChatRecord, users: readonly string[]): void {
    const { blocks, bans } = this.#core.data;
    const apart = (user: string): boolean => who.user !== '' && blocks.apart(who.user, user);
    if (users.some(apart)) throw new Refusal('DENIED', 'you cannot add them', 'user_ids');
    if (users.some((user) => bans.of(chat.id).has(user))) {
      throw new Refusal('DENIED', 'they are banned', 'user_ids');
    }
  }

  #block({ who, path }: Call, blocks: boolean): { body?: object } {
    const other = decode.checkId('user_id', path[0] ?? '');
    if (other === who.user) throw invalid('user_id', 'is your own');
    this.#core.block(who.user, other, blocks);
    return {};
  }

  #listBlocks({ who, query }: Call): { body: BlockList } {
    const { list, pagination } = users(this.#core.data.blocks.of(who.user), query, 'b');
    return {
      body: { blocks: list.map(([user_id, at]) => ({ user_id, blocked_at: at })), pagination },
    };
  }

  #ban({ who, path }: Call): { body?: object } {
    const [id = '', user = ''] = path;
    decode.checkId('chat_id', id);
    decode.checkId('user_id', user);
    if (user === who.user) throw invalid('user_id', 'is your own');
    const { chat, member } = this.#manage(who, id);
    const target = chat.members.get(user);
    const there = target !== undefined && isOpen(target.intervals);
    if (there && !who.backend && !manages(member?.role ?? '', target.role)) {
      throw new Refusal('DENIED', 'an admin may not ban an owner or an admin');
    }
    const isNew = this.#core.data.bans.add(chat.id, user, this.#core.clock.now());
    if (there) this.#remove(chat, target);
    else if (isNew) chat.membersVersion++;
    return {};
  }

  #unban({ who, path }: Call): { body?: object } {
    const [id = '', user = ''] = path;
    decode.checkId('chat_id', id);
    decode.checkId('user_id', user);
    this.#core.data.bans.remove(this.#manage(who, id).chat.id, user);
    return {};
  }

  #listBans({ who, path, query }: Call): { body: BanList } {
    const { chat } = this.#manage(who, decode.checkId('chat_id', path[0] ?? ''));
    const { list, pagination } = users(this.#core.data.bans.of(chat.id), query, 'n');
    const bans = list.map(([user_id, at]) => ({ user_id, banned_at: at }));
    return { body: { bans, pagination } };
  }

  // ---- Messages ---------------------------------------------------------------------------------

  #listMessages({ who, path, query }: Call): { body: MessageList } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const limit = decode.limitOf(query);
    const after = decode.integer(query, 'after_sequence', 0, 'INVALID');
    const before = decode.integer(query, 'before_sequence', 0, 'INVALID');
    const counts = decode.queryFlag(query, 'reactions');
    if (after !== undefined && before !== undefined) {
      throw new Refusal('INVALID', 'after_sequence and before_sequence exclude each other');
    }
    const { chat } = this.#core.data.member(who.user, id);
    const end = headOf(chat) + 1;
    const read = (most: number): Page =>
      after !== undefined ? this.#core.data.after(who.user, id, after, most)
        : this.#core.data.before(who.user, id, Math.min(before ?? end, end), most);
    let found = read(limit);
    if (counts) {
      const first = found.messages.at(after === undefined ? -1 : 0)?.sequence ?? 0;
      const near = found.messages.filter((one) => Math.abs(one.sequence - first) < countedRange);
      if (near.length < found.messages.length) found = read(near.length);
    }
    const { messages } = found;
    return {
      body: {
        messages: messages.map((message) => ({
          ...message, reactions: counts ? reactionsTo(chat, message, who.user) : null,
        })),
        gaps: found.gaps,
        reactions_through_sequence: counts && messages.length > 0 ? headOf(chat) : null,
        pagination: pagination(found.hasMore ? String(found.next) : null),
      },
    };
  }

  #listReactions({ who, path, query }: Call): { body: ReactionList } {
    const [id = '', named = ''] = path;
    decode.checkId('chat_id', id);
    const sequence = decode.integer(new URLSearchParams({ sequence: named }), 'sequence', 1,
      'INVALID') ?? 0;
    const limit = decode.limitOf(query);
    const after = Number(decode.decodeToken('r', query));
    const { chat, member } = this.#core.data.member(who.user, id);
    const target = chat.messages[sequence - 1];
    if (target === undefined || !contains(member.intervals, sequence)) {
      throw new Refusal('NOT_FOUND', 'there is no such message');
    }
    const rest = target.revision?.kind === 'redact' ? []
      : standing(chat, 'react', sequence).filter((one) => one.sequence > after);
    return {
      body: {
        reactions: rest.slice(0, limit).map((one) => ({
          user_id: one.sender_id, emoji: one.relation?.emoji ?? '', sequence: one.sequence,
          reacted_at: one.created_at,
        })),
        pagination: page(rest, limit, 'r', (one) => String(one.sequence)),
      },
    };
  }

  #listPins({ who, path }: Call): { body: PinList } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const { chat, member } = this.#core.data.member(who.user, id);
    const sees = ({ relation }: Message) => contains(member.intervals, relation?.sequence ?? 0);
    const all = who.backend || mayPin(chat, who.user);
    const pins = standing(chat, 'pin').reverse().filter((one) => all || sees(one));
    return {
      body: {
        pins: pins.map((one) => ({
          pin_sequence: one.sequence, pinned_by: one.sender_id, pinned_at: one.created_at,
          message: sees(one) ? messageAt(chat, one.relation?.sequence ?? 0) : null,
        })),
        pagination: pagination(null),
      },
    };
  }

  #sendMessage({ who, path, request }: Call): { status: number; body: object } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const draft = decode.draft(bodyOf(request), id);
    const { message, duplicate } = this.#core.send(who, draft);
    return { status: duplicate ? 200 : 201, body: this.#core.data.served(who.user, message) };
  }

  #typing({ who, path }: Call): { body?: object } {
    this.#core.typing(who.user, decode.checkId('chat_id', path[0] ?? ''));
    return {};
  }

  // ---- Delivery ---------------------------------------------------------------------------------

  #state(
    user: string, chat: string,
    s: { acked: number; read: number; ackedAt: number; readAt: number }
      = this.#core.data.state(user, chat),
  ): DeliveryState {
    const at = Math.max(s.ackedAt, s.readAt);
    return {
      chat_id: chat, user_id: user, last_acked_sequence: s.acked, last_read_sequence: s.read,
      updated_at: at === 0 ? null : timeOf(at),
    };
  }

  #getState({ who, path }: Call): { body: DeliveryState } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    this.#core.data.member(who.user, id);
    return { body: this.#state(who.user, id) };
  }

  #updateState({ who, path, request }: Call): { body: DeliveryState } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const ack = decode.state(bodyOf(request), id);
    const [refused] = this.#core.acknowledge(who.user, [ack]);
    if (refused instanceof Refusal) throw refused;
    return { body: this.#state(who.user, id) };
  }

  #markUnread({ who, path, request }: Call): { body: object } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const from = decode.sequence(bodyOf(request), 'from_sequence', 1) ?? 0;
    this.#core.markUnread(who.user, id, from);
    const own = this.#core.ownState(who.user, this.#core.data.chat(id));
    return {
      body: {
        chat_id: id, unread_from_sequence: own.unread_from_sequence,
        unread_count: own.unread_count, mention_count: own.mention_count,
      },
    };
  }

  #acks({ who, request }: Call): { body: AckResults } {
    const { items, incarnation } = decode.acks(bodyOf(request, true));
    const done = this.#core.acknowledge(who.user, items, incarnation);
    return {
      body: {
        results: done.map((one, i) => {
          const chat = items[i]?.chat ?? '';
          return one instanceof Refusal ? { chat_id: chat, problem: one.detail(), state: null }
            : { chat_id: chat, problem: null, state: this.#state(who.user, chat, one) };
        }),
      },
    };
  }

  #listStates({ who, query }: Call): { body: object } {
    const limit = decode.limitOf(query);
    const after = decode.decodeToken('s', query);
    const rest = this.#core.data.chatsOf(who.user).filter(
      (c) => c.id > after && this.#core.data.states.has(stateKey(who.user, c.id)));
    return {
      body: {
        states: rest.slice(0, limit).map((c) => this.#state(who.user, c.id)),
        pagination: page(rest, limit, 's', (c) => c.id),
      },
    };
  }

  #listStatuses({ who, query }: Call): { body: StatusResults } {
    const ids = query.getAll('chat_id');
    if (ids.length === 0 || ids.length > 100) throw invalid('chat_id', 'name 1 to 100 chats');
    for (const id of ids) decode.checkId('chat_id', id);
    return {
      body: {
        results: ids.map((id) => {
          try {
            this.#core.data.member(who.user, id);
          } catch (error) {
            return { chat_id: id, status_updates: [], problem: refusalOf(error).detail() };
          }
          return {
            chat_id: id, status_updates: this.#core.statuses(who.user, id), problem: null,
          };
        }),
      },
    };
  }

  #unread({ who }: Call): { body: object } {
    const all = this.#core.data.chatsOf(who.user).map((c) => this.#core.data.unread(who.user, c));
    return {
      body: {
        unread_count: all.reduce((n, u) => n + u.messages, 0),
        mention_count: all.reduce((n, u) => n + u.mentions, 0),
        chats_with_unread: all.filter((u) => u.messages > 0).length,
      },
    };
  }

  #listPending({ who, query }: Call): { body: object } {
    const limit = decode.limitOf(query);
    const after = decode.decodeToken('p', query);
    const { pending } = this.#core.data;
    const rest = this.#core.data.chatsOf(who.user).filter(
      (c) => c.id > after && pending.has(stateKey(who.user, c.id)));
    return {
      body: {
        pending: rest.slice(0, limit).map((c) => ({
          chat_id: c.id,
          first_undelivered_sequence: pending.get(stateKey(who.user, c.id)) ?? null,
        })),
        pagination: page(rest, limit, 'p', (c) => c.id),
      },
    };
  }

  #deliveryStatus({ who, path, query }: Call): { body: DeliveryStatus } {
    const id = decode.checkId('chat_id', path[0] ?? '');
    const limit = decode.limitOf(query);
    const after = decode.decodeToken('m', query);
    const asked = decode.integer(query, 'for_sequence', 1, 'INVALID_SEQUENCE');
    const { chat } = this.#core.data.member(who.user, id);
    const sequence = asked ?? headOf(chat);
    if (asked !== undefined && asked > headOf(chat)) {
      throw invalidSequence('for_sequence', 'is above the head');
    }
    const author = sequence === 0 ? '' : messageAt(chat, sequence).sender_id;
    const roster = this.#core.data.roster(chat);
    const shut = this.#core.data.blocks.closed(chat);
    const all = roster.map((m) => ({
      user: m.user,
      ...shut ? this.#core.exposedTo(who.user, m.user, id) : this.#core.exposed(m.user, id),
    }));
    const delivered = all.filter((s) => s.acked >= sequence).length;
    const read = !shut && this.#core.data.hidden(who.user, id) ? 0 : all.filter(
      (s) => s.read >= sequence || (s.user === author && s.acked >= sequence)).length;
    const masked = (user: string): boolean => (
      user !== who.user && this.#core.data.hidden(who.user, id));
    const rest = all.filter((s) => s.user > after).map(
      (s) => ({ ...s, ...this.#core.exposedTo(who.user, s.user, id) }));
    return {
      body: {
        chat_id: id, chat_type: chat.type, member_count: all.length,
        delivery_summary: {
          sequence, delivered_count: delivered, pending_count: all.length - delivered,
          all_delivered: delivered === all.length, read_count: read,
          all_read: read === all.length,
        },
        members: rest.slice(0, limit).map((s) => ({
          user_id: s.user, display_name: s.user, last_acked_sequence: s.acked,
          last_read_sequence: s.read, updated_at: this.#state(s.user, id, shut || masked(s.user) ? s
            : this.#core.data.shown(s.user, id)).updated_at,
        })),
        pagination: page(rest, limit, 'm', (s) => s.user),
      },
    };
  }

  // ---- Sessions and credentials -----------------------------------------------------------------

  #listSessions({ who }: Call): { body: object } {
    const sessions = this.#core.sessionsOf(who.user)
      .map((s) => ({ session_id: s.id, device_id: s.device, node_id: null }))
      .sort((a, b) => order(a.device_id ?? '', b.device_id ?? '') ||
        order(a.session_id, b.session_id));
    return { body: { sessions, pagination: pagination(null) } };
  }

  #endSession({ who, path }: Call): { body?: object } {
    this.#core.endSessions(who.user, [sessionId('session_id', path[0] ?? '')]);
    return {};
  }

  #endSessions({ who, query }: Call): { body?: object } {
    const named = query.get('except');
    const except = named === null ? '' : sessionId('except', named);
    const all = this.#core.sessionsOf(who.user).map((s) => s.id);
    this.#core.endSessions(who.user, all.filter((id) => id !== except));
    return {};
  }

  #look({ who, path, request }: Call): { body?: object } {
    const id = sessionId('session_id', path[0] ?? '');
    this.#core.look(who.user, id, decode.look(bodyOf(request)));
    return {};
  }

  #hide({ who, request }: Call): { body: object } {
    const visible = decode.flag(bodyOf(request), 'visible');
    if (visible === undefined) throw invalid('visible', 'is missing');
    this.#core.presence.setVisible(who.user, visible);
    return { body: { visible } };
  }

  #setReceipts({ who, request }: Call): { body: object } {
    const f = bodyOf(request);
    const chat = decode.id(f, 'chat_id');
    const setting = decode.text(f, 'read_receipts');
    const known = setting === 'on' || setting === 'off' || setting === 'default';
    if (!known || (chat === undefined && setting === 'default')) {
      throw invalid('read_receipts', 'is missing or unknown');
    }
    this.#core.setReceipts(who.user, chat ?? '',
      setting === 'default' ? undefined : setting === 'off');
    return { body: this.#receipts(who.user, chat) };
  }

  #receipts(user: string, chat: string | undefined): object {
    const { data } = this.#core;
    if (chat !== undefined) data.member(user, decode.checkId('chat_id', chat));
    const set = data.hides.get(stateKey(user, chat ?? ''));
    return {
      chat_id: chat ?? null,
      read_receipts: set === undefined ? (chat === undefined ? 'on' : 'default')
        : set ? 'off' : 'on',
      chat_read_receipts: chat === undefined ? null : data.chat(chat).receipts,
      hidden: data.hidden(user, chat ?? ''),
    };
  }

  #ticket({ who }: Call): { status: number; body: object } {
    const { ticket, expires } = this.#auth.issue(who);
    return { status: 201, body: { ticket, expires_at: timeOf(expires) } };
  }

  #token({ who, request }: Call): { status: number; body: object } {
    if (!who.backend) throw new Refusal('DENIED', 'only a backend makes tokens');
    const f = bodyOf(request);
    const named = decode.id(f, 'user_id');
    const ttl = decode.sequence(f, 'ttl_seconds', Number.MIN_SAFE_INTEGER) ?? 3600;
    if (ttl < 1 || ttl > 3600) throw invalid('ttl_seconds', 'must be from 1 to 3600');
    const user = named ?? who.user;
    if (user === '') throw invalid('user_id', 'is missing');
    if (who.user !== '' && user !== who.user) throw invalid('user_id', 'names another user');
    const { token, expires } = this.#auth.token(user, ttl);
    return { status: 201, body: { token, expires_at: timeOf(expires) } };
  }
}

/** Returns the answer of a refusal. */
export function problem(refusal: Refusal, requestId: string): Answer {
  const headers: Record<string, string> = {
    'content-type': 'application/problem+json', 'x-request-id': requestId,
    'cache-control': 'no-store',
  };
  if (refusal.status === 401) headers['www-authenticate'] = 'Bearer realm="tidemark"';
  if (refusal.status === 429 || refusal.status === 503) {
    headers['retry-after'] = String(Math.max(1, Math.ceil(refusal.retryAfter)));
  }
  return { status: refusal.status, headers, body: JSON.stringify(refusal.problem(requestId)) };
}

/** Returns the fields of a body whose headers say that it is JSON, or a text if that will do. */
function bodyOf(request: Request, text = false): decode.Fields {
  const [media = '', ...params] = (request.headers.get('content-type') ?? '').toLowerCase()
    .split(';').map((s) => s.trim());
  const known = media === '' || media === 'application/json' || (text && media === 'text/plain');
  const charset = params.find((p) => p.startsWith('charset='))?.slice(8) ?? 'utf-8';
  if (!known || charset.replaceAll('"', '') !== 'utf-8') {
    throw new Refusal('UNSUPPORTED_MEDIA_TYPE', 'the body must be JSON in UTF-8');
  }
  return decode.body(request.body);
}

function sessionId(param: string, id: string): string {
  if (id.length > 22) throw invalid(param, 'is too long');
  return decode.checkId(param, id);
}

function memberOf(m: MemberRecord): Member {
  return {
    user_id: m.user, role: m.role, joined_at: timeOf(m.joinedAt), metadata: m.metadata,
  };
}

function roleOf(f: decode.Fields): string | undefined {
  const role = decode.text(f, 'role');
  if (role !== undefined && !['owner', 'admin', 'member', 'reader'].includes(role)) {
    throw invalid('role', 'must be owner, admin, member or reader');
  }
  return role;
}

function manages(role: string, other: string): boolean {
  return role === 'owner' || (role === 'admin' && (other === 'member' || other === 'reader'));
}

function grant(member: MemberRecord | undefined, role: string): void {
  if (!manages(member?.role ?? '', role)) throw new Refusal('DENIED', 'only an owner may', 'role');
}

function emptyToNull<T extends object>(value: T | undefined): T | null {
  return value === undefined || Object.keys(value).length === 0 ? null : value;
}

function pagination(next: string | null): Pagination {
  return { has_more: next !== null, next_cursor: next };
}

function page<T>(
  rest: readonly T[], limit: number, kind: string, id: (one: T) => string,
): Pagination {
  const last = rest[limit - 1];
  const more = rest.length > limit && last !== undefined;
  return pagination(more ? decode.encodeToken(kind, id(last)) : null);
}

/** Returns a page of users by id, each with a time. */
function users(
  all: Times, query: URLSearchParams, kind: string,
): { list: (readonly [string, string])[]; pagination: Pagination } {
  const limit = decode.limitOf(query);
  const after = decode.decodeToken(kind, query);
  const rest = [...all].filter(([user]) => user > after).sort(([a], [b]) => order(a, b));
  return {
    list: rest.slice(0, limit).map(([user, at]) => [user, timeOf(at)] as const),
    pagination: page(rest, limit, kind, ([user]) => user),
  };
}

function order(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}

/** Returns an id that is made from a text, of the form of the real server's. */
function digest(s: string): string {
  let h = 0x811c9dc5;
  let text = '';
  for (let i = 0; text.length < 26; i++) {
    for (const c of `${String(i)} ${s}`) h = Math.imul(h ^ c.charCodeAt(0), 0x01000193);
    text += 'abcdefghijklmnopqrstuvwxyz234567'[(h >>> 7) & 31] ?? '';
  }
  return `chat_${text}`;
}
