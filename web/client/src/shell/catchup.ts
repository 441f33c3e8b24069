// What a leader asks the server for: the list of chats, the cursors of a new session, and what the
// stream did not bring.

import { factsOf, withLatch } from '../core/chats.js';
import { entriesOf } from '../core/plan.js';
import { merged } from '../core/ticks.js';
import type { Change, Restored, StoredChat } from '../types.js';
import { has } from '../wire/events.js';
import type {
  Chat, ChatList, MemberList, MessageList, StatusResults, SyncResponse,
} from '../wire.gen.js';
import type { Reign } from './reign.js';

const LIST_PAGE = 200;
const COMMIT_CHATS = 100;
const CURSORS = 500;
const HISTORY_PAGE = 500;
const AHEAD_MS = 2_000;
const SETTLE_MS = 2_000;
/** Chats with more members have one status for all. */
const STATUSES = 50;
const MEMBERS_MS = 1_000;

const needsMembers = (row: StoredChat | undefined): boolean =>
  row?.members === null && row.chat.member_count <= STATUSES;

export interface CatchUp {
  /** A new session sends what is not acknowledged. It needs cursors for what was stored before. */
  opened(): void;
  /** The server needs the cursors: now, or again after the present round. */
  sync(): void;
  /** Gets the list of chats: what was to be asked before the last leader ended is unknown. */
  list(): void;
  /** Whether the server has all cursors. */
  readonly synced: boolean;
  /** Gets a chat, and whether the user is a member. */
  refresh(chat: string): void;
  /** Gets a chat that is new. Resolves when it is known, or refused. */
  learn(chat: string): Promise<void>;
  /** Takes chats of an answer about data of this incarnation. Those of lost data are dropped. */
  know(chats: readonly Chat[], of?: string): Promise<void>;
  /** Gets what is missing up to a sequence. Resolves when it is there, or refused. */
  repair(chat: string, through: number): Promise<void>;
  /** Repairs every chat that is not whole, although the stream has brought everything. */
  whole(): void;
  /** Gets the chat if its messages are beyond its head. */
  recount(chat: string): void;
  /** The chat has changed: perhaps its members must be listed. */
  touched(chat: string): void;
  /** The chat is on screen: its ticks matter. */
  show(chat: string): void;
}

export interface CatchUpOwner {
  /** The highest sequence that may be acknowledged. */
  limitOf(row: StoredChat): number;
  restored(event: Restored): void;
  /** Messages came by REST. */
  byRest(chat: string): void;
  /** A sync begins, after which the stream says again when it has caught up. */
  syncing(): void;
  synced(): void;
  listed(): void;
  /** The session is gone. */
  gone(): void;
  /** Whether the stream has brought everything up to now. */
  caughtUp(): boolean;
}

export const pathOf = (chat: string, rest = ''): string =>
  `/chats/${encodeURIComponent(chat)}${rest}`;

