// A store on IndexedDB. It outlives the page, and all tabs of an origin share it.

import { codeOf, storeFull, storeLost, storeUnavailable } from '../errors.js';
import type { OutboxItem, Store, StoredChat } from '../types.js';
import { aborted, answer, RUN_KEY, Runs } from './runs.js';
import { FORMAT, storeOn, type Meta, type Tables } from './steps.js';
import { upgrade } from './upgrade.js';

export interface IndexedDBOptions {
  /** How the names of the databases begin. The default is `tidemark`. */
  name?: string;
  /** After how many milliseconds an open counts as hanging. The default is 5,000. */
  openMs?: number;
  /** After how many milliseconds a step counts as hanging. The default is 15,000. */
  stepMs?: number;
  /** How many of the newest entries of a chat stay when space is short. The default is 2,000. */
  keep?: number;
}

const STORES = ['meta', 'chats', 'entries', 'outbox'];

/** Returns a store that keeps everything in a database of the browser. */
export function indexedDBStore(options: IndexedDBOptions = {}): Store {
  const { name = 'tidemark', openMs = 5_000, stepMs = 15_000, keep = 2_000 } = options;
  /** The name of the database; empty after `close`. */
  let database = '';
  let connection: Promise<IDBDatabase> | undefined;

  function disconnect(): void {
    connection?.then((db) => { db.close(); }, () => undefined);
    connection = undefined;
  }

  // Newer code waits until older code has closed. Data that are removed close it, too.
  function closed(): void {
    disconnect();
    store.changes(Infinity).catch((error: unknown) => {
      if (database) store.onlost?.(codeOf(error) ?? String(error));
    });
  }

  async function connect(): Promise<IDBDatabase> {
    const opening = connection ??= open(database, openMs, closed);
    try {
      return await opening;
    } catch (error) {
      if (connection === opening) connection = undefined;
      throw error;
    }
  }

  async function transact<T>(write: boolean, run: (tables: Tables) => Promise<T>): Promise<T> {
    const opened = database;
    const end = Date.now() + stepMs;
    let trimmed = false;
    for (let tries = 1; ; tries++) {
      if (!opened || opened !== database) throw storeLost('The store is closed.');
      try {
        return await once(await connect(), write, stepMs, run);
      } catch (error) {
        const kind = error instanceof DOMException ? error.name : '';
        if (kind === 'QuotaExceededError') {
          if (trimmed) throw storeFull('The browser has no space left.');
          trimmed = true;
          // It fails as the step did if it makes no space.
          await connect().then((db) => trim(db, stepMs, keep)).catch(() => undefined);
          continue;
        }
        if (!kind || kind === 'DataCloneError') throw error;
        // The connection is dead, and the step may have happened. A step may be repeated.
        disconnect();
        if (tries > 3 || Date.now() > end + 999) throw storeUnavailable(String(error));
      }
    }
  }

  const store: Store = storeOn({
    durable: true,
    attach(user, server) {
      const wanted = `${name} ${server} ${user}`;
      if (wanted !== database) disconnect();
      database = wanted;
    },
    transact, upgrade,
    detach() {
      database = '';
      disconnect();
    },
  });
  return store;
}

/** Opens a database, which may be new. Calls `closed` when the browser closes it. */
function open(name: string, ms: number, closed: () => void): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const factory = globalThis.indexedDB as IDBFactory | undefined;
    if (!factory) throw storeUnavailable('There is no IndexedDB.');
    let late = false;
    const timer = setTimeout(() => {
      late = true;
      reject(storeUnavailable('The database does not open.'));
    }, ms);
    const attempt = (version?: number) => {
      const request = factory.open(name, version);
      request.onupgradeneeded = ({ oldVersion }) => {
        // Formats 1 and 2 have the same tables.
        if (oldVersion > 0) return;
        const db = request.result;
        db.createObjectStore('meta');
        db.createObjectStore('chats', { keyPath: 'chat.chat_id' }).createIndex('rev', 'rev');
        db.createObjectStore('entries', { keyPath: RUN_KEY });
        db.createObjectStore('outbox', { keyPath: 'ordinal' });
      };
      request.onsuccess = () => {
        clearTimeout(timer);
        const db = request.result;
        if (late) db.close();
        db.onversionchange = db.onclose = closed;
        resolve(db);
      };
      request.onerror = () => {
        // Newer code has written. The row of meta says whether this code can read it.
        if (request.error?.name === 'VersionError') {
          attempt();
        } else {
          clearTimeout(timer);
          reject(request.error ?? aborted());
        }
      };
    };
    attempt(FORMAT);
  });
}

