// A store that ends with the page.

import { storeLost } from '../errors.js';
import type { Entry, OutboxItem, Store, StoredChat } from '../types.js';
import { storeOn, type Meta, type Tables } from './steps.js';

/** What stores in memory keep, by user and server. Stores that share it are like tabs. */
export class MemoryData {
  readonly users = new Map<string, UserData>();
}

export interface MemoryOptions {
  /** The default is data of its own. */
  data?: MemoryData;
  /** Whether the data outlive the client, as they do in a test. The default is false. */
  durable?: boolean;
  /** Returns a new random id. The default has 128 random bits. */
  newId?: () => string;
}

/** Returns a store that keeps everything in memory. */
export function memoryStore(options: MemoryOptions = {}): Store {
  const { data = new MemoryData(), durable = false, newId } = options;
  let user: UserData | undefined;
  return storeOn({
    durable,
    attach(name, server) {
      const key = `${server} ${name}`;
      user = data.users.get(key) ?? new UserData();
      data.users.set(key, user);
    },
    transact(_, run) {
      if (!user) return Promise.reject(storeLost('The store is closed.'));
      return user.transact(run);
    },
    detach() { user = undefined; },
  }, newId);
}

/** The data of one user, and the tables over them. */
export class UserData implements Tables {
  #meta: Meta | undefined;
  #chats = new Map<string, StoredChat>();
  #entries = new Map<string, Entry[]>();
  #outbox = new Map<number, OutboxItem>();
  /** How to take the writes of the running step back, the last one first. */
  #undo: (() => void)[] = [];
  #last: Promise<unknown> = Promise.resolve();

  /** Runs steps one after the other. */
  transact<T>(run: (tables: Tables) => Promise<T>): Promise<T> {
    const result = this.#last.then(async () => {
      this.#undo = [];
      try {
        return await run(this);
      } catch (error) {
        for (const undo of this.#undo.reverse()) undo();
        throw error;
      }
    });
    this.#last = result.catch(() => undefined);
    return result;
  }

  meta() { return Promise.resolve(this.#meta && { ...this.#meta }); }
  chat(id: string) { return Promise.resolve(this.#chats.get(id)); }
  chats(since: number) {
    return Promise.resolve([...this.#chats.values()].filter((row) => row.rev > since));
  }

  entries(chat: string, low: number, limit: number) {
    const all = this.#of(chat);
    const start = place(all, low);
    return Promise.resolve(all.slice(start, start + limit));
  }

  entriesDown(chat: string, high: number, limit: number) {
    const all = this.#of(chat);
    const end = place(all, high + 1);
    return Promise.resolve(all.slice(Math.max(0, end - limit), end).reverse());
  }

  outbox() {
    return Promise.resolve([...this.#outbox.values()].sort((a, b) => a.ordinal - b.ordinal));
  }

  putMeta(meta: Meta) {
    const old = this.#meta;
    this.#undo.push(() => { this.#meta = old; });
    this.#meta = { ...meta };
  }

  putChat(row: StoredChat) { this.#set(this.#chats, row.chat.chat_id, row); }
  putSend(item: OutboxItem) { this.#set(this.#outbox, item.ordinal, item); }
  dropSend(ordinal: number) { this.#set(this.#outbox, ordinal, undefined); }

  putEntry(entry: Entry) {
    const all = this.#of(entry.chat_id);
    const at = place(all, entry.from);
    this.#splice(all, at, all[at]?.from === entry.from ? 1 : 0, [entry]);
  }

  dropEntries(chat: string, low: number, high: number) {
    const all = this.#of(chat);
    const start = place(all, low);
    this.#splice(all, start, place(all, high + 1) - start, []);
  }

  clear() {
    const [chats, entries, outbox] = [this.#chats, this.#entries, this.#outbox];
    this.#undo.push(() => {
      [this.#chats, this.#entries, this.#outbox] = [chats, entries, outbox];
    });
    this.#chats = new Map();
    this.#entries = new Map();
    this.#outbox = new Map();
  }

  #of(chat: string): Entry[] {
    const all = this.#entries.get(chat) ?? [];
    this.#entries.set(chat, all);
    return all;
  }

  #set<K, V>(table: Map<K, V>, key: K, value: V | undefined) {
    const old = table.get(key);
    this.#undo.push(() => { put(table, key, old); });
    put(table, key, value);
  }

  #splice(all: Entry[], at: number, remove: number, add: Entry[]) {
    const removed = all.splice(at, remove, ...add);
    this.#undo.push(() => { all.splice(at, add.length, ...removed); });
  }
}

function put<K, V>(table: Map<K, V>, key: K, value: V | undefined): void {
  if (value === undefined) table.delete(key);
  else table.set(key, value);
}

/** The index of the first entry that begins at or after `from`. */
function place(all: readonly Entry[], from: number): number {
  let low = 0;
  let high = all.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((all[middle]?.from ?? 0) < from) low = middle + 1;
    else high = middle;
  }
  return low;
}