export function catchUpOf(reign: Reign, owner: CatchUpOwner): CatchUp {
  const { data, options } = reign;
  /** Chats that are being asked for, and whether that came too early. */
  const refreshing = new Map<string, boolean>();
  let settling: Promise<void> | undefined;
  const repairing = new Map<string, number>();
  const repairs = new Map<string, Promise<void>>();
  const shown = new Set<string>();
  const ticking = new Set<string>();
  let state: 'synced' | 'due' | 'running' | 'again' = 'synced';
  /** The chats that were stored before the session began, or undefined if it needs all cursors. */
  let older: ReadonlySet<string> | undefined;

  const incarnation = (): string => reign.session?.incarnation ?? '';

  const know = async (chats: readonly Chat[], of = incarnation()): Promise<void> => {
    for (let i = 0; i < chats.length; i += COMMIT_CHATS) {
      await reign.commit(() => {
        // Before the first session, any data may be the present ones.
        if (reign.session && of !== incarnation()) return undefined;
        const news = chats.slice(i, i + COMMIT_CHATS).filter((chat) => has('$chat', chat))
          .map((chat) => {
            const { facts, read } = factsOf(chat, data.chats.get(chat.chat_id), of);
            return { chat_id: chat.chat_id, facts, read };
          });
        return {
          chats: news.map(({ chat_id, facts }) => ({ ...facts, chat_id })),
          read: news.map(({ chat_id, read }) => ({ chat_id, through: read })),
        };
      });
    }
  };

  /** Gets all chats. Those that are not listed any more are looked up. False: it is refused. */
  async function list(): Promise<boolean> {
    const before = [...data.chats.values()].filter((row) => !row.left);
    const listed = new Set<string>();
    for (let cursor: string | null = ''; cursor !== null;) {
      const query = new URLSearchParams({ limit: String(LIST_PAGE), ...cursor && { cursor } });
      const answer = await reign.ask('GET', `/chats?${query.toString()}`, '$chats');
      if (answer.is === 'refused') return false;
      const page = answer.body as Partial<ChatList>;
      const chats = page.chats ?? [];
      for (const chat of chats) listed.add(chat.chat_id);
      cursor = page.pagination?.next_cursor ?? null;
      await know(chats, answer.of);
    }
    for (const { chat } of before) if (!listed.has(chat.chat_id)) refresh(chat.chat_id);
    return true;
  }

  /** Whether what is stored of a chat is of the present data. */
  const isPresent = (row: StoredChat): boolean => ['', incarnation()].includes(row.incarnation);

  /**
   * The cursor of a chat. It acknowledges, so it is never above what may be acknowledged. What the
   * present data have as acknowledged says nothing of entries of other data.
   */
  const cursorOf = (row: StoredChat): number => Math.min(row.prefix,
    Math.max(isPresent(row) && row.chat.last_acked_sequence || 0, owner.limitOf(row)));

  /** Whether the session lacks something. Cursors also bring again what it has sent already. */
  const needsCursors = (): boolean => older === undefined || [...data.chats].some(([id, row]) =>
    older?.has(id) || row.prefix < row.acknowledged);

  /** Sends cursors until each is accepted or void. Returns false if another session began. */
  async function cursors(session: string): Promise<boolean> {
    const isPresentSession = (): boolean => reign.session?.session_id === session;
    if (!needsCursors()) return isPresentSession();
    let open = [...data.chats.keys()];
    const ahead = new Set<string>();
    do {
      // A sync of an older session would wait for an event of it.
      if (!isPresentSession()) return false;
      const sent = open.slice(0, CURSORS).flatMap((id) => data.chats.get(id) ?? [])
        .map((row) => ({ chat_id: row.chat.chat_id, row, cursor: cursorOf(row) }));
      owner.syncing();
      const answer = await reign.ask('POST', '/sync', '$sync', {
        session_id: session,
        chats: sent.map(({ chat_id, row, cursor }) => ({
          chat_id, last_acked_sequence: cursor,
          // One that is not known yet is the present one.
          ...row.incarnation && { incarnation: row.incarnation },
        })),
      });
      if (!isPresentSession() || answer.is === 'refused') return false;
      const present = incarnation();
      const refused = new Map((answer.body as SyncResponse).chats.map((one) =>
        [one.chat_id, one]));
      open = open.slice(CURSORS);
      const accepted = sent.filter((one) => !refused.has(one.chat_id));
      const restored = restoring([...refused.values()].flatMap(({ chat_id, reset }) =>
        reset?.reason === 'restored' ? { chat_id, through: reset.through ?? 0 } : []));
      await reign.commit(() => incarnation() === present ? {
        rebase: [
          ...restored.rebase,
          // What other data had above the cursor comes again, if it is still there.
          ...accepted.filter(({ row }) => !isPresent(row)).map(({ chat_id, cursor }) =>
            ({ chat_id, through: cursor, incarnation: present })),
        ],
        chats: accepted.map(({ chat_id, cursor }) => ({
          chat_id, incarnation: present,
          acknowledged: Math.max(cursor, data.chats.get(chat_id)?.acknowledged ?? 0),
        })),
      } : undefined);
      // Another session may be of other data.
      if (incarnation() !== present) return false;
      restored.done();
      for (const [id, { reset, head_sequence: head }] of refused) {
        if (!reset) {
          refresh(id);
          continue;
        }
        if (reset.reason === 'ahead') {
          // An answer of a moment ago may be stale.
          if (ahead.has(id)) await rebase(id, head);
          else await reign.pause(AHEAD_MS);
          ahead.add(id);
        }
        open.push(id);
      }
    } while (open.length > 0);
    return true;
  }

  /** Drops what the server does not have, above the last message that is the same there. */
  async function rebase(id: string, head: number): Promise<void> {
    let through = 0;
    for (let before = head + 1; before > 1 && through === 0;) {
      const stored = await data.run((store) => store.page(id, before, HISTORY_PAGE));
      const ids = new Map(stored.map(({ from, message }) => [from, message?.message_id]));
      const answer = await reign.ask('GET', pathOf(id,
        `/messages?before_sequence=${before}&limit=${HISTORY_PAGE}`), '$messages');
      // Who is no member any more keeps what they have.
      if (answer.is === 'refused') return;
      if (stored.length === 0) break;
      const page = answer.body as MessageList;
      through = Math.max(0, ...page.messages.filter((one) =>
        ids.get(one.sequence) === one.message_id).map((one) => one.sequence));
      before = page.messages[0]?.sequence ?? 0;
    }
    const { rebase: change, done } = restoring([{ chat_id: id, through }]);
    await reign.commit(() => ({ rebase: change }));
    done();
  }

  /** What drops what the server lost. `done` tells how much that is. */
  function restoring(chats: readonly { chat_id: string; through: number }[]): {
    rebase: NonNullable<Change['rebase']>; done: () => void;
  } {
    // What was changed in data that are lost is not ahead any more.
    if (chats.length > 0) reign.ahead.clear();
    const events = chats.map(({ chat_id, through }) => {
      const { prefix = 0, base = 0 } = data.chats.get(chat_id) ?? {};
      return { chat_id, lost: prefix - Math.max(through, base) };
    });
    return {
      rebase: chats.map((one) => ({ ...one, incarnation: incarnation() })),
      done() { for (const event of events) if (event.lost > 0) owner.restored(event); },
    };
  }

  async function round(): Promise<void> {
    let done: boolean;
    do {
      state = 'running';
      const session = reign.session?.session_id;
      done = session !== undefined && await list() && await cursors(session);
      // Another session began meanwhile, or the server asked again.
    } while (again());
    state = done ? 'synced' : 'due';
    if (done) {
      for (const id of shown) refreshTicks(id);
      owner.synced();
    } else owner.gone();
  }

  const again = (): boolean => state === 'again';

  function start(): void {
    if (state === 'running' || state === 'again') state = 'again';
    else reign.spawn(round());
  }

  function refresh(id: string): void {
    const running = refreshing.has(id);
    refreshing.set(id, running);
    if (running) return;
    reign.spawn(learn(id).then(() => {
      const again = refreshing.get(id);
      refreshing.delete(id);
      if (again) refresh(id);
      reign.spawn(settling ??= settle());
    }));
  }

  /** Gets what the stream does not bring: it was sent while the user was no member. */
  async function settle(): Promise<void> {
    await reign.pause(SETTLE_MS);
    settling = undefined;
    if (owner.caughtUp()) whole();
  }

  /** Repairs every chat that is not whole. */
  function whole(): void {
    for (const [id, { prefix, left, chat }] of data.chats) {
      if (!left && prefix < chat.head_sequence) reign.spawn(repair(id, chat.head_sequence));
      recount(id);
    }
  }

  /** What came before a message below it has not raised the head, and is not counted. */
  function recount(id: string): void {
    const row = data.chats.get(id);
    if (row && !row.left && row.prefix > row.chat.head_sequence) refresh(id);
  }

  async function learn(id: string): Promise<void> {
    const answer = await reign.ask('GET', pathOf(id), '$chat');
    if (answer.is === 'ok') await know([answer.body as Chat], answer.of);
    else if (data.chats.has(id)) {
      await reign.commit(() => ({ chats: [{ chat_id: id, left: true }] }));
    }
  }

  async function fill(id: string): Promise<void> {
    try {
      // The caller notes first that this runs.
      await Promise.resolve();
      for (let before = -1; ;) {
        const prefix = data.chats.get(id)?.prefix;
        if (prefix === undefined || prefix === before
          || prefix >= (repairing.get(id) ?? 0)) {
          recount(id);
          return;
        }
        before = prefix;
        const answer = await reign.ask('GET', pathOf(id,
          `/messages?after_sequence=${prefix}&limit=${HISTORY_PAGE}`), '$messages');
        if (answer.is === 'refused') {
          refresh(id);
          return;
        }
        owner.byRest(id);
        if (await reign.take(incarnation(), entriesOf(answer.body as MessageList))) {
          before = -1;
          await reign.pause(SETTLE_MS);
        }
      }
    } finally {
      repairing.delete(id);
      repairs.delete(id);
    }
  }

  function repair(id: string, through: number): Promise<void> {
    repairing.set(id, Math.max(through, repairing.get(id) ?? 0));
    const running = repairs.get(id) ?? fill(id);
    repairs.set(id, running);
    return running;
  }

  function refreshTicks(id: string): void {
    if (ticking.has(id)) return;
    ticking.add(id);
    reign.spawn(ticks(id).finally(() => { ticking.delete(id); }));
  }

  /** Gets who the members of a chat are, and how far they are. */
  async function ticks(id: string): Promise<void> {
    const row = data.chats.get(id);
    if (!row || row.left) return;
    let list: MemberList | undefined;
    if (row.chat.type !== 'direct' && row.chat.member_count <= STATUSES) {
      const answer = await reign.ask('GET', pathOf(id, '/members?limit=1000'), '$members');
      if (answer.is === 'ok') list = answer.body as MemberList;
    }
    const path = `/statuses?chat_id=${encodeURIComponent(id)}`;
    const answer = await reign.ask('GET', path, '$results');
    const news = answer.is === 'refused' ? []
      : (answer.body as Partial<StatusResults>).results?.flatMap((one) => one.status_updates) ?? [];
    await reign.commit((): Change | undefined => {
      const old = data.chats.get(id);
      // Statuses of other data are asked for again after the sync.
      if (!old || !isPresent(old)) return undefined;
      const boundaries = merged(old.boundaries,
        news.filter((one) => has(`status_${one.scope}`, one)
          && !(one.scope === 'member' && one.user_id === options.user)));
      // If somebody has come or gone meanwhile, the list says nothing.
      const members = list && list.members_version >= old.membersVersion && {
        membersVersion: list.members_version,
        members: list.members.map((one) => one.user_id).filter((one) => one !== options.user),
      };
      return { chats: [{ ...withLatch({ ...members, boundaries }, old), chat_id: id }] };
    });
    if (list && needsMembers(data.chats.get(id))) {
      await reign.pause(MEMBERS_MS);
      await ticks(id);
    }
  }

  return {
    know, learn, recount, refresh, repair, whole,
    list() { reign.spawn(list().then(() => { if (state === 'synced') owner.listed(); })); },
    get synced() { return state === 'synced'; },
    opened() {
      older = new Set(data.chats.keys());
      start();
    },
    sync() {
      older = undefined;
      start();
    },
    touched(id) { if (shown.has(id) && needsMembers(data.chats.get(id))) refreshTicks(id); },
    show(id) {
      if (shown.has(id)) return;
      shown.add(id);
      refreshTicks(id);
    },
  };
}
