// Which user or chat is looked up, in the address. So Back returns to where you were.

import { Value } from '../view';

export type Place =
  | { readonly at: 'overview' }
  | { readonly at: 'user' | 'chat'; readonly id: string };

export const place = new Value<Place>(parse(location.hash));

window.addEventListener('hashchange', () => place.set(parse(location.hash)));

export function hrefOf(to: Place): string {
  return to.at === 'overview' ? '#' : `#${to.at}/${encodeURIComponent(to.id)}`;
}

export function go(to: Place): void {
  location.hash = hrefOf(to);
}

function parse(hash: string): Place {
  const [, at, id = ''] = /^#(user|chat)\/(.+)$/.exec(hash) ?? [];
  if (at !== 'user' && at !== 'chat') return { at: 'overview' };
  try {
    return { at, id: decodeURIComponent(id) };
  } catch {
    return { at: 'overview' };
  }
}
