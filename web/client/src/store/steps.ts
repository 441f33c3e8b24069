// What the steps of a store do, once for all stores. A store gives its tables, and transactions on
// them. So stores can't differ in what they mean.

import { hexOf } from '../core/hex.js';
import { bare, changedBy, isOlder, revisionOf, stubOf, targetsOf } from '../core/revision.js';
import { fenced, signedOut, storeLost, storeOutdated, unsent } from '../errors.js';
import type {
  Change, ChatFacts, Entry, OutboxItem, Position, Store, StoredChat,
} from '../types.js';
import { isShown } from '../wire/events.js';
import type { Message } from '../wire.gen.js';

/** One row for all data of a user. Every step that writes, writes it too. */
export interface Meta {
  /** Is empty after `wipe`. */
  id: string;
  device: string;
  /** Never falls, not even by `wipe`. */
  term: number;
  rev: number;
  /** The last ordinal of the outbox. */
  ordinal: number;
  position?: Position | undefined;
  /** The identity that `wipe` removed. */
  wiped?: string;
  /** The format of the code that wrote the data last, and the lowest format that can read them. */
  format: number;
  readableBy: number;
}

/** The tables within one transaction. It ends when the step that got it has resolved. */
export interface Tables {
  meta(): Promise<Meta | undefined>;
  chat(id: string): Promise<StoredChat | undefined>;
  /** The chats with a higher revision. */
  chats(since: number): Promise<readonly StoredChat[]>;
  /** At most `limit` entries whose `from` is at least `low`, the lowest ones, ascending. */
  entries(chat: string, low: number, limit: number): Promise<readonly Entry[]>;
  /** At most `limit` entries whose `from` is at most `high`, the highest ones, descending. */
  entriesDown(chat: string, high: number, limit: number): Promise<readonly Entry[]>;
  /** All of the outbox, by ordinal. */
  outbox(): Promise<readonly OutboxItem[]>;
  putMeta(meta: Meta): void;
  putChat(row: StoredChat): void;
  /** Adds an entry, which covers nothing that another one covers. */
  putEntry(entry: Entry): void;
  putSend(item: OutboxItem): void;
  /** Removes the entries whose `from` is within low … high. */
  dropEntries(chat: string, low: number, high: number): void;
  dropSend(ordinal: number): void;
  clear(): void;
}

/** What the steps need of a technology. */
export interface Disk {
  readonly durable: boolean;
  /** Chooses the data of one user at one server. */
  attach(user: string, server: string): void;
  /** Runs one atomic step. If it rejects, nothing has changed. */
  transact<T>(write: boolean, run: (tables: Tables) => Promise<T>): Promise<T>;
  detach(): void;
  /** Changes what code of an older format has stored to what this code stores. */
  upgrade?(tables: Tables): Promise<void>;
}

/**
 * The format that this code writes. Code of format 1 takes an edit in the outbox for a message, and
 * changes no message, so it must not touch these data.
 */
export const FORMAT = 2;

type Mutable<T> = { -readonly [K in keyof T]: T[K] };
export type Row = Mutable<StoredChat>;

const BATCH = 256;

/** The entries that cover `from` or what is above it, ascending. It reads as far as it is asked. */
export async function* scan(
  tables: Tables, chat: string, from: number,
): AsyncGenerator<Entry, undefined> {
  const [before] = await tables.entriesDown(chat, from - 1, 1);
  if (before && before.to >= from) yield before;
  for (let low: number | undefined = from; low;) {
    const batch: readonly Entry[] = await tables.entries(chat, low, BATCH);
    yield* batch;
    const last = batch[BATCH - 1];
    low = last && last.to + 1;
  }
}

const unreadBy = (user: string, { message }: Entry) =>
  message?.kind === 'message' && message.sender_id !== user ? 1 : 0;

/** Counts what is unread anew. */
async function recount(tables: Tables, user: string, row: Row): Promise<void> {
  row.unread = 0;
  for await (const entry of scan(tables, row.chat.chat_id, row.read + 1)) {
    if (entry.from > row.prefix) break;
    row.unread += unreadBy(user, entry);
  }
}

/** Raises `read`, at most to the prefix. Returns whether that changed anything. */
async function raise(tables: Tables, user: string, row: Row, through: number): Promise<boolean> {
  const read = Math.min(through, row.prefix);
  if (read <= row.read) return false;
  row.read = read;
  await recount(tables, user, row);
  return true;
}

