// What a store on IndexedDB does when the browser fails. The faults are made by patching the
// prototypes of IndexedDB, so the tests run in Node and in a page.

import { indexedDBStore, type IndexedDBOptions } from '../src/store/indexeddb.js';
import type { Store } from '../src/types.js';
import {
  check, entriesOf, factsOf, marksOf, ME, messageOf, pageOf, same, SERVER, sendOf, throws,
} from './scene.js';

interface Faults {
  /** A new store on the data of this test. */
  readonly tab: (options?: IndexedDBOptions) => Store;
  /** The name of the database. */
  readonly database: string;
}

interface FaultTest {
  readonly name: string;
  readonly run: (faults: Faults) => Promise<void>;
}

const tests: FaultTest[] = [];
const test = (name: string, run: (faults: Faults) => Promise<void>) => tests.push({ name, run });

export const faultTests: readonly FaultTest[] = tests;

/** Calls a test with data of its own. */
export function runFaultTest(one: FaultTest, prefix: string): Promise<void> {
  return one.run({
    database: `${prefix} ${SERVER} ${ME}`,
    tab: (options) => indexedDBStore({ name: prefix, ...options }),
  });
}

/** Replaces a method while `during` runs. */
async function patched<K extends PropertyKey, F extends (...all: never[]) => unknown>(
  object: Record<K, F>, method: K, instead: (original: F) => F, during: () => Promise<void>,
): Promise<void> {
  const original = object[method];
  object[method] = instead(original);
  try {
    await during();
  } finally {
    object[method] = original;
  }
}

type Open = (name: string, version?: number) => IDBOpenDBRequest;
type Put = (value: unknown, key?: IDBValidKey) => IDBRequest<IDBValidKey>;
type Begin = (
  stores: string[], mode?: IDBTransactionMode, options?: IDBTransactionOptions,
) => IDBTransaction;

const factory = () => Object.getPrototypeOf(indexedDB) as Record<'open', Open>;
const objects = () => IDBObjectStore.prototype as unknown as Record<'put', Put>;
const databases = () => IDBDatabase.prototype as unknown as Record<'transaction', Begin>;

function removed(name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.deleteDatabase(name);
    request.onsuccess = () => { resolve(); };
    request.onerror = () => { reject(request.error ?? new Error('not removed')); };
  });
}

/** Opens the database itself, at a version, and runs `use` in one transaction. */
function raw(name: string, version: number, use: (tx: IDBTransaction) => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(name, version);
    request.onerror = () => { reject(request.error ?? new Error('not opened')); };
    request.onsuccess = () => {
      const db = request.result;
      const tx = db.transaction(['meta', 'chats', 'entries', 'outbox'], 'readwrite');
      tx.oncomplete = () => {
        db.close();
        resolve();
      };
      use(tx);
    };
  });
}

async function team(store: Store, count: number): Promise<number> {
  await store.open(ME, SERVER);
  const term = await store.lead();
  const all = Array.from({ length: count }, (_, i) => i + 1);
  await store.commit(term, { chats: [factsOf('team')], entries: entriesOf('team', all) });
  return term;
}

function lost(store: Store): Promise<string> {
  return new Promise((resolve) => { store.onlost = resolve; });
}

test('no database: open says so', async ({ tab }) => {
  await patched(factory(), 'open', () => () => {
    throw new DOMException('not here', 'SecurityError');
  }, () => throws('STORE_UNAVAILABLE', tab().open(ME, SERVER)));
});

test('no database: open says so without IndexedDB', async ({ tab }) => {
  const there = Object.getOwnPropertyDescriptor(globalThis, 'indexedDB');
  Object.defineProperty(globalThis, 'indexedDB', { value: undefined, configurable: true });
  try {
    await throws('STORE_UNAVAILABLE', tab().open(ME, SERVER));
  } finally {
    if (there) Object.defineProperty(globalThis, 'indexedDB', there);
    else Reflect.deleteProperty(globalThis, 'indexedDB');
  }
});

test('an open that hangs ends, and a later one works', async ({ tab }) => {
  const store = tab({ openMs: 2_000 });
  await patched(factory(), 'open', () => () => ({}) as IDBOpenDBRequest,
    () => throws('STORE_UNAVAILABLE', store.open(ME, SERVER)));
  same((await store.open(ME, SERVER)).chats, [], 'chats');
});

test('a step that fails is repeated on a new connection', async ({ tab }) => {
  const store = tab();
  const term = await team(store, 2);
  for (const times of [1, 2, 3]) {
    let left = times;
    await patched(databases(), 'transaction', (original) => function (this: IDBDatabase, ...all) {
      if (left-- > 0) throw new DOMException('broken', 'UnknownError');
      return original.apply(this, all);
    }, async () => {
      await store.commit(term, { entries: entriesOf('team', [2 + times]) });
    });
    same(await pageOf(store), [1, 2, 3, 4, 5].slice(0, 2 + times).join(' '), 'page');
  }
});

