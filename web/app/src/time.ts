// Dates in the user's own language.

const clock = new Intl.DateTimeFormat(undefined, { hour: 'numeric', minute: '2-digit' });
const nearDay = new Intl.DateTimeFormat(undefined, { weekday: 'long' });
const farDay = new Intl.DateTimeFormat(undefined, {
  weekday: 'short', day: 'numeric', month: 'long',
});
const otherYear = new Intl.DateTimeFormat(undefined, {
  day: 'numeric', month: 'long', year: 'numeric',
});
const shortDay = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'full', timeStyle: 'medium' });

const DAY_MS = 86_400_000;

/** Returns the local day as a number that grows by one each day. */
export function dayNumber(date: Date): number {
  return Math.floor((date.getTime() - date.getTimezoneOffset() * 60_000) / DAY_MS);
}

export function timeOf(date: Date): string {
  return clock.format(date);
}

export function fullTime(date: Date): string {
  return full.format(date);
}

/** Returns the words of a day line. */
export function dayOf(date: Date, now = new Date()): string {
  const ago = dayNumber(now) - dayNumber(date);
  if (ago === 0) return 'Today';
  if (ago === 1) return 'Yesterday';
  if (ago > 1 && ago < 7) return nearDay.format(date);
  if (date.getFullYear() === now.getFullYear()) return farDay.format(date);
  return otherYear.format(date);
}

/** Returns when something was, as short as a list of chats needs it. */
export function shortTime(date: Date, now = new Date()): string {
  const ago = dayNumber(now) - dayNumber(date);
  if (ago === 0) return timeOf(date);
  if (ago === 1) return 'Yesterday';
  return shortDay.format(date);
}
