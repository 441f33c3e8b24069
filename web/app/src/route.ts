// What is open, in the address. So a reload keeps it, and Back closes it.

import { Value } from './view';

export interface Route {
  /** The open chat. */
  readonly chat?: string;
  /** `hood` is the drawer. A number is the message of which the panel shows who has it. */
  readonly panel?: 'hood' | number;
}

export const route = new Value<Route>(parse(location.hash));

/** Opens something. A further level is one more step for Back, and another chat is none. */
export function go(to: Route): void {
  const from = depth();
  const target = levels(to).length - 1;
  if (target < from) {
    // The step back shows what was open there. It may be another chat, so it is set after.
    window.addEventListener('popstate', () => put(to), { once: true });
    history.go(target - from);
    return;
  }
  for (const level of levels(to).slice(from + 1, target)) push(level);
  if (target > from) push(to);
  else put(to);
}

window.addEventListener('popstate', () => {
  if (depth() < 0) lay(parse(location.hash)); // An address that was typed.
  else route.set(parse(location.hash));
});

lay(route.get());

/** Closes all, as at a sign-out. */
export function reset(): void {
  put({});
}

// An address that was opened directly has no steps below it. They are laid here.
function lay(to: Route): void {
  if (depth() >= 0) return;
  const [first = {}, ...more] = levels(to);
  put(first, 0);
  for (const level of more) push(level);
}

function levels(to: Route): Route[] {
  const all: Route[] = [{}];
  if (to.chat !== undefined) all.push({ chat: to.chat });
  if (to.panel !== undefined) all.push(to);
  return all;
}

function depth(): number {
  const state = history.state as { depth?: number } | null;
  return state?.depth ?? -1;
}

function push(to: Route): void {
  history.pushState({ depth: depth() + 1 }, '', format(to));
  route.set(to);
}

function put(to: Route, at = depth()): void {
  history.replaceState({ depth: Math.max(at, 0) }, '', format(to));
  route.set(to);
}

function format({ chat, panel }: Route): string {
  const parts = [];
  if (chat !== undefined) parts.push('chat', encodeURIComponent(chat));
  if (panel === 'hood') parts.push('hood');
  else if (panel !== undefined) parts.push('message', panel);
  return parts.length > 0 ? `#${parts.join('/')}` : location.pathname + location.search;
}

function parse(hash: string): Route {
  const parts = hash.slice(1).split('/');
  const to: { chat?: string; panel?: 'hood' | number } = {};
  if (parts[0] === 'chat' && parts[1]) {
    try {
      to.chat = decodeURIComponent(parts[1]);
    } catch {
      return {};
    }
    parts.splice(0, 2);
  }
  if (parts[0] === 'hood') to.panel = 'hood';
  const sequence = Number(parts[1]);
  if (parts[0] === 'message' && to.chat !== undefined && sequence > 0) to.panel = sequence;
  return to;
}