test('a step that always fails gives up', async ({ tab }) => {
  const store = tab();
  await team(store, 1);
  await patched(databases(), 'transaction', () => () => {
    throw new DOMException('broken', 'UnknownError');
  }, () => throws('STORE_UNAVAILABLE', store.add(sendOf('a'))));
  await store.add(sendOf('b'));
  same((await store.changes(-1)).outbox.map((item) => item.client_message_id), ['b'], 'outbox');
});

test('a step that hangs is repeated, and may have happened', async ({ tab }) => {
  const store = tab({ stepMs: 300 });
  await team(store, 1);
  let hung = false;
  await patched(databases(), 'transaction', (original) => function (this: IDBDatabase, ...all) {
    const tx = original.apply(this, all);
    if (hung) return tx;
    hung = true;
    // It commits, but never says so. It can't be aborted either.
    Object.defineProperty(tx, 'oncomplete', { set: () => undefined });
    tx.abort = () => undefined;
    return tx;
  }, async () => {
    same(await store.add(sendOf('a')), 1, 'ordinal');
  });
  check(hung, 'nothing hung');
  same((await store.changes(-1)).outbox.length, 1, 'outbox');
});

test('data that were removed: every call says so, and onlost', async ({ tab, database }) => {
  const store = tab();
  const term = await team(store, 1);
  const why = lost(store);
  await removed(database);
  same(await why, 'STORE_LOST', 'onlost');
  await throws('STORE_LOST', store.commit(term, {}));
  await throws('STORE_LOST', store.page('team', 9, 9));
  const other = await tab().open(ME, SERVER);
  await throws('STORE_LOST', store.add(sendOf('a')));
  same((await store.open(ME, SERVER)).id, other.id, 'the id of the new data');
});

test('close: onlost is not called when data vanish later', async ({ tab, database }) => {
  const store = tab();
  await team(store, 1);
  let calls = 0;
  store.onlost = () => { calls++; };
  store.close();
  await removed(database);
  await tab().open(ME, SERVER);
  same(calls, 0, 'calls of onlost');
});

test('newer code that changes the data does not wait for older code', async ({ tab, database }) => {
  const store = tab();
  const term = await team(store, 1);
  await raw(database, 3, (tx) => {
    tx.objectStore('meta').get(0).onsuccess = function () {
      const meta = this.result as object;
      tx.objectStore('meta').put({ ...meta, format: 3, extra: 'kept' }, 0);
    };
  });
  // The older code can read it, so it continues.
  await store.commit(term, { entries: entriesOf('team', [2]) });
  same(await pageOf(store), '1 2', 'page');
  same((await tab().open(ME, SERVER)).chats.map((row) => row.prefix), [2], 'prefix');
  await raw(database, 3, (tx) => {
    tx.objectStore('meta').get(0).onsuccess = function () {
      const { format, extra } = this.result as { format: number; extra: string };
      same([format, extra], [3, 'kept'], 'what newer code has written');
    };
  });
});

test('data that only newer code can read are left alone', async ({ tab, database }) => {
  const store = tab();
  const term = await team(store, 1);
  const why = lost(store);
  await raw(database, 3, (tx) => {
    tx.objectStore('meta').get(0).onsuccess = function () {
      const meta = this.result as object;
      tx.objectStore('meta').put({ ...meta, format: 3, readableBy: 3 }, 0);
    };
  });
  same(await why, 'STORE_OUTDATED', 'onlost');
  await throws('STORE_OUTDATED', store.commit(term, { entries: entriesOf('team', [2]) }));
  await throws('STORE_OUTDATED', store.page('team', 9, 9));
  await throws('STORE_OUTDATED', tab().open(ME, SERVER));
});

test('what older code has stored is changed, and it stays out', async ({ tab, database }) => {
  const old = messageOf('team', 1);
  const revision = {
    sequence: 2, kind: 'redact', by: 'bob', revised_at: '2026-01-31T10:00:09.000Z',
  };
  const target = { ...old, content: '', revision };
  const relation = { sequence: 1, sequences: null, emoji: null, target };
  const change = { ...messageOf('team', 2, 'bob', 'redact'), content: '', relation };
  Reflect.deleteProperty(old, 'revision');
  const store = tab();
  await store.open(ME, SERVER);
  const term = await store.lead();
  await store.commit(term, { chats: [factsOf('team')], entries: entriesOf('team', [old]) });
  store.close();
  await raw(database, 2, (tx) => {
    const [meta, chats, entries] = ['meta', 'chats', 'entries'].map((one) => tx.objectStore(one));
    if (!meta || !chats || !entries) return;
    meta.get(0).onsuccess = function () {
      meta.put({ ...this.result as object, format: 1, readableBy: 1 }, 0);
    };
    entries.put({ chat_id: 'team', from: 2, entries: entriesOf('team', [change]) });
    chats.get('team').onsuccess = function () {
      chats.put({ ...this.result as object, prefix: 2, last: change });
    };
  });
  const { chats } = await tab().open(ME, SERVER);
  same(chats.map(({ last }) => last?.content), [''], 'the last message');
  const left: string[] = [];
  await raw(database, 2, (tx) => {
    for (const name of ['meta', 'chats', 'entries']) {
      tx.objectStore(name).getAll().onsuccess = function () {
        left.push(JSON.stringify(this.result));
      };
    }
  });
  const text = left.join();
  check(text.includes('"readableBy":2') && text.includes('"format":2'), `not format 2: ${text}`);
  check(text.includes('"target":null') && !text.includes('text 1'), `left over: ${text}`);
});

