// A part of a chat on screen, which grows upwards by pages and downwards by itself.

import { uncounted, type Counted, type Counts } from '../core/reactions.js';
import { bare } from '../core/revision.js';
import {
  contiguous, hasItem, itemsOf, mergedEntries, outdated, wiped, type Commands,
} from '../core/timeline.js';
import type { Entry, Item, StoredChat, Timeline } from '../types.js';
import { queue, type Data } from './data.js';
import { derived, type Guard } from './views.js';

/** A page of history, the reactions to its messages, and whether there is more. */
export interface History {
  readonly entries: readonly Entry[];
  readonly counts: Counts;
  readonly more: boolean;
}

export interface TimelineOwner {
  readonly id: string;
  readonly user: string;
  readonly page: number;
  readonly guard: Guard;
  readonly commands: Commands;
  /** Is undefined before the store is loaded, after a stop, and after a sign-out. */
  data(): Data | undefined;
  /** Gets a page of history from the server. Returns undefined if there is no answer. */
  history(before: number, limit: number): Promise<History | undefined>;
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
  const counts = new Map<number, Counted>();
  /** The lowest sequence that is shown; entries below it come by pages. */
  let low = Infinity;
  let seen: StoredChat | undefined;
  let complete = false;
  /** How often the data became others. What was asked for before is dropped. */
  let resets = 0;
  /** Nobody looks any more, so nothing is asked for. */
  let closed = false;

  const row = (): StoredChat | undefined => owner.data()?.chats.get(id);
  const items = derived<readonly Item[]>(owner.guard, (old = []) => {
    const data = owner.data();
    // After a stop, what was shown stays. After a sign-out nothing was seen.
    if (!data) return seen ? old : [];
    const waiting = data.outbox.filter((item) => item.chat_id === id);
    return itemsOf(entries, waiting, row(), owner.user, owner.commands, old, counts);
  });

  const inOrder = queue();

  const add = (news: readonly Entry[]): void => {
    entries = wiped(mergedEntries(entries, news.map((entry) =>
      entry.message ? { ...entry, message: bare(entry.message) } : entry)));
    low = Math.min(low, entries[0]?.from ?? Infinity);
  };

  /** Of two answers, the one that was counted later stays. */
  const count = (news: Counts): void => {
    for (const [sequence, one] of news) {
      if (one.through >= (counts.get(sequence)?.through ?? 0)) counts.set(sequence, one);
    }
  };

  const clear = (): void => {
    entries = [];
    counts.clear();
    low = Infinity;
    complete = false;
    seen = undefined;
  };

  /**
   * Reads what has changed above the prefix that was there before. Returns whether it began anew.
   * Then it has no more than the store has.
   */
  async function refresh(): Promise<boolean> {
    const mine = resets;
    const data = owner.data();
    const now = row();
    if (!data || !now || now === seen) return false;
    if (seen && (now.incarnation !== seen.incarnation || now.prefix < seen.prefix
      || now.base > seen.base)) {
      // Some entries are gone, or may have changed.
      clear();
    }
    const anew = !seen;
    const from = seen?.prefix ?? Math.max(0, now.prefix - page);
    for (let before = Infinity; before > from + 1;) {
      const top = await data.run((store) => store.page(id, before, page));
      if (mine !== resets) return false;
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
    return anew;
  }

  /** Loads a page. Returns whether it is there, has nothing to show, and is not the last. */
  async function load(): Promise<boolean> {
    const mine = resets;
    const data = owner.data();
    const high = low;
    if (closed || complete || !data || low <= 1 || low === Infinity) return false;
    const stored = contiguous(await data.run((store) => store.page(id, low, page)), low - 1);
    if (mine !== resets) return false;
    add(stored);
    const missing = page - stored.length;
    if (missing > 0 && low > 1) {
      const got = await owner.history(low, missing);
      if (mine !== resets || !got) return false;
      add(got.entries);
      count(got.counts);
      complete = !got.more;
      await renew();
    }
    return mine === resets && !complete && low > 1 && low < high
      && !entries.some((entry) => entry.from < high && hasItem(entry));
  }

  /**
   * Loads older messages, until there is one to show: there may be more reactions in a row than a
   * page has. What is new is shown meanwhile. Returns whether there may be more.
   */
  async function more(): Promise<boolean> {
    const mine = resets;
    let empty: boolean;
    do empty = await inOrder(load); while (empty && mine === resets);
    items.changed();
    void ask();
    return mine !== resets || !!owner.data() && !complete && low > 1;
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

  /** The messages that lack a change, or reactions. Former members get neither. */
  const lacking = (): readonly number[] => closed || !owner.data() || row()?.left ? []
    : [...outdated(entries).keys(), ...uncounted(entries, counts)];

  /** Whether changed messages are asked for, or will be. */
  let asking = false;

  /**
   * Gets from the server what has changed and is not in the store. What the store has is shown
   * meanwhile.
   */
  async function ask(): Promise<void> {
    if (asking || lacking().length === 0) return;
    asking = true;
    const mine = resets;
    const asked = new Set<number>();
    for (;;) {
      // An answer may have what others lack, too.
      const sequence = lacking().find((one) => !asked.has(one));
      if (sequence === undefined) break;
      asked.add(sequence);
      const changed = outdated(entries).has(sequence);
      const got = await owner.history(sequence + 1, changed ? 1 : page);
      // There may be thousands that a gap has hidden. Without an answer, one request is enough.
      if (mine !== resets || !got && !changed) break;
      if (!got) continue;
      for (const { from } of got.entries) asked.add(from);
      count(got.counts);
      const shown = new Set(entries.map(({ from, message }) => message && from));
      const news = got.entries.filter(({ from, message }) => message && shown.has(from));
      // The server no longer returns it, so the user may not see it.
      if (!got.entries.some(({ from, message }) => message && from === sequence)) {
        entries = entries.filter(({ from }) => from !== sequence);
      }
      add(news);
      items.changed();
    }
    if (lacking().length === 0) {
      asking = false;
      return;
    }
    owner.later(() => {
      asking = false;
      void ask();
    });
  }

  /** Errors of the store are handled where they come from. */
  const update = (): Promise<unknown> => inOrder(async () => {
    const anew = await refresh();
    await renew();
    items.changed();
    void ask();
    return anew && (entries.length < page || !entries.some(hasItem));
  }).then((short) => short && more()).catch(() => undefined);

  void update();
  return {
    items,
    older: () => more().catch(() => true),
    changed() { void update(); },
    reset() {
      resets++;
      clear();
      void update();
    },
    close() {
      closed = true;
      owner.closed();
    },
  };
}
