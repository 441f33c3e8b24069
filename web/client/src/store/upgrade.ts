// Data that older code has stored.

import { bare, changedBy } from '../core/revision.js';
import type { Message } from '../wire.gen.js';
import { isShown } from '../wire/events.js';
import { replace, revise, scan, type Row, type Tables } from './steps.js';

/**
 * Makes the changes of messages that code of format 1 has stored as they came. That code also
 * stored a change as the last message of a chat. The last shown one takes its place.
 */
export async function upgrade(tables: Tables): Promise<void> {
  for (const old of await tables.chats(-1)) {
    const row: Row = { ...old };
    let last: Message | undefined;
    if (!isShown(row.last)) {
      for await (const { message } of scan(tables, row.chat.chat_id, 1)) {
        if (isShown(message)) last = message;
      }
      delete row.last;
      if (last) row.last = last;
    }
    for await (const entry of scan(tables, row.chat.chat_id, 1)) {
      if (!entry.message?.relation) continue;
      replace(tables, entry, bare(entry.message));
      await revise(tables, row, changedBy([entry.message]));
    }
    tables.putChat(row);
  }
}
