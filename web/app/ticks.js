// The pure rules of the page: what a tick is, how boundaries are merged, and up to which message a
// device has a chat without a hole. They use no DOM, no network and no storage.

/** The boundary of a member about whom nothing is known yet. */
export const NOTHING = Object.freeze({ acked: 0, read: 0 });

/** The mark that senders see beside their message, and the words of a screen reader. */
export const TICKS = Object.freeze({
  sending: { text: '○', label: 'Sending' },
  sent: { text: '✓', label: 'Sent' },
  delivered: { text: '✓✓', label: 'Delivered' },
  read: { text: '✓✓', label: 'Read' },
  failed: { text: '✗', label: 'Not sent' },
});

/**
 * Returns the tick of a stored message, which is the specification's tick_state.
 * @param boundary that of the other member of a direct chat, or the least one of all others.
 */
export function tickOf(sequence, boundary) {
  if (sequence <= boundary.read) return 'read';
  if (sequence <= boundary.acked) return 'delivered';
  return 'sent';
}

/** Returns the higher values. So an update that is late, repeated or out of order does no harm. */
export function merge(a, b) {
  return { acked: Math.max(a.acked, b.acked), read: Math.max(a.read, b.read) };
}

/** Returns what all members have. Without members it is nothing: such a chat stays at one tick. */
export function least(boundaries) {
  let all = null;
  for (const b of boundaries) {
    all = all ? { acked: Math.min(all.acked, b.acked), read: Math.min(all.read, b.read) } : b;
  }
  return all ?? NOTHING;
}

/**
 * Returns how many of the others have message `sequence`, as {of, delivered, read}. The words
 * beside a group's tick show it.
 */
export function countOf(sequence, boundaries) {
  const count = { of: 0, delivered: 0, read: 0 };
  for (const b of boundaries) {
    count.of++;
    if (sequence <= Math.max(b.acked, b.read)) count.delivered++;
    if (sequence <= b.read) count.read++;
  }
  return count;
}

/**
 * Extends a prefix by a stored range [from, to]. A gap is such a range, too, because messages that
 * the user may not see count as received.
 * @returns the new prefix, the same one if the range adds nothing, or null if there is a hole
 * before the range.
 */
export function extend(prefix, from, to) {
  if (from > prefix + 1) return null;
  return Math.max(prefix, to);
}
