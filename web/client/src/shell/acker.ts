// Tells the server what is stored, and what the user has read.

import { newAcks, note, takeAcks, unsaid, type Ack } from '../core/acks.js';
import { pauseAfter } from '../core/pause.js';
import type { StoredChat } from '../types.js';
import { has } from '../wire/events.js';
import type { AckResults } from '../wire.gen.js';
import type { Reign } from './reign.js';

const ENTRIES = 400;
const CONFIRM_MS = 30_000;
const LONGEST_MS = 5_000;

export interface Acker {
  /** Messages were stored, shown or read in a chat. `fresh` is how many. */
  note(row: StoredChat, fresh: number): void;
  /** What REST brought is acknowledged by REST: a frame confirms the events in flight. */
  byRest(chat: string): void;
  /** Sends what is owed now. */
  flush(): Promise<void>;
  /** Sends what is owed, while the page ends. */
  last(): void;
  /** Up to where a chat was acknowledged on this connection. */
  readonly said: (chat: string) => number;
  /** A new connection: frames on the old one may be lost. */
  opened(): void;
}

export interface AckerOwner {
  readonly limitOf: (row: StoredChat) => number;
  /** Whether the cursors are known to the server. */
  ready(): boolean;
  frame(frame: object): boolean;
  /** An entry was refused. */
  refused(chat: string, code: string): void;
}

export function ackerOf(reign: Reign, owner: AckerOwner): Acker {
  const { data, rest, platform, options } = reign;
  const acks = newAcks();
  const rests = new Set<string>();
  const within = Math.min(options.ackAfterMs ?? LONGEST_MS, LONGEST_MS);
  let cancel: (() => void) | undefined;
  let due = Infinity;
  let tries = 0;
  let calling: Promise<boolean> | undefined;
  reign.end.addEventListener('abort', () => cancel?.());

  const now = (): number => platform.monotonic();
  const incarnation = (): string => reign.session?.incarnation ?? '';
  /** Only what is of the present data may be acknowledged. */
  const rows = (): ReadonlyMap<string, StoredChat> => new Map([...acks.chats].flatMap((id) => {
    const row = data.chats.get(id);
    return row?.incarnation === incarnation() ? [[id, row]] : [];
  }));
  const take = (): Ack[] => takeAcks(acks, rows(), owner.limitOf, ENTRIES);

  function schedule(): void {
    if (acks.due >= due || reign.end.aborted) return;
    cancel?.();
    due = acks.due;
    cancel = platform.timer(Math.max(0, due - now()), () => {
      due = Infinity;
      reign.spawn(flush());
    });
  }

  function later(entries: readonly Ack[], ms: number): void {
    unsaid(acks, entries);
    acks.due = Math.min(acks.due, now() + ms);
    schedule();
  }

  async function flush(): Promise<void> {
    // What is owed goes with the cursors, or after them.
    if (!owner.ready()) return;
    if (calling) await calling;
    for (;;) {
      const byFrame = [...acks.chats].every((id) => !rests.has(id));
      const entries = take();
      if (entries.length === 0) return;
      const body = { chats: entries, incarnation: incarnation() };
      if (byFrame && owner.frame({ type: 'ack', payload: body })) confirm(entries);
      else {
        calling = call(entries, body).finally(() => { calling = undefined; });
        if (!await calling) return;
      }
    }
  }

  /** A frame has no answer. The stream tells the user's own status, or there was none. */
  function confirm(entries: readonly Ack[]): void {
    platform.timer(CONFIRM_MS, () => {
      if (reign.end.aborted) return;
      const open = entries.filter((entry) => {
        const { chat_id: id, last_acked_sequence: acked = 0, last_read_sequence: read = 0 } = entry;
        const row = data.chats.get(id);
        return row && !row.left && (acked > row.acknowledged || read > row.readConfirmed);
      });
      for (const { chat_id: id } of open) rests.add(id);
      if (open.length > 0) later(open, 0);
    });
  }

  /** Returns whether there was an answer. */
  async function call(entries: readonly Ack[], body: object): Promise<boolean> {
    const answer = await rest.call('POST', '/acks', body, { signal: reign.end });
    if (reign.end.aborted) return false;
    if (answer.is !== 'ok' || !has('$results', answer.body)) {
      const after = answer.is === 'retry' ? answer.after : undefined;
      later(entries, after ?? pauseAfter(tries++, reign.random()));
      return false;
    }
    tries = 0;
    const { results } = answer.body as AckResults;
    await reign.commit(() => ({
      chats: results.flatMap(({ chat_id, state }) => {
        const row = data.chats.get(chat_id);
        return state && row ? [{
          chat_id,
          acknowledged: Math.max(row.acknowledged, state.last_acked_sequence),
          readConfirmed: Math.max(row.readConfirmed, state.last_read_sequence),
        }] : [];
      }),
    }));
    for (const { chat_id, problem } of results) {
      rests.delete(chat_id);
      if (problem) owner.refused(chat_id, problem.code);
    }
    return true;
  }

  return {
    flush,
    said: (chat) => acks.said.get(chat)?.acked ?? 0,
    byRest: (chat) => { rests.add(chat); },
    note(row, fresh) {
      note(acks, row, owner.limitOf(row), fresh, now(), within);
      schedule();
    },
    last() {
      if (!owner.ready()) return;
      const entries = take();
      if (entries.length === 0) return;
      const body = { chats: entries, incarnation: incarnation() };
      if (owner.frame({ type: 'ack', payload: body })) return;
      reign.spawn(rest.call('POST', '/acks', body, { last: true }));
    },
    opened() {
      const open = [...acks.said.keys()].map((chat_id) => ({ chat_id }));
      acks.said.clear();
      if (open.length > 0) later(open, 0);
      // What was due before the server had the cursors is still due.
      else if (acks.chats.size > 0) later([], within);
    },
  };
}
