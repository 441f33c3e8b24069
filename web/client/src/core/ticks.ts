// What the sender sees of their own messages.

import type { ChatFacts, Tick } from '../types.js';
import type { StatusUpdate } from '../wire.gen.js';

type Latch = ChatFacts['latch'];

const keyOf = (update: StatusUpdate) => update.scope === 'member' ? update.user_id : '';

/** Merges statuses, the latest of each member, by maximum: a late one changes nothing. */
export function merged(
  old: readonly StatusUpdate[], news: readonly StatusUpdate[],
): readonly StatusUpdate[] {
  const all = new Map(old.map((one) => [keyOf(one), one]));
  for (const update of news) {
    const before = all.get(keyOf(update));
    if (update.scope === 'chat') {
      const { all_acked_sequence: acked = 0, all_read_sequence: read = 0 } =
        before?.scope === 'chat' ? before : {};
      all.set('', {
        ...update,
        all_acked_sequence: Math.max(acked, update.all_acked_sequence),
        all_read_sequence: Math.max(read, update.all_read_sequence),
      });
    } else {
      const old = before?.scope === 'member' ? before : update;
      const acked = update.last_acked_sequence < old.last_acked_sequence ? old : update;
      const read = update.last_read_sequence < old.last_read_sequence ? old : update;
      all.set(keyOf(update), {
        ...update,
        last_acked_sequence: acked.last_acked_sequence,
        acked_at: acked.acked_at,
        last_read_sequence: read.last_read_sequence,
        read_at: read.read_at,
      });
    }
  }
  return [...all.values()];
}

/**
 * Returns the latch after news: up to where all others have received and read. Who the others are
 * must be known, and a member of whom nothing is known has received nothing. The latch never falls,
 * so a newcomer takes no tick back.
 */
export function latchOf({ chat, latch, boundaries, members }: Pick<
  ChatFacts, 'chat' | 'latch' | 'boundaries' | 'members'>): Latch {
  let { delivered, read } = latch;
  const raise = (acked: number, seen: number): void => {
    delivered = Math.max(delivered, acked, seen);
    read = Math.max(read, seen);
  };
  const all = new Map(boundaries.map((one) => [keyOf(one), one]));
  const whole = all.get('');
  if (whole?.scope === 'chat') raise(whole.all_acked_sequence, whole.all_read_sequence);
  // If there are no other members, every message counts as read.
  if (members?.length === 0) raise(0, chat.head_sequence);
  if (members?.length) {
    let [acked, seen] = [Infinity, Infinity];
    for (const member of members) {
      const one = all.get(member);
      const mark = one?.scope === 'member' ? one : undefined;
      seen = Math.min(seen, mark?.last_read_sequence ?? 0);
      acked = Math.min(acked,
        Math.max(mark?.last_acked_sequence ?? 0, mark?.last_read_sequence ?? 0));
    }
    // Who had to get a message above the head is not known: the list may be older.
    raise(Math.min(acked, chat.head_sequence), Math.min(seen, chat.head_sequence));
  }
  return delivered === latch.delivered && read === latch.read ? latch : { delivered, read };
}

export function tickOf(sequence: number, latch: Latch): Tick {
  return sequence <= latch.read ? 'read' : sequence <= latch.delivered ? 'delivered' : 'sent';
}
