// What the store has, in memory, and every step that changes it.

import { codeOf } from '../errors.js';
import type {
  Change, Committed, Opened, OutboxItem, Position, Store, StoredChat,
} from '../types.js';

/** Is told what has changed: these chats, or the outbox. */
export type Watch = (chats: ReadonlySet<string>, outbox: boolean) => void;

export interface Data {
  readonly store: Store;
  readonly id: string;
  readonly device: string;
  readonly chats: ReadonlyMap<string, StoredChat>;
  readonly outbox: readonly OutboxItem[];
  readonly rev: number;
  readonly position: Position | undefined;
  /**
   * Runs a step of the store. If the store has failed for good, `failed` is called, and the promise
   * rejects.
   */
  run<T>(step: (store: Store) => Promise<T>): Promise<T>;
  /** Commits what `build` returns, which sees the state after all earlier steps. */
  commit(term: number, build: () => Change | undefined): Promise<Committed | undefined>;
  /** Takes in what other tabs have changed. */
  reread(): Promise<void>;
}

/** Returns what runs steps one after the other, also after one that has failed. */
export function queue(): <T>(step: () => T | Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (step) => {
    const result = last.then(step);
    last = result.catch(() => undefined);
    return result;
  };
}

export function dataOf(
  store: Store, opened: Opened, watch: Watch, failed: (code: string, error: unknown) => void,
): Data {
  const chats = new Map(opened.chats.map((row) => [row.chat.chat_id, row]));
  let { outbox, rev, position } = opened;
  /** The results of steps are taken in in the same order. */
  const inOrder = queue();

  async function run<T>(step: (store: Store) => Promise<T>): Promise<T> {
    try {
      return await step(store);
    } catch (error) {
      failed(codeOf(error) ?? 'STORE_UNAVAILABLE', error);
      throw error;
    }
  }

  async function reload(): Promise<void> {
    const news = await run((store) => store.changes(rev));
    if (news.rev === rev) return;
    for (const row of news.chats) chats.set(row.chat.chat_id, row);
    ({ outbox, rev, position } = news);
    watch(new Set(news.chats.map((row) => row.chat.chat_id)), true);
  }

  return {
    store, chats, run,
    id: opened.id,
    device: opened.device,
    get outbox() { return outbox; },
    get rev() { return rev; },
    get position() { return position; },
    reread: () => inOrder(reload),
    commit: (term, build) => inOrder(async () => {
      const change = build();
      if (!change) return undefined;
      const committed = await run((store) => store.commit(term, change));
      for (const row of committed.chats) chats.set(row.chat.chat_id, row);
      if (change.position !== undefined) position = change.position ?? undefined;
      const left = new Set(change.sent);
      const problems = new Map(change.failed?.map((one) =>
        [one.client_message_id, one.problem]));
      if (left.size + problems.size > 0) {
        outbox = outbox.filter((item) => !left.has(item.client_message_id)).map((item) => {
          const problem = problems.get(item.client_message_id);
          return problem ? { ...item, state: 'failed', problem } : item;
        });
      }
      // Another tab has changed something in between, or the step has changed the outbox itself.
      if (committed.rev !== rev + 1 || change.rebase?.length) await reload();
      else ({ rev } = committed);
      watch(new Set(committed.chats.map((row) => row.chat.chat_id)),
        left.size + problems.size > 0);
      return committed;
    }),
  };
}
