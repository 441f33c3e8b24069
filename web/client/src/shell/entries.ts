// Reads a part of a chat from the store.

import type { Entry } from '../types.js';
import type { Data } from './data.js';

const PAGE = 100;

/** Yields the stored entries of after + 1 … through, ascending. */
export async function* entriesBetween(
  data: Data, chat: string, after: number, through: number,
): AsyncGenerator<Entry, undefined> {
  for (let at = after; at < through;) {
    const end = Math.min(at + PAGE, through);
    // Each entry has at least one sequence, so a page holds them all.
    const page = await data.run((store) => store.page(chat, end + 1, PAGE));
    let last = at;
    for (const entry of page) {
      if (entry.to <= last) continue;
      last = entry.to;
      yield entry;
    }
    at = Math.max(end, last);
  }
}
