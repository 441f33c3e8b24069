// Reads a part of a chat from the store.

import type { Entry, StoredChat } from '../types.js';
import type { Data } from './data.js';

const PAGE = 100;

/**
 * Yields the stored entries of after + 1 … the prefix of a chat, ascending. It ends before that if
 * the chat becomes one of other data.
 */
export async function* entriesAbove(
  data: Data, { chat: { chat_id: id }, incarnation, prefix }: StoredChat, after: number,
): AsyncGenerator<Entry, undefined> {
  for (let at = after; at < prefix;) {
    const end = Math.min(at + PAGE, prefix);
    // Each entry has at least one sequence, so a page holds them all.
    const page = await data.run((store) => store.page(id, end + 1, PAGE));
    // The page may be newer than what is known here.
    await data.reread();
    let last = at;
    for (const entry of page) {
      if (entry.to <= last) continue;
      if (data.chats.get(id)?.incarnation !== incarnation) return;
      last = entry.to;
      yield entry;
    }
    at = Math.max(end, last);
  }
}
