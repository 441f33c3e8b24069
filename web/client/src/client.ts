// The public client: views of what the store has, and commands.

import { byActivity, rowOf } from './core/chats.js';
import { isUsedUp, newSendId } from './core/outbox.js';
import { checkDraft, checkRelation } from './core/draft.js';
import { countsOf } from './core/reactions.js';
import { entriesOf } from './core/plan.js';
import type { Commands } from './core/timeline.js';
import { TidemarkError, invalid, signedOut } from './errors.js';
import { pathOf } from './shell/catchup.js';
import { entriesAbove } from './shell/entries.js';
import { insides, type Inside } from './shell/inside.js';
import { restOf } from './shell/rest.js';
import { surroundings } from './shell/surroundings.js';
import { tabOf } from './shell/tab.js';
import { timelineOf, type OpenTimeline } from './shell/timeline.js';
import { cell, derived, type Derived, type Guard } from './shell/views.js';
import type {
  ChatHandle, Client, Draft, Events, Options, Platform, Problem, Relating, Row, Sent, State,
  StoredChat, Unread,
} from './types.js';
import { has, isShown } from './wire/events.js';
import type {
  Block, BlockList, Chat, DeliveryStatus, Message, MessageList, PinList, ReceiptsSettings, Typing,
} from './wire.gen.js';

const PAGE = 50;
const TYPING_EVERY_MS = 3_000;
/** After how long a timeline asks again for what it has got no answer. */
const LATER_MS = 5_000;

/** A send that somebody waits for. */
interface Waiter {
  readonly id: string;
  readonly chat: string;
  resolve(message: Message): void;
  reject(error: unknown): void;
}

/** What belongs to one chat on this page. */
interface Open {
  readonly handle: ChatHandle;
  readonly row: Derived<Row | undefined>;
  readonly typing: Derived<readonly string[]>;
  /** Who is typing, and what cancels its end. */
  readonly typists: Map<string, () => void>;
  readonly timelines: Set<OpenTimeline>;
}