/** Raises the prefix over a stored entry, if that is the next one. */
function pass(user: string, row: Row, entry: Entry): boolean {
  if (entry.from > row.prefix + 1) return false;
  if (entry.to > row.prefix) {
    row.prefix = entry.to;
    row.unread += unreadBy(user, entry);
  }
  return true;
}

/** Stores what no entry covers yet. */
async function fill(
  tables: Tables, user: string, row: Row, entries: readonly Entry[],
): Promise<void> {
  let stored: ReturnType<typeof scan> | undefined;
  let old: Entry | undefined;
  /** The next sequence. What is below it in this run is covered. */
  let at = 0;
  for (const entry of [...entries].sort((a, b) => a.from - b.from)) {
    if (!stored || entry.from > at) {
      at = entry.from;
      stored = scan(tables, row.chat.chat_id, at);
      old = (await stored.next()).value;
    }
    while (at <= entry.to) {
      if (old && old.from <= at) {
        at = Math.max(at, old.to + 1);
        old = (await stored.next()).value;
        continue;
      }
      const piece = {
        ...entry, ...entry.message && { message: bare(entry.message) },
        from: at, to: Math.min(entry.to, old ? old.from - 1 : entry.to),
      };
      tables.putEntry(piece);
      at = piece.to + 1;
      if (piece.from > row.read && piece.from <= row.prefix) row.unread += unreadBy(user, piece);
      pass(user, row, piece);
      const { message } = piece;
      if (isShown(message) && message.sequence > (row.last?.sequence ?? 0)) row.last = message;
    }
  }
}

export function replace(tables: Tables, entry: Entry, message: Message): void {
  tables.dropEntries(entry.chat_id, entry.from, entry.from);
  tables.putEntry({ ...entry, message });
}

/** Puts messages in the places of older states of them. */
export async function revise(
  tables: Tables, row: Row, messages: readonly Message[],
): Promise<void> {
  for (const message of messages) {
    const [entry] = await tables.entriesDown(row.chat.chat_id, message.sequence, 1);
    if (entry && isOlder(entry.message, message)) replace(tables, entry, message);
    if (isOlder(row.last, message)) row.last = message;
    if (isOlder(row.chat.last_message, message)) row.chat = { ...row.chat, last_message: message };
  }
}

/** Wipes the messages that redactions of several name. The messages do not come with them. */
async function wipe(
  tables: Tables, row: Row, messages: readonly (Message | undefined)[],
): Promise<void> {
  for (const by of messages) {
    if (!by?.relation?.sequences) continue;
    for (const sequence of targetsOf(by)) {
      const [entry] = await tables.entriesDown(row.chat.chat_id, sequence, 1);
      const found = [entry?.message, row.last, row.chat.last_message]
        .filter((one): one is Message => one?.sequence === sequence);
      await revise(tables, row, found.map((one) => stubOf(one, by)));
    }
  }
}

/** Raises the prefix over what is stored. */
async function extend(tables: Tables, user: string, row: Row): Promise<void> {
  for await (const entry of scan(tables, row.chat.chat_id, row.prefix + 1)) {
    if (!pass(user, row, entry)) break;
  }
}

/** Lowers every number of an object to at most `through`. */
function lower<T extends object>(object: T, through: number): T {
  return Object.fromEntries(Object.entries(object).map(([key, value]: [string, unknown]) =>
    [key, typeof value === 'number' ? Math.min(value, through) : value])) as T;
}

async function rebase(
  tables: Tables, user: string, row: Row, through: number, incarnation: string,
): Promise<void> {
  const id = row.chat.chat_id;
  tables.dropEntries(id, through + 1, Infinity);
  const [top] = await tables.entriesDown(id, through, 1);
  if (top && top.to > through) {
    tables.dropEntries(id, top.from, top.from);
    tables.putEntry({ ...top, to: through });
  }
  // What was changed above comes again, as it was before.
  let whole = through;
  for await (const { from, message } of scan(tables, id, 1)) {
    if (revisionOf(message) <= through) continue;
    tables.dropEntries(id, from, from);
    if (from > row.base) whole = Math.min(whole, from - 1);
  }
  const { base, acknowledged, readConfirmed } = row;
  Object.assign(row, lower({ base, acknowledged, readConfirmed }, through), {
    incarnation,
    latch: lower(row.latch, through),
    boundaries: row.boundaries.map((boundary) => lower(boundary, through)),
  });
  row.prefix = Math.max(row.base, Math.min(row.prefix, whole));
  row.read = Math.min(row.read, row.prefix);
  delete row.last;
  let [entry] = await tables.entriesDown(id, through, 1);
  while (entry && !isShown(entry.message)) {
    [entry] = await tables.entriesDown(id, entry.from - 1, 1);
  }
  if (entry?.message) row.last = entry.message;
  await recount(tables, user, row);
  for (const item of await tables.outbox()) {
    if (item.chat_id !== id) continue;
    // Another message may take the place of the one that it would change.
    if ((item.relation?.sequence ?? 0) > through) tables.dropSend(item.ordinal);
    else if (Math.max(item.seen, item.after) > through) {
      tables.putSend({ ...item, ...lower({ seen: item.seen, after: item.after }, through) });
    }
  }
}

