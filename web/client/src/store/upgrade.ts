// Data that older code has stored.

import { bare, changedBy } from '../core/revision.js';
import type { StoredChat } from '../types.js';
import { replace, revise, scan, type Tables } from './steps.js';

/** Makes the changes of messages that code of format 1 has stored as they came. */
export async function upgrade(tables: Tables): Promise<void> {
  for (const old of await tables.chats(-1)) {
    const row: StoredChat = { ...old };
    for await (const entry of scan(tables, row.chat.chat_id, 1)) {
      if (!entry.message?.relation) continue;
      replace(tables, entry, bare(entry.message));
      await revise(tables, row, changedBy([entry.message]));
    }
    tables.putChat(row);
  }
}
