// The data of this device, in IndexedDB, with one database per user. The page acknowledges only
// what is stored here.
//
//   chats    {chat_id, prefix, members}          everything up to prefix is stored here, or was
//                                                acknowledged by another device
//   entries  {chat_id, from, to, message | gap}  a message (from = to), or a range that the user
//                                                may not see
//   outbox   {client_message_id, chat_id, …}     unconfirmed messages, in the order of `at`

import { extend } from './ticks.js';

const VERSION = 1;

export class Store {
  #db;
  #user;

  static async open(user) {
    const request = indexedDB.open(`tidemark:${user}`, VERSION);
    request.onupgradeneeded = () => {
      const db = request.result;
      db.createObjectStore('chats', { keyPath: 'chat_id' });
      db.createObjectStore('entries', { keyPath: ['chat_id', 'from'] });
      db.createObjectStore('outbox', { keyPath: 'client_message_id' });
    };
    const store = new Store();
    store.#db = await settled(request);
    store.#user = user;
    return store;
  }

  close() {
    this.#db.close();
  }

  chats() {
    return settled(this.#read('chats').getAll());
  }

  /** Returns the record of a chat. If there is none, it creates one with the prefix `base`. */
  async know(chat, base) {
    const tx = this.#write(['chats']);
    const chats = tx.objectStore('chats');
    const found = await settled(chats.get(chat));
    const record = found ?? { chat_id: chat, prefix: base, members: null };
    if (!found) chats.put(record);
    await committed(tx);
    return record;
  }

  async setMembers(chat, members) {
    const tx = this.#write(['chats']);
    const chats = tx.objectStore('chats');
    const record = await settled(chats.get(chat));
    if (record) chats.put({ ...record, members });
    await committed(tx);
  }

  /**
   * Deletes a chat's messages and sets its prefix. The server has another chat under this id, so
   * the stored messages are not its own.
   */
  async restart(chat, prefix) {
    const tx = this.#write(['chats', 'entries']);
    tx.objectStore('chats').put({ chat_id: chat, prefix, members: null });
    tx.objectStore('entries').delete(IDBKeyRange.bound([chat, 0], [chat, Infinity]));
    await committed(tx);
  }

  /**
   * Stores entries of known chats and moves their prefixes, in one transaction. When it returns,
   * the data is on disk. A message of this user leaves the outbox in the same step. Storing an
   * entry again changes nothing.
   * @returns a Map from the id of each chat touched to its new prefix.
   */
  async take(entries) {
    const tx = this.#write(['chats', 'entries', 'outbox']);
    const stored = tx.objectStore('entries');
    const chats = tx.objectStore('chats');
    const byChat = Map.groupBy(entries, (e) => e.chat_id);
    const prefixes = new Map();
    for (const [chat, news] of byChat) {
      for (const entry of news) {
        stored.put(entry);
        if (entry.message?.sender_id === this.#user) {
          tx.objectStore('outbox').delete(entry.message.client_message_id);
        }
      }
      const record = await settled(chats.get(chat));
      if (!record) continue;
      const prefix = await heldFrom(stored, chat, record.prefix, news);
      if (prefix !== record.prefix) chats.put({ ...record, prefix });
      prefixes.set(chat, prefix);
    }
    await committed(tx);
    return prefixes;
  }

  /** Returns up to `limit` entries directly below `before`, ascending and without a hole. */
  async page(chat, before, limit) {
    const page = [];
    let expected = before - 1;
    const range = IDBKeyRange.bound([chat, 0], [chat, expected]);
    await walk(this.#read('entries').openCursor(range, 'prev'), (entry) => {
      if (page.length === limit || entry.to < expected) return false;
      page.push(entry);
      expected = entry.from - 1;
      return true;
    });
    return page.reverse();
  }

  /** Returns the newest entry of a chat, or undefined. */
  async last(chat) {
    let last;
    const range = IDBKeyRange.bound([chat, 0], [chat, Infinity]);
    await walk(this.#read('entries').openCursor(range, 'prev'), (entry) => {
      last = entry;
      return false;
    });
    return last;
  }

  async outbox() {
    const items = await settled(this.#read('outbox').getAll());
    return items.sort((a, b) => a.at - b.at);
  }

  async putOutbox(item) {
    const tx = this.#write(['outbox']);
    tx.objectStore('outbox').put(item);
    await committed(tx);
  }

  async dropOutbox(id) {
    const tx = this.#write(['outbox']);
    tx.objectStore('outbox').delete(id);
    await committed(tx);
  }

  #read(name) {
    return this.#db.transaction(name, 'readonly').objectStore(name);
  }

  // Strict durability: a complete transaction is on disk, not only in the operating system's cache.
  // Acknowledgements rely on that.
  #write(names) {
    return this.#db.transaction(names, 'readwrite', { durability: 'strict' });
  }
}

/** Returns the entry of a message of the API. */
export function messageEntry(message) {
  return { chat_id: message.chat_id, from: message.sequence, to: message.sequence, message };
}

/** Returns the entry of a gap of the API. Gaps of history do not repeat the chat. */
export function gapEntry(gap, chat = gap.chat_id) {
  return { chat_id: chat, from: gap.from_sequence, to: gap.to_sequence, gap: gap.reason };
}

// Returns the prefix that the stored entries reach. A new gap may begin below the prefix, where the
// walk does not find it, so the new entries extend the prefix first.
async function heldFrom(entries, chat, prefix, news) {
  for (const e of news) prefix = extend(prefix, e.from, e.to) ?? prefix;
  const range = IDBKeyRange.bound([chat, prefix + 1], [chat, Infinity]);
  await walk(entries.openCursor(range), (entry) => {
    const next = extend(prefix, entry.from, entry.to);
    if (next === null) return false;
    prefix = next;
    return true;
  });
  return prefix;
}

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function committed(tx) {
  return new Promise((resolve, reject) => {
    tx.oncomplete = () => resolve();
    tx.onabort = () => reject(tx.error ?? new Error('the transaction was aborted'));
  });
}

function walk(request, visit) {
  return new Promise((resolve, reject) => {
    request.onerror = () => reject(request.error);
    request.onsuccess = () => {
      const cursor = request.result;
      if (cursor && visit(cursor.value)) cursor.continue();
      else resolve();
    };
  });
}
