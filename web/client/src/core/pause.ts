// How long to wait before the next try.

const FIRST_MS = 500;
const LONGEST_MS = 30_000;
/** No server's hint is longer than that. */
const LONGEST_HINT_MS = 300_000;

/** Returns a number from 0 to 1 of random bytes. */
export function fraction(bytes: Uint8Array): number {
  return bytes.reduce((sum, byte) => (sum + byte) / 256, 0);
}

/** Returns the pause after `tries` failed tries in a row, in milliseconds, with full jitter. */
export function pauseAfter(tries: number, random: number): number {
  return random * Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.min(tries, 10));
}

/** Returns a pause that the server named, within bounds. */
export function hinted(ms: number): number {
  return Math.min(LONGEST_HINT_MS, Math.max(0, ms));
}
