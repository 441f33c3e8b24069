// Which user, chat or outlet is looked at, in the address. So Back returns to where you were.

import { Value } from '../view';

export type Place =
  | { readonly at: 'overview' | 'outlets' }
  | { readonly at: 'user' | 'chat' | 'outlet'; readonly id: string };

export const place = new Value<Place>(parse(location.hash));

window.addEventListener('hashchange', () => place.set(parse(location.hash)));

export function hrefOf(to: Place): string {
  if ('id' in to) return `#${to.at}/${encodeURIComponent(to.id)}`;
  return to.at === 'overview' ? '#' : '#outlets';
}

export function go(to: Place): void {
  location.hash = hrefOf(to);
}

function parse(hash: string): Place {
  if (hash === '#outlets') return { at: 'outlets' };
  const [, at, id = ''] = /^#(user|chat|outlet)\/(.+)$/.exec(hash) ?? [];
  if (at !== 'user' && at !== 'chat' && at !== 'outlet') return { at: 'overview' };
  try {
    return { at, id: decodeURIComponent(id) };
  } catch {
    return { at: 'overview' };
  }
}