/** Refuses to put new entries while there are `most` of them. */
function full(most: number): (original: Put) => Put {
  return (original) => function (this: IDBObjectStore, ...all) {
    if (this.name !== 'entries') return original.apply(this, all);
    const request = original.apply(this, all);
    const { transaction } = this;
    this.getAll().onsuccess = function () {
      const runs = this.result as { entries: unknown[] }[];
      if (runs.reduce((sum, { entries }) => sum + entries.length, 0) <= most) return;
      Object.defineProperty(transaction, 'error', {
        value: new DOMException('full', 'QuotaExceededError'),
      });
      transaction.abort();
    };
    return request;
  };
}

test('no space: what is read and old goes, and the base rises', async ({ tab }) => {
  const store = tab({ keep: 10 });
  const term = await team(store, 40);
  await store.markRead('team', 35);
  const { rev } = await store.commit(term, { chats: [factsOf('other')] });
  await patched(objects(), 'put', full(40), async () => {
    await store.commit(term, { entries: entriesOf('other', [1]) });
  });
  same(await marksOf(store), { base: 30, prefix: 40, read: 35, unread: 5, last: 40 }, 'marks');
  same(await pageOf(store, 34), '31 32 33', 'page');
  same((await store.changes(rev)).chats.length, 2, 'the chats that changed');
});

test('no space: what is not read stays, and the step says so', async ({ tab }) => {
  const store = tab({ keep: 10 });
  const term = await team(store, 40);
  await store.markRead('team', 5);
  await patched(objects(), 'put', full(40), async () => {
    await store.commit(term, { entries: entriesOf('team', [41]) });
    same(await marksOf(store), { base: 5, prefix: 41, read: 5, unread: 36, last: 41 }, 'marks');
    const many = [42, 43, 44, 45, 46].map((n) => messageOf('team', n));
    await throws('STORE_FULL', store.commit(term, { entries: entriesOf('team', many) }));
  });
  same((await marksOf(store)).prefix, 41, 'prefix');
  await store.commit(term, { entries: entriesOf('team', [42]) });
});

test('no space: a gap at the edge stays whole', async ({ tab }) => {
  const store = tab({ keep: 3 });
  await store.open(ME, SERVER);
  const term = await store.lead();
  const entries = entriesOf('team', [1, 2, [3, 9], 10, 11, 12]);
  await store.commit(term, { chats: [factsOf('team')], entries });
  await store.markRead('team', 5);
  await patched(objects(), 'put', full(6), async () => {
    await store.commit(term, { entries: entriesOf('team', [13]) });
  });
  same(await pageOf(store), '3-9 10 11 12 13', 'page');
  same(await marksOf(store), { base: 2, prefix: 13, read: 5, unread: 4, last: 13 }, 'marks');
});

test('a record has at most 128 entries, and few have one', async ({ tab, database }) => {
  await team(tab(), 300);
  const sizes: number[] = [];
  await raw(database, 2, (tx) => {
    tx.objectStore('entries').getAll().onsuccess = function () {
      sizes.push(...(this.result as { entries: unknown[] }[]).map((run) => run.entries.length));
    };
  });
  same(sizes, [128, 128, 44], 'sizes');
});

test('wipe: leaves nothing but the mark', async ({ tab, database }) => {
  const store = tab();
  const term = await team(store, 3);
  await store.commit(term, { position: { session_id: 'S', event_id: 1 } });
  const { id, device } = await store.open(ME, SERVER);
  await store.add(sendOf('a'));
  await store.wipe({ unsent: 'discard' });
  const found: unknown[] = [];
  await raw(database, 2, (tx) => {
    for (const name of ['meta', 'chats', 'entries', 'outbox']) {
      tx.objectStore(name).getAll().onsuccess = function () {
        found.push(...this.result as unknown[]);
      };
    }
  });
  same(found.length, 1, 'rows');
  const { wiped, ...rest } = found[0] as Record<string, unknown>;
  same(wiped, id, 'the mark');
  const text = JSON.stringify(rest);
  check(!text.includes(device) && !text.includes('"S"'), `left over: ${text}`);
});

test('every step that writes is strict, and includes the row of meta', async ({ tab }) => {
  const seen: unknown[] = [];
  await patched(databases(), 'transaction', (original) => function (this: IDBDatabase, ...all) {
    const [stores, mode, options] = all;
    if (mode === 'readwrite') seen.push([stores.includes('meta'), options?.durability]);
    return original.apply(this, all);
  }, async () => {
    const store = tab();
    await team(store, 1);
    await store.markRead('team', 1);
    await store.add(sendOf('a'));
    await store.wipe({ unsent: 'discard' });
  });
  same(seen, Array.from({ length: 6 }, () => [true, 'strict']), 'transactions');
});