/** The parts of a change that are of one chat. */
interface Part {
  rebase?: { through: number; incarnation: string };
  facts?: Partial<ChatFacts>;
  entries: Entry[];
  read: number;
}

function byChat(change: Change): Map<string, Part> {
  const parts = new Map<string, Part>();
  const of = (id: string): Part => {
    const part = parts.get(id) ?? { entries: [], read: 0 };
    parts.set(id, part);
    return part;
  };
  for (const { chat_id, ...rebase } of change.rebase ?? []) of(chat_id).rebase = rebase;
  for (const { chat_id, ...facts } of change.chats ?? []) {
    of(chat_id).facts = { ...of(chat_id).facts, ...facts };
  }
  for (const entry of change.entries ?? []) of(entry.chat_id).entries.push(entry);
  for (const { chat_id, through } of change.read ?? []) {
    of(chat_id).read = Math.max(of(chat_id).read, through);
  }
  return parts;
}

/** Applies a part to its chat. Returns undefined if the chat is not known and nothing needs it. */
async function apply(
  tables: Tables, user: string, id: string, part: Part,
): Promise<Row | undefined> {
  const old = await tables.chat(id);
  if (!old && !part.facts?.chat) {
    if (part.entries.length > 0) throw new Error(`The store has no chat ${id}.`);
    return undefined;
  }
  const row: Row = { base: 0, prefix: 0, unread: 0, read: 0, rev: 0, ...old } as Row;
  if (old && part.rebase) {
    await rebase(tables, user, row, part.rebase.through, part.rebase.incarnation);
  }
  const { base, prefix } = row;
  Object.assign(row, part.facts);
  const moved = row.base < base || row.base > prefix;
  if (moved) row.prefix = row.base;
  const rose = row.base > base;
  if (rose) {
    // What comes does not say how this was changed meanwhile.
    const [edge] = await tables.entriesDown(id, row.base, 1);
    tables.dropEntries(id, 0, row.base);
    if (edge && edge.to > row.base) tables.putEntry({ ...edge, from: row.base + 1 });
    if (row.last && row.last.sequence <= row.base) delete row.last;
  }
  await fill(tables, user, row, part.entries);
  await revise(tables, row,
    changedBy([row.chat.last_message, ...part.entries.map((entry) => entry.message)]));
  await wipe(tables, row, part.entries.map((entry) => entry.message));
  await extend(tables, user, row);
  if (moved || rose) {
    row.read = Math.min(row.read, row.prefix);
    await recount(tables, user, row);
  }
  await raise(tables, user, row, part.read);
  return row;
}

async function commit(
  tables: Tables, user: string, meta: Meta, change: Change,
): Promise<readonly StoredChat[]> {
  const rows: Row[] = [];
  for (const [id, part] of byChat(change)) {
    const row = await apply(tables, user, id, part);
    if (row) rows.push(row);
  }
  const sent = new Set(change.sent);
  const failed = new Map(change.failed?.map((one) => [one.client_message_id, one.problem]));
  if (sent.size + failed.size > 0) {
    for (const item of await tables.outbox()) {
      const problem = failed.get(item.client_message_id);
      if (sent.has(item.client_message_id)) tables.dropSend(item.ordinal);
      else if (problem) tables.putSend({ ...item, state: 'failed', problem });
    }
  }
  if (change.position !== undefined) meta.position = change.position ?? undefined;
  meta.rev++;
  for (const row of rows) {
    row.rev = meta.rev;
    tables.putChat(row);
  }
  return rows;
}

