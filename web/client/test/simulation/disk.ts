// The disks of the simulated browsers, and what goes wrong with them.

import { storeFull, storeLost, storeUnavailable } from '../../src/errors.js';
import { MemoryData, UserData } from '../../src/store/memory.js';
import { storeOn } from '../../src/store/steps.js';
import type {
  Change, Changes, Committed, Entry, NewSend, Opened, Store, StoredChat,
} from '../../src/types.js';

export type StoreStep = 'open' | 'lead' | 'commit' | 'add' | 'edit' | 'markRead' | 'page'
  | 'changes' | 'wipe';

/**
 * What may happen to one step:
 *
 * - `crash before`, `crash after`: the tab dies before or after the step's effect.
 * - `full`: there is no space.
 * - `unavailable`: the step fails, without its effect.
 * - `unknown`: the step has its effect, and fails.
 * - `slow`: the step takes 14 s.
 * - `lost`: the data have vanished.
 */
export type StoreFault = 'crash before' | 'crash after' | 'full' | 'unavailable' | 'unknown'
  | 'slow' | 'lost';

/** The disk of a browser. */
export class Disk {
  readonly data = new MemoryData();
  /** Tells it from its copies, whose data have the same identity. */
  readonly tag: string;
  readonly #newId: () => string;

  constructor(newId: () => string) {
    this.#newId = newId;
    this.tag = newId();
  }

  /** Returns a store on this disk. Each of its transactions begins after `wait`. */
  store(durable: boolean, wait = (): Promise<void> => Promise.resolve()): Store {
    const { users } = this.data;
    let key: string | undefined;
    return storeOn({
      durable,
      attach(user, server) {
        key = `${server} ${user}`;
        if (!users.has(key)) users.set(key, new UserData());
      },
      async transact(_, run) {
        await wait();
        const data = users.get(key ?? '');
        if (data === undefined) throw storeLost('The store is closed.');
        return data.transact(run);
      },
      detach() { key = undefined; },
    }, this.#newId);
  }

  /** Removes all data, as a browser does that needs space. Nothing is left of them. */
  async evict(): Promise<void> {
    for (const user of this.data.users.values()) {
      await user.transact((tables) => {
        tables.clear();
        // As if there were no row.
        tables.putMeta({ id: '', device: '', term: 0, rev: 0, ordinal: 0, format: 1,
          readableBy: 1 });
        return Promise.resolve();
      });
    }
  }

  /** Returns a copy, as of a profile that was restored from a backup. */
  async copy(newId: () => string): Promise<Disk> {
    const copy = new Disk(newId);
    for (const [key, from] of this.data.users) {
      const at = key.indexOf(' ');
      await copy.store(true).open(key.slice(at + 1), key.slice(0, at));
      const to = copy.data.users.get(key);
      const content = await from.transact(async (t) => {
        const chats = await t.chats(-1);
        const entries: Entry[] = [];
        for (const row of chats) {
          entries.push(...await t.entries(row.chat.chat_id, 0, Number.MAX_SAFE_INTEGER));
        }
        return { meta: await t.meta(), chats, entries, outbox: await t.outbox() };
      });
      await to?.transact((t) => {
        if (content.meta !== undefined) t.putMeta(content.meta);
        content.chats.forEach((row) => {
          t.putChat(row);
        });
        content.entries.forEach((entry) => {
          t.putEntry(entry);
        });
        content.outbox.forEach((item) => {
          t.putSend(item);
        });
        return Promise.resolve();
      });
    }
    return copy;
  }
}

/** What a store tells, and by what it is disturbed. */
export interface StoreWatch {
  /** Called before each step. Returns what happens to it. */
  fault(step: StoreStep): StoreFault | undefined;
  /** Resolves after some time, if the tab still runs. */
  pass(ms: number): Promise<void>;
  /** The tab dies. */
  crash(): void;
  /** The disk's data vanish. */
  evict(): Promise<void>;
  /** A step has had its effect, and the client will be told unless it dies. */
  opened(user: string, opened: Opened): void;
  committed(id: string, change: Change, rows: readonly StoredChat[], returned: boolean): void;
  told(id: string, rows: readonly StoredChat[]): void;
  added(id: string, send: NewSend): void;
}

const never = new Promise<never>(() => undefined);

/** A store as a client of the simulation sees it. */
export class WatchedStore implements Store {
  readonly durable: boolean;
  onlost?: (why: string) => void;
  readonly #inner: Store;
  readonly #watch: StoreWatch;
  #id = '';
  /** How long the next transaction waits, in milliseconds. */
  #wait = 0;

  constructor(disk: Disk, durable: boolean, watch: StoreWatch) {
    this.#inner = disk.store(durable, () => this.#watch.pass(this.#wait));
    this.#watch = watch;
    this.durable = durable;
  }

  async #step<T>(
    step: StoreStep, run: () => Promise<T>, after: (result: T, returned: boolean) => void,
  ): Promise<T> {
    const fault = this.#watch.fault(step);
    const fails = fault === 'crash before' || fault === 'full' || fault === 'unavailable';
    if (fails || fault === 'lost') await this.#watch.pass(1);
    if (fault === 'crash before') {
      this.#watch.crash();
      return never;
    }
    if (fault === 'full') throw storeFull('no space');
    if (fault === 'unavailable') throw storeUnavailable('no storage');
    if (fault === 'lost') {
      await this.#watch.evict();
      this.onlost?.('evicted');
    }
    // The step is asked for now, and its transaction comes later: what it is for may be gone then.
    this.#wait = fault === 'slow' ? 14_000 : 1;
    const result = await run();
    after(result, fault === undefined || fault === 'slow');
    if (fault === 'crash after') {
      this.#watch.crash();
      return never;
    }
    await this.#watch.pass(1);
    if (fault === 'unknown') throw storeUnavailable('no answer');
    return result;
  }

  open(user: string, server: string): Promise<Opened> {
    return this.#step('open', () => this.#inner.open(user, server), (opened) => {
      this.#id = opened.id;
      this.#watch.opened(user, opened);
    });
  }

  lead(): Promise<number> {
    return this.#step('lead', () => this.#inner.lead(), () => undefined);
  }

  commit(term: number, change: Change): Promise<Committed> {
    return this.#step('commit', () => this.#inner.commit(term, change), ({ chats }, returned) => {
      this.#watch.committed(this.#id, change, chats, returned);
    });
  }

  add(send: NewSend): Promise<number> {
    return this.#step('add', () => this.#inner.add(send), () => {
      this.#watch.added(this.#id, send);
    });
  }

  edit(...args: Parameters<Store['edit']>): Promise<void> {
    return this.#step('edit', () => this.#inner.edit(...args), () => undefined);
  }

  markRead(chatId: string, through: number): Promise<number> {
    return this.#step('markRead', () => this.#inner.markRead(chatId, through), () => undefined);
  }

  page(chatId: string, before: number, limit: number): Promise<readonly Entry[]> {
    return this.#step('page', () => this.#inner.page(chatId, before, limit), () => undefined);
  }

  changes(since: number): Promise<Changes> {
    return this.#step('changes', () => this.#inner.changes(since), ({ chats }) => {
      this.#watch.told(this.#id, chats);
    });
  }

  wipe(options: { unsent: 'refuse' | 'discard' }): Promise<void> {
    return this.#step('wipe', () => this.#inner.wipe(options), () => undefined);
  }

  close(): void {
    this.#inner.close();
  }
}
