// Values that are watched.

import type { View } from '../types.js';

export interface Cell<T> extends View<T> {
  /** Does nothing if the value is the same object. */
  set(value: T): void;
}

export interface Derived<T> extends View<T> {
  /** What the value is computed from has changed. */
  changed(): void;
}

/** Runs a listener of the application. What it throws is its own matter. */
export type Guard = (run: () => void) => void;

function watchers(guard: Guard) {
  const all = new Set<() => void>();
  return {
    tell: () => { for (const one of [...all]) guard(one); },
    subscribe: (changed: () => void) => {
      // The same function may be given twice.
      const one = (): void => { changed(); };
      all.add(one);
      return () => { all.delete(one); };
    },
  };
}

export function cell<T>(guard: Guard, value: T): Cell<T> {
  const { tell, subscribe } = watchers(guard);
  return {
    subscribe,
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      tell();
    },
  };
}

/** A value that is computed when somebody asks. */
export function derived<T>(guard: Guard, compute: (old: T | undefined) => T): Derived<T> {
  const { tell, subscribe } = watchers(guard);
  let value: T | undefined;
  let stale = true;
  return {
    subscribe,
    get() {
      if (stale) {
        stale = false;
        value = compute(value);
      }
      return value as T;
    },
    changed() {
      stale = true;
      tell();
    },
  };
}
