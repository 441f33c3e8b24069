// Numbers, times and problems in words.

import type { Refusal } from './api';

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const short = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
});
const moment = new Intl.DateTimeFormat(undefined, {
  dateStyle: 'medium', timeStyle: 'medium', hourCycle: 'h23',
});

/** What stands where a figure is not known. */
export const UNKNOWN = '–';

export function count(n: number | null | undefined): string {
  return n === null || n === undefined ? UNKNOWN : whole.format(n);
}

/** Returns a rate or a size: short, and with a digit after the point if it is small. */
export function figure(n: number | null): string {
  if (n === null) return UNKNOWN;
  if (n >= 100_000) return short.format(n);
  return (n < 10 ? tenths : whole).format(n);
}

/** Returns a percentile, which is an upper bound. */
export function atMost(ms: number | null): string {
  return ms === null ? UNKNOWN : `≤ ${duration(ms)}`;
}

export function duration(ms: number): string {
  if (ms < 1) return `${whole.format(1_000 * ms)} µs`;
  if (ms < 1_000) return `${tenths.format(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 60) return `${tenths.format(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400) {
    return `${Math.floor(seconds / 3_600)} h ${Math.floor(seconds / 60) % 60} min`;
  }
  return `${Math.floor(seconds / 86_400)} d ${Math.floor(seconds / 3_600) % 24} h`;
}

export function timeOfDay(at: number): string {
  return clock.format(at);
}

export function dateTime(text: string | null): string {
  return text === null ? 'never' : moment.format(new Date(text));
}

/** Says why there are no figures, and what an operator can do. */
export function linkProblem(why: Refusal): string {
  switch (why.status) {
    case 0: return navigator.onLine
      ? 'The server does not answer.'
      : 'This device has no network.';
    case 401: return 'The server does not know this key. Paste all of it, and check that its ' +
      'line is in the file of keys. The server reads a new line within five seconds.';
    case 403: return 'This key may not see the figures. Use a key with the scope “stats”: the ' +
      'scopes are in its line in the file of keys.';
    case 404: return 'This address does not serve the figures. Check that the proxy passes ' +
      '/api/v1/, and that the server is as new as this page.';
    case 429: return 'The server gets too many calls from here, and asks to wait.';
    default: return `The server answered ${why.status}${why.detail && `: ${why.detail}`}.`;
  }
}

/** Says why an outlet cannot be shown or changed. */
export function outletProblem(why: Refusal): string {
  if (why.status === 403) {
    return 'This key may not manage outlets. Use a key with the scopes “stats” and “admin”.';
  }
  return why.status >= 400 && why.status < 500 && why.status !== 401 && why.detail !== ''
    ? `${why.detail}.` : linkProblem(why);
}

/** Says why a search has no result. */
export function searchProblem(why: Refusal, what: string): string {
  if (why.code === 'NOT_FOUND') return `There is no ${what} with this id.`;
  if (why.code === 'INVALID') return `This is no id of a ${what}: ${why.detail}.`;
  return linkProblem(why);
}