async function load(tables: Tables): Promise<Meta | undefined> {
  const meta = await tables.meta();
  if (meta && meta.readableBy > FORMAT) throw storeOutdated('Newer code has changed the data.');
  return meta;
}

/** Returns 128 random bits. `crypto.randomUUID` is not there on insecure origins. */
const randomId = (): string => hexOf(crypto.getRandomValues(new Uint8Array(16)));

/** Makes a store of a disk. */
export function storeOn(disk: Disk, newId: () => string = randomId): Store {
  let id = '';
  let user = '';

  /** Runs a step on the data that `open` had found when the step was asked for. */
  function step<T>(
    write: boolean, run: (tables: Tables, meta: Meta) => T | Promise<T>,
  ): Promise<T> {
    const wanted = id;
    return disk.transact(write, async (tables) => {
      const meta = await load(tables);
      if (!meta?.id || meta.id !== wanted) throw storeLost('The stored data are gone.');
      const result = await run(tables, meta);
      if (write) tables.putMeta(meta);
      return result;
    });
  }

  return {
    durable: disk.durable,
    async open(name, server) {
      disk.attach(name, server);
      const opened = await disk.transact(true, async (tables) => {
        let meta = await load(tables);
        if (id && meta?.wiped === id) {
          // The next call begins anew.
          id = '';
          throw signedOut('The user has signed out.');
        }
        if (!meta?.id) {
          meta = {
            id: newId(), device: newId(), term: (meta?.term ?? 0) + 1, rev: 0,
            ordinal: 0, format: FORMAT, readableBy: FORMAT,
          };
          tables.putMeta(meta);
        }
        if (meta.format < FORMAT) {
          await disk.upgrade?.(tables);
          meta.format = meta.readableBy = FORMAT;
          tables.putMeta(meta);
        }
        return {
          meta, chats: await tables.chats(-1), outbox: await tables.outbox(),
        };
      });
      ({ id } = opened.meta);
      user = name;
      const { device, rev, position } = opened.meta;
      const { chats, outbox } = opened;
      return { id, device, rev, chats, outbox, ...position && { position } };
    },
    lead: () => step(true, (_, meta) => ++meta.term),
    commit: (term, change) => step(true, async (tables, meta) => {
      if (term !== meta.term) throw fenced(`Term ${term} is over: another tab leads.`);
      const chats = await commit(tables, user, meta, change);
      return { rev: meta.rev, chats };
    }),
    add: (send) => step(true, async (tables, meta) => {
      // A step whose answer was lost is repeated.
      const same = (item: OutboxItem) => item.client_message_id === send.client_message_id;
      const twin = (await tables.outbox()).find(same);
      if (twin) return twin.ordinal;
      meta.rev++;
      tables.putSend({ ...send, ordinal: ++meta.ordinal, state: 'due' });
      return meta.ordinal;
    }),
    edit: (clientMessageId, change) => step(true, async (tables, meta) => {
      const outbox = await tables.outbox();
      const item = outbox.find((one) => one.client_message_id === clientMessageId);
      if (!item) return;
      meta.rev++;
      if (change.to === 'discarded') {
        tables.dropSend(item.ordinal);
      } else if (item.state === 'failed') {
        const client_message_id = change.newId ?? clientMessageId;
        const due: Mutable<OutboxItem> = { ...item, client_message_id, state: 'due' };
        delete due.problem;
        tables.putSend(due);
      }
    }),
    markRead: (chatId, through) => step(true, async (tables, meta) => {
      const row = await tables.chat(chatId);
      if (!row) return 0;
      const raised: Row = { ...row };
      if (!await raise(tables, user, raised, through)) return row.read;
      raised.rev = ++meta.rev;
      tables.putChat(raised);
      return raised.read;
    }),
    page: (chatId, before, limit) => step(false, async (tables) =>
      [...await tables.entriesDown(chatId, before - 1, limit)].reverse()),
    changes: (since) => step(false, async (tables, { rev, position }) => ({
      rev, chats: await tables.chats(since), outbox: await tables.outbox(),
      ...position && { position },
    })),
    async wipe(options) {
      await step(true, async (tables, meta) => {
        if (options.unsent === 'refuse' && (await tables.outbox()).length > 0) {
          throw unsent();
        }
        tables.clear();
        Object.assign(meta, { id: '', device: '', rev: 0, ordinal: 0, wiped: id });
        delete meta.position;
        meta.term++;
      });
      id = '';
    },
    close: () => { disk.detach(); },
  };
}
