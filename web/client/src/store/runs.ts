// The entries in IndexedDB. A request for each would cost more than all the rest of a catch-up, so
// a record has a run of them.

import type { Entry } from '../types.js';

/** Entries that follow each other without a hole. Its key is `[chat_id, from]`. */
interface Run {
  readonly chat_id: string;
  readonly from: number;
  readonly entries: readonly Entry[];
}

/** How many entries a run has at most. */
const LENGTH = 128;

export const RUN_KEY = ['chat_id', 'from'];

/** The entries within one transaction. What is put or dropped is written by the next `flush`. */
export class Runs {
  readonly #store: IDBObjectStore;
  #todo: (Entry | { chat: string; low: number; high: number })[] = [];
  /** The run that was read or written last: often it is the next to be read. */
  #latest: Run | undefined;

  constructor(store: IDBObjectStore) {
    this.#store = store;
  }

  put(entry: Entry): void {
    this.#todo.push(entry);
  }

  drop(chat: string, low: number, high: number): void {
    this.#todo.push({ chat, low, high });
  }

  clear(): void {
    this.#todo = [];
    this.#latest = undefined;
    this.#store.clear();
  }

  async flush(): Promise<void> {
    const todo = this.#todo;
    this.#todo = [];
    let run: Entry[] = [];
    const write = () => {
      this.#write(run);
      run = [];
    };
    for (const one of todo) {
      if ('low' in one) {
        write();
        await this.#drop(one.chat, one.low, one.high);
        continue;
      }
      const last = run.at(-1);
      const follows = last?.chat_id === one.chat_id && last.to + 1 === one.from;
      if (!follows || run.length === LENGTH) write();
      run.push(one);
    }
    write();
  }

  /** As `Tables.entries`. */
  async up(chat: string, low: number, limit: number): Promise<Entry[]> {
    await this.flush();
    const found: Entry[] = [];
    let next = (await this.#below(chat, low))?.from ?? low;
    for (let count = 2; found.length < limit; count *= 2) {
      const runs = await answer(this.#store.getAll(range(chat, next, Infinity), count)) as Run[];
      for (const { entries } of runs) found.push(...entries.filter(({ from }) => from >= low));
      const last = runs[count - 1];
      if (!last) break;
      next = last.from + 1;
    }
    return found.slice(0, limit);
  }

  /** As `Tables.entriesDown`. */
  async down(chat: string, high: number, limit: number): Promise<Entry[]> {
    await this.flush();
    const found: Entry[] = [];
    for (let at = high; found.length < limit;) {
      const run = await this.#below(chat, at);
      if (!run) break;
      const entries = run.entries.filter(({ from }) => from <= at);
      found.push(...entries.slice(found.length - limit).reverse());
      at = run.from - 1;
    }
    return found;
  }

  /** The highest run that begins at `high` or below. */
  async #below(chat: string, high: number): Promise<Run | undefined> {
    if (high < 0) return undefined;
    const request = this.#store.openKeyCursor(range(chat, -1, high), 'prev');
    const key = (await answer(request))?.key as [string, number] | undefined;
    if (!key) return undefined;
    if (this.#latest?.chat_id !== chat || this.#latest.from !== key[1]) {
      this.#latest = await answer(this.#store.get(key)) as Run;
    }
    return this.#latest;
  }

  #write(entries: readonly Entry[]): void {
    const first = entries[0];
    if (!first) return;
    this.#latest = { chat_id: first.chat_id, from: first.from, entries };
    this.#store.put(this.#latest);
  }

  async #drop(chat: string, low: number, high: number): Promise<void> {
    const edges = [await this.#below(chat, low - 1), await this.#below(chat, high)];
    this.#store.delete(range(chat, low, high));
    this.#latest = undefined;
    for (const run of new Set(edges)) {
      if (!run) continue;
      this.#write(run.entries.filter(({ from }) => from < low));
      this.#write(run.entries.filter(({ from }) => from > high));
    }
  }
}

const range = (chat: string, low: number, high: number) =>
  IDBKeyRange.bound([chat, low], [chat, high]);

/** Resolves with the result of a request. */
export function answer<R extends IDBRequest>(request: R): Promise<R['result']> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => { resolve((request as { result: unknown }).result); };
    request.onerror = () => { reject(request.error ?? aborted()); };
  });
}

export const aborted = () => new DOMException('The transaction was aborted.', 'AbortError');