export function createClient(options: Options): Client {
  const platform: Platform = { ...surroundings(), ...options.platform };
  const listeners: { [K in keyof Events]: Set<(event: Events[K]) => void> } =
    { message: new Set(), problem: new Set(), restored: new Set(), refused: new Set(),
      frame: new Set() };
  const guard: Guard = (run) => {
    try {
      run();
    } catch (error) {
      // The client goes on. The error is the application's.
      platform.timer(0, () => { throw error; });
    }
  };
  const emit = <K extends keyof Events>(type: K, event: Events[K]): void => {
    for (const listener of [...listeners[type]]) guard(() => { listener(event); });
  };
  const problem = (event: Problem): void => { emit('problem', event); };
  const frame = (event: Events['frame']): void => { emit('frame', event); };

  const rest = restOf(options, platform, frame, problem);
  const rows = new Map<string, Row>();
  const open = new Map<string, Open>();
  const shown = new Map<string, number>();
  const unread = new Set<string>();
  /** Up to where the listeners of messages were told, and of which data. */
  const told = new Map<string, { incarnation: string; through: number }>();
  const telling = new Set<string>();
  let waiters: Waiter[] = [];

  const state = cell<State>(guard, { phase: 'stopped', leader: false, durable: false });
  const chats = derived<readonly Row[]>(guard, () => [...rows.values()].sort(byActivity));
  const total = derived<Unread>(guard, () => {
    const all = [...rows.values()].filter((row) => !row.left);
    return {
      total: all.reduce((sum, row) => sum + row.unread, 0),
      atLeast: all.some((row) => row.atLeast),
    };
  });
  const unsent = cell(guard, 0);

  const tab = tabOf({
    options, platform, rest, problem, frame,
    tell(type, event) {
      if ('problem' in event) {
        const { client_message_id: id, problem: { code, detail } } = event;
        for (const one of waiters) if (one.id === id) one.reject(new TidemarkError(code, detail));
      }
      emit(type, event);
    },
    shown: (chat) => shown.get(chat) ?? 0,
    event(event) {
      if (event.type === 'typing') isTyping(event.payload);
      inside.event?.(event);
    },
    notice(notice) { inside.notice?.(notice); },
    changed,
    reset() {
      rows.clear();
      shown.clear();
      for (const [id, stored] of tab.data?.chats ?? []) {
        rows.set(id, rowOf(stored));
        pass(stored, stored.prefix);
      }
      count();
      chats.changed();
      total.changed();
      for (const one of open.values()) {
        one.row.changed();
        for (const timeline of one.timelines) timeline.reset();
      }
      if (tab.data) spawn(settle());
      else for (const one of waiters.splice(0)) one.reject(signedOut('The user is signed out.'));
    },
    open: opened,
    visible() { for (const id of [...unread]) read(id); },
    state(next) {
      if (JSON.stringify(state.get()) !== JSON.stringify(next)) state.set(next);
    },
  });

  const inside: Inside = { platform, rest, guard, tab, open: opened };

  /** The chats that have a timeline on this page. */
  function opened(): string[] {
    return [...open.values()].filter((one) => one.timelines.size > 0).map((one) => one.handle.id);
  }

  /** Runs a task whose errors are handled where they come from. */
  function spawn(task: Promise<unknown>): void {
    task.catch(() => undefined);
  }

  function count(): void {
    unsent.set(tab.data?.outbox.filter((item) => item.state === 'due').length ?? 0);
  }

  function changed(ids: ReadonlySet<string>, outbox: boolean): void {
    const { data } = tab;
    if (!data) return;
    for (const id of ids) {
      const stored = data.chats.get(id);
      if (!stored) continue;
      // Of what was shown of lost data, only what was read is still there for certain.
      if (told.get(id)?.incarnation !== stored.incarnation && shown.has(id)) {
        shown.set(id, Math.min(shown.get(id) ?? 0, stored.read));
      }
      const one = open.get(id);
      const row = rowOf(stored);
      const { last } = row;
      // Who has sent a message types no longer.
      if (one && last && last.sequence !== rows.get(id)?.last?.sequence) types(one, last.sender_id);
      rows.set(id, row);
      one?.row.changed();
      if (unread.has(id) || hides(stored)) read(id);
      pass(stored, stored.base);
      if (listeners.message.size > 0) spawn(tell(id));
      else pass(stored, stored.prefix);
    }
    if (outbox) count();
    if (ids.size > 0) {
      chats.changed();
      total.changed();
    }
    for (const [id, { timelines }] of open) {
      if (outbox || ids.has(id)) for (const timeline of timelines) timeline.changed();
    }
    if (outbox) spawn(settle());
  }

  /** Notes that listeners need no message of a chat up to a sequence. A rebase takes that back. */
  function pass(stored: StoredChat, through: number): void {
    const { prefix, incarnation, chat: { chat_id: id } } = stored;
    const before = told.get(id);
    const old = before?.incarnation === incarnation ? before.through
      : Math.min(before?.through ?? 0, prefix);
    told.set(id, { incarnation, through: Math.max(old, through) });
  }

  /** Tells the listeners of messages, in order, once the prefix has passed them. */
  async function tell(id: string): Promise<void> {
    const { data } = tab;
    if (!data || telling.has(id)) return;
    telling.add(id);
    try {
      for (;;) {
        const stored = data.chats.get(id);
        const from = told.get(id)?.through;
        if (!stored || from === undefined || from >= stored.prefix) return;
        pass(stored, stored.prefix);
        for await (const { message } of entriesAbove(data, stored, from)) {
          if (message) emit('message', message);
        }
      }
    } finally {
      telling.delete(id);
    }
  }

  /** Looks which sends have left the outbox, or failed. */
  async function settle(): Promise<void> {
    const { data } = tab;
    if (!data) return;
    for (const waiter of [...waiters]) {
      const item = data.outbox.find((one) => one.client_message_id === waiter.id);
      if (item?.state === 'due') continue;
      waiters = waiters.filter((one) => one !== waiter);
      if (item) {
        const { code, detail } = item.problem ?? { code: 'FAILED', detail: '' };
        waiter.reject(new TidemarkError(code, detail));
        continue;
      }
      const message = await find(waiter.chat, waiter.id);
      if (message) waiter.resolve(message);
      else waiter.reject(new TidemarkError('DISCARDED', 'The message was discarded.'));
    }
  }

  /** Finds a message of the user in the store, the newest first. */
  async function find(chat: string, id: string): Promise<Message | undefined> {
    for (let before = Infinity; before > 0;) {
      const page = await tab.data?.run((store) => store.page(chat, before, PAGE)) ?? [];
      const message = page.find((one) => one.message?.client_message_id === id
        && one.message.sender_id === options.user)?.message;
      if (message) return message;
      before = page[0]?.from ?? 0;
    }
    return undefined;
  }

  /** Marks as read what was shown, if the user looks at it. */
  function read(id: string): void {
    const { page } = platform;
    const looks = !page || page.visible() && (options.readWhen === 'visible' || page.focused());
    const through = shown.get(id) ?? 0;
    const stored = tab.data?.chats.get(id);
    if (!looks || !stored || through < stored.read) return;
    const start = Math.min(through, stored.prefix);
    if (start === stored.read && !hides(stored)) return;
    if (through <= stored.prefix) unread.delete(id);
    spawn(tab.write(async (store) => {
      // What is not shown, and follows directly, is read with it.
      let end = through;
      for (const { from, to, message } of await store.page(id, end + PAGE + 1, PAGE)) {
        if (from === end + 1 && !isShown(message)) end = to;
      }
      if (end > (shown.get(id) ?? 0)) shown.set(id, end);
      return store.markRead(id, end);
    }));
  }

  /** Whether the user has read what is shown of a chat, and something follows it. */
  function hides({ read: done, prefix, last }: StoredChat): boolean {
    return done < prefix && done >= (last?.sequence ?? 0);
  }

  function isTyping({ chat_id: id, user_id: user, expires_in_seconds: seconds }: Typing): void {
    const one = open.get(id);
    if (!one) return;
    types(one, user, platform.timer(seconds * 1000, () => { types(one, user); }));
  }

  /** A user begins to type, or types no longer. `end` cancels what ends it after a while. */
  function types({ typing, typists }: Open, user: string, end?: () => void): void {
    typists.get(user)?.();
    if (end) typists.set(user, end);
    else if (!typists.delete(user)) return;
    typing.changed();
  }

  const commands: Commands = (item) => item.state !== 'failed' ? {} : {
    retry() {
      const newId = isUsedUp(item.problem) ? { newId: newId_() } : {};
      spawn(tab.write((store) =>
        store.edit(item.client_message_id, { to: 'due', ...newId })));
    },
    discard() {
      spawn(tab.write((store) => store.edit(item.client_message_id, { to: 'discarded' })));
    },
  };
  const newId_ = (): string => newSendId(platform.now(), platform.random(16));

  async function send(
    id: string, draft: Draft, change?: Relating,
  ): Promise<Sent> {
    if (change) checkRelation(change);
    if (!change || change.kind === 'edit') checkDraft(draft);
    const { client_message_id = newId_() } = draft;
    await tab.write((store) => {
      const stored = tab.data?.chats.get(id);
      return store.add({
        ...draft, ...change,
        client_message_id, chat_id: id, at: platform.now(),
        seen: Math.min(Math.max(stored?.read ?? 0, shown.get(id) ?? 0), stored?.prefix ?? 0),
        after: stored?.chat.head_sequence ?? 0,
      });
    });
    return {
      client_message_id,
      durable: tab.data?.store.durable ?? false,
      confirmed: (signal) => new Promise((resolve, reject) => {
        signal?.throwIfAborted();
        const waiter = { id: client_message_id, chat: id, resolve, reject };
        waiters.push(waiter);
        signal?.addEventListener('abort', () => {
          waiters = waiters.filter((one) => one !== waiter);
          reject(signal.reason as Error);
        });
        spawn(settle());
      }),
    };
  }

  /** Makes one call. Throws what the server refuses it for. */
  async function call(method: string, path: string, shape: string, body?: object):
  Promise<{ body: unknown; of?: string | undefined }> {
    const answer = await rest.call(method, path, body);
    if (answer.is === 'ok' && (shape === '' || has(shape, answer.body))) return answer;
    if (answer.is === 'refused') {
      throw new TidemarkError(answer.problem.code, answer.problem.detail);
    }
    throw new TidemarkError('UNREACHABLE', 'The server did not answer.');
  }

  /** Whether what is stored of a chat, and an answer, may be of the same data. */
  const isOf = (id: string, of: string | undefined): boolean => {
    const present = tab.data?.chats.get(id)?.incarnation;
    return (of ?? present) === present;
  };

  function openChat(id: string): Open {
    const found = open.get(id);
    if (found) return found;
    const typists = new Map<string, () => void>();
    const typing = derived(guard, () => [...typists.keys()]);
    const row = derived(guard, () => rows.get(id));
    const timelines = new Set<OpenTimeline>();
    let typedAt = -Infinity;
    const redact = (sequence: number) =>
      send(id, {}, { kind: 'redact', relation: { sequence } });
    const handle: ChatHandle = {
      id, row, typing,
      timeline({ page = PAGE } = {}) {
        const timeline = timelineOf({
          id, page, guard, commands,
          user: options.user,
          data: () => tab.data,
          async history(before, limit) {
            const path = pathOf(id,
              `/messages?before_sequence=${before}&limit=${limit}&reactions=true`);
            const answer = await rest.call('GET', path);
            if (answer.is !== 'ok' || !has('$messages', answer.body)) return undefined;
            // Until the sync after a restore, the page would be a mixture of both.
            if (!isOf(id, answer.of)) return undefined;
            const list = answer.body as MessageList;
            const more = list.pagination.has_more;
            return { entries: entriesOf(list), counts: countsOf(list), more };
          },
          later(then) {
            platform.timer(LATER_MS, () => { if (timelines.has(timeline)) then(); });
          },
          closed: () => { timelines.delete(timeline); },
        });
        timelines.add(timeline);
        tab.show(id);
        return timeline;
      },
      async status(sequence) {
        const query = sequence === undefined ? '' : `?for_sequence=${sequence}`;
        const path = pathOf(id, `/delivery-status${query}`);
        return (await call('GET', path, '$of_chat')).body as DeliveryStatus;
      },
      send: (draft) => send(id, draft),
      edit: (sequence, draft) => send(id, draft, { kind: 'edit', relation: { sequence } }),
      redact, unreact: redact, unpin: redact,
      react: (sequence, emoji) => send(id, {}, { kind: 'react', relation: { sequence, emoji } }),
      pin: (sequence) => send(id, {}, { kind: 'pin', relation: { sequence } }),
      async pins() {
        const { pins } = (await call('GET', pathOf(id, '/pins'), '$pins')).body as PinList;
        return pins.filter(({ message }) => message === null || has('message', message));
      },
      shown(sequence) {
        const before = shown.get(id) ?? 0;
        // What was shown before the user looked is read when it is shown to them again.
        if (sequence === before && unread.has(id)) read(id);
        if (sequence <= before) return;
        shown.set(id, sequence);
        unread.add(id);
        read(id);
        tab.leader?.changed(new Set([id]));
      },
      async markUnread(from) {
        const { body, of } = await call('PUT', pathOf(id, '/delivery-state/unread'), '$of_chat',
          { from_sequence: from });
        const stored = tab.data?.chats.get(id);
        if (stored && isOf(id, of)) {
          await tab.know({ ...stored.chat, ...body as Partial<Chat> }, of);
        }
      },
      type() {
        if (platform.monotonic() - typedAt < TYPING_EVERY_MS) return;
        typedAt = platform.monotonic();
        tab.typing(id);
      },
    };
    const one = { handle, row, typing, typists, timelines };
    open.set(id, one);
    return one;
  }

  const client: Client = {
    get device() { return tab.data?.device; },
    user: options.user,
    state, chats, unsent,
    unread: total,
    start: () => tab.start(),
    stop: () => tab.stop(),
    retryNow: () => { tab.wake(); },
    persist: () => platform.persist?.() ?? Promise.resolve(false),
    signOut: ({ unsent: what = 'refuse' } = {}) => tab.signOut(what),
    async readReceipts(chatId) {
      const of = chatId === undefined ? '' : `?chat_id=${encodeURIComponent(chatId)}`;
      const answer = await call('GET', `/receipts/settings${of}`, '$receipts');
      return answer.body as ReceiptsSettings;
    },
    async setReadReceipts(setting, chatId) {
      const answer = await call('PUT', '/receipts/settings', '$receipts',
        { chat_id: chatId, read_receipts: setting });
      return answer.body as ReceiptsSettings;
    },
    async block(userId) { await call('PUT', `/blocks/${encodeURIComponent(userId)}`, ''); },
    async unblock(userId) { await call('DELETE', `/blocks/${encodeURIComponent(userId)}`, ''); },
    async blocks() {
      const all: Block[] = [];
      for (let next: string | null = ''; next !== null;) {
        const at = next && `?cursor=${encodeURIComponent(next)}`;
        const list: BlockList =
          (await call('GET', `/blocks${at}`, '$blocks')).body as BlockList;
        all.push(...list.blocks);
        next = list.pagination.next_cursor;
      }
      return all;
    },
    async createChat(request) {
      if (!('type' in request)) throw invalid('A chat needs a type.');
      const named = 'client_chat_id' in request || 'chat_id' in request;
      const body = request.type === 'group' && !named
        ? { ...request, client_chat_id: newId_() } : request;
      const answer = await call('POST', '/chats', '$chat', body);
      const chat = answer.body as Chat;
      await tab.know(chat, answer.of);
      return openChat(chat.chat_id).handle;
    },
    chat: (id) => openChat(id).handle,
    newMessageId: newId_,
    on(type, listener, { signal } = {}) {
      listeners[type].add(listener);
      signal?.addEventListener('abort', () => listeners[type].delete(listener));
    },
  };
  insides.set(client, inside);
  return client;
}
