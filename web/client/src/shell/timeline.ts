// A part of a chat on screen, which grows upwards by pages and downwards by itself.

import { bare } from '../core/revision.js';
import {
  contiguous, itemsOf, mergedEntries, outdated, wiped, type Commands,
} from '../core/timeline.js';
import type { Entry, Item, StoredChat, Timeline } from '../types.js';
import { queue, type Data } from './data.js';
import { derived, type Guard } from './views.js';

export interface TimelineOwner {
  readonly id: string;
  readonly user: string;
  readonly page: number;
  readonly guard: Guard;
  readonly commands: Commands;
  /** Is undefined before the store is loaded, after a stop, and after a sign-out. */
  data(): Data | undefined;
  /**
   * Gets a page of history from the server, and whether there is more. Returns undefined if there
   * is no answer.
   */
  history(before: number, limit: number): Promise<{ entries: Entry[]; more: boolean } | undefined>;
  /** Calls a function after some time, if the timeline is still open. */
  later(then: () => void): void;
  closed(): void;
}

export interface OpenTimeline extends Timeline {
  /** The chat or the outbox has changed. */
  changed(): void;
  /** The data are others. */
  reset(): void;
}

export function timelineOf(owner: TimelineOwner): OpenTimeline {
  const { id, page } = owner;
  let entries: readonly Entry[] = [];
  /** The lowest sequence that is shown; entries below it come by pages. */
  let low = Infinity;
  let seen: StoredChat | undefined;
  let complete = false;
  /** How often the data became others. What was asked for before is dropped. */
  let resets = 0;

  const row = (): StoredChat | undefined => owner.data()?.chats.get(id);
  const items = derived<readonly Item[]>(owner.guard, (old = []) => {
    const data = owner.data();
    // After a stop, what was shown stays. After a sign-out nothing was seen.
    if (!data) return seen ? old : [];
    const waiting = data.outbox.filter((item) => item.chat_id === id);
    return itemsOf(entries, waiting, row(), owner.user, owner.commands, old);
  });

  const inOrder = queue();

  const add = (news: readonly Entry[]): void => {
    entries = wiped(mergedEntries(entries, news.map((entry) =>
      entry.message ? { ...entry, message: bare(entry.message) } : entry)));
    low = Math.min(low, entries[0]?.from ?? Infinity);
  };

  /** Reads what has changed above the prefix that was there before. */
  async function refresh(): Promise<void> {
    const mine = resets;
    const data = owner.data();
    const now = row();
    if (!data || !now || now === seen) return;
    if (seen && (now.incarnation !== seen.incarnation || now.prefix < seen.prefix
      || now.base > seen.base)) {
      // Some entries are gone, or may have changed.
      entries = [];
      low = Infinity;
      complete = false;
      seen = undefined;
    }
    const from = seen?.prefix ?? Math.max(0, now.prefix - page);
    for (let before = Infinity; before > from + 1;) {
      const top = await data.run((store) => store.page(id, before, page));
      if (mine !== resets) return;
      const news = top.filter((entry) => entry.to > from);
      add(news);
      before = news.length === page ? news[0]?.from ?? 0 : 0;
    }
    // Below the base there may be islands: only what is whole is shown.
    if (!seen) {
      const above = entries.filter((entry) => entry.from > now.prefix);
      entries = [...contiguous(entries.filter((entry) => entry.from <= now.prefix), now.prefix),
        ...above];
      low = Math.min(entries[0]?.from ?? Infinity, now.prefix + 1);
    }
    seen = now;
  }

  async function more(): Promise<boolean> {
    const mine = resets;
    const data = owner.data();
    if (complete || !data || low <= 1) return false;
    if (low === Infinity) return true;
    const stored = contiguous(await data.run((store) => store.page(id, low, page)), low - 1);
    if (mine !== resets) return true;
    add(stored);
    const missing = page - stored.length;
    if (missing > 0 && low > 1) {
      const got = await owner.history(low, missing);
      if (mine !== resets) return true;
      if (got) {
        add(got.entries);
        complete = !got.more;
        await renew();
      }
    }
    items.changed();
    void ask();
    return !complete && low > 1;
  }

  /** Takes from the store what was changed after it was read. */
  async function renew(): Promise<void> {
    const mine = resets;
    const data = owner.data();
    if (!data) return;
    for (const sequence of outdated(entries).keys()) {
      const got = await data.run((store) => store.page(id, sequence + 1, 1));
      if (mine !== resets) return;
      add(got.filter(({ from }) => from === sequence));
    }
  }

  /** Whether changed messages are asked for, or will be. */
  let asking = false;

  /**
   * Gets from the server what has changed and is not in the store. What the store has is shown
   * meanwhile.
   */
  async function ask(): Promise<void> {
    if (asking || !owner.data() || outdated(entries).size === 0) return;
    asking = true;
    const mine = resets;
    for (const sequence of outdated(entries).keys()) {
      const got = await owner.history(sequence + 1, 1);
      if (mine !== resets) break;
      if (!got) continue;
      const news = got.entries.filter(({ from }) => from === sequence);
      // The server no longer returns it, so the user may not see it.
      if (news.length === 0) entries = entries.filter(({ from }) => from !== sequence);
      add(news);
      items.changed();
    }
    if (outdated(entries).size === 0) {
      asking = false;
      return;
    }
    owner.later(() => {
      asking = false;
      void ask();
    });
  }

  /** Errors of the store are handled where they come from. */
  const update = (): Promise<void> => inOrder(async () => {
    const fresh = !seen;
    await refresh();
    await renew();
    items.changed();
    void ask();
    if (fresh && seen && entries.length < page) await more();
  }).catch(() => undefined);

  void update();
  return {
    items,
    older: () => inOrder(more).catch(() => true),
    changed() { void update(); },
    reset() {
      resets++;
      entries = [];
      low = Infinity;
      complete = false;
      seen = undefined;
      void update();
    },
    close() { owner.closed(); },
  };
}
