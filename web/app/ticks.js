// The pure rules of the page: what a tick is, how news about boundaries is merged, and how far a device
// holds a chat without a hole. No DOM, no network, no storage.

/** The boundary of a member of whom nothing is known yet. */
export const NOTHING = Object.freeze({ acked: 0, read: 0 });

/** What a sender sees beside his message, and what a screen reader says. */
export const TICKS = Object.freeze({
  sending: { text: '○', label: 'Sending' },
  sent: { text: '✓', label: 'Sent' },
  delivered: { text: '✓✓', label: 'Delivered' },
  read: { text: '✓✓', label: 'Read' },
  failed: { text: '✗', label: 'Not sent' },
});

/**
 * The specification's tick_state of a stored message.
 * @param boundary that of the other member of a direct chat, or the least one of all others.
 */
export function tickOf(sequence, boundary) {
  if (sequence <= boundary.read) return 'read';
  if (sequence <= boundary.acked) return 'delivered';
  return 'sent';
}

/** Boundaries only grow: news that is late, doubled or out of order changes nothing. */
export function merge(a, b) {
  return { acked: Math.max(a.acked, b.acked), read: Math.max(a.read, b.read) };
}

/** What all of them have. Of nobody: nothing, so that a chat with oneself stays at one tick. */
export function least(boundaries) {
  let all = null;
  for (const b of boundaries) {
    all = all ? { acked: Math.min(all.acked, b.acked), read: Math.min(all.read, b.read) } : b;
  }
  return all ?? NOTHING;
}

/** How many of the others have message `sequence`: {of, delivered, read}, for the words beside a group's tick. */
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
 * Whether a stored range [from, to] continues what is held up to `prefix`; if so, how far it is held now.
 * A gap is a range as well: what the user may not see counts as received.
 * @returns the new prefix, the same one if the range adds nothing, or null if something is missing before it.
 */
export function extend(prefix, from, to) {
  if (from > prefix + 1) return null;
  return Math.max(prefix, to);
}