/** Runs one transaction. */
function once<T>(
  db: IDBDatabase, write: boolean, ms: number, run: (tables: Tables) => Promise<T>,
): Promise<T> {
  return new Promise((resolve, reject) => {
    // A step that has resolved survives the loss of power. All steps that write have all stores, so
    // those of several tabs happen one after the other.
    const tx = db.transaction(STORES, write ? 'readwrite' : 'readonly', { durability: 'strict' });
    let failure: Error | undefined;
    const fail = (error: Error) => {
      failure ??= error;
      try {
        tx.abort();
      } catch {
        // It has ended already.
      }
    };
    const timer = setTimeout(() => {
      const hangs = new DOMException('A step hangs.', 'TimeoutError');
      fail(hangs);
      reject(hangs);
    }, ms);
    tx.onabort = () => {
      clearTimeout(timer);
      // A database that fails tells the transaction why, and its requests only that they ended.
      reject(tx.error ?? failure ?? aborted());
    };
    const runs = new Runs(tx.objectStore('entries'));
    const result = run(tablesOf(tx, runs)).then(async (value) => {
      await runs.flush();
      return value;
    });
    result.catch((error: unknown) => { fail(error as Error); });
    tx.oncomplete = () => {
      void result.then((value) => {
        clearTimeout(timer);
        resolve(value);
      });
    };
  });
}

function tablesOf(tx: IDBTransaction, runs: Runs): Tables {
  const [meta, chats, outbox] = ['meta', 'chats', 'outbox'].map((name) => tx.objectStore(name)) as
    [IDBObjectStore, IDBObjectStore, IDBObjectStore];
  return {
    meta: () => answer(meta.get(0)) as Promise<Meta | undefined>,
    chat: (id) => answer(chats.get(id)) as Promise<StoredChat | undefined>,
    chats: (since) =>
      answer(
        chats.index('rev').getAll(IDBKeyRange.lowerBound(since, true)),
      ) as Promise<StoredChat[]>,
    entries: (chat, low, limit) => runs.up(chat, low, limit),
    entriesDown: (chat, high, limit) => runs.down(chat, high, limit),
    outbox: () => answer(outbox.getAll()) as Promise<OutboxItem[]>,
    putMeta: (row) => { meta.put(row, 0); },
    putChat: (row) => { chats.put(row); },
    putEntry: (entry) => { runs.put(entry); },
    putSend: (item) => { outbox.put(item); },
    dropEntries: (chat, low, high) => { runs.drop(chat, low, high); },
    dropSend: (ordinal) => { outbox.delete(ordinal); },
    clear() {
      runs.clear();
      for (const store of [chats, outbox]) store.clear();
    },
  };
}

/**
 * Makes space: drops entries that are read, beyond the newest of each chat. The base rises above
 * what is dropped.
 */
function trim(db: IDBDatabase, ms: number, keep: number): Promise<void> {
  return once(db, true, ms, async (tables) => {
    const meta = await tables.meta();
    if (!meta) return;
    meta.rev++;
    for (const row of await tables.chats(-1)) {
      const id = row.chat.chat_id;
      const older = (await tables.entriesDown(id, Infinity, keep + 1))[keep];
      const cut = Math.min(older?.from ?? -1, row.read);
      const [edge] = await tables.entriesDown(id, cut, 1);
      if (!edge) continue;
      // A gap that reaches above the edge stays.
      const top = edge.to > cut ? edge.from - 1 : cut;
      tables.dropEntries(id, 0, top);
      tables.putChat({ ...row, base: Math.max(row.base, top), rev: meta.rev });
    }
    tables.putMeta(meta);
  });
}
