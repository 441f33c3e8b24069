// Values that change, and how a component follows them.

import type { View } from '@tidemark/client';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

/** A View that the page itself sets. */
export class Value<T> implements View<T> {
  #value: T;
  #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const changed of [...this.#listeners]) changed();
  }

  subscribe(changed: () => void): () => void {
    this.#listeners.add(changed);
    return () => this.#listeners.delete(changed);
  }
}

/** Renders the component again whenever the view changes. */
export function useView<T>(view: View<T>): T {
  const [, show] = useState<unknown>();
  const value = view.get();
  const shown = useRef(value);
  shown.current = value;
  useLayoutEffect(() => {
    const changed = () => {
      if (!Object.is(view.get(), shown.current)) show({});
    };
    changed(); // It may have changed before this effect.
    return view.subscribe(changed);
  }, [view]);
  return value;
}

/** Handles an event of the window or the document while the component is there. */
export function useEvent(
  target: EventTarget, type: string, handle: (event: Event) => void, capture = false,
): void {
  const latest = useRef(handle);
  latest.current = handle;
  useEffect(() => {
    const listener = (event: Event) => latest.current(event);
    target.addEventListener(type, listener, capture);
    return () => target.removeEventListener(type, listener, capture);
  }, [target, type, capture]);
}
