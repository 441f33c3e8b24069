// A virtual page: what a tab sees of the screen and of its own life.

import type { Page, PageEvent } from '../types.js';

export class VirtualPage implements Page {
  readonly #listeners = new Map<PageEvent, Set<() => void>>();
  #visible = true;
  #focused = true;

  visible(): boolean {
    return this.#visible;
  }

  focused(): boolean {
    return this.#visible && this.#focused;
  }

  on(what: PageEvent, run: () => void): () => void {
    const set = this.#listeners.get(what) ?? new Set();
    this.#listeners.set(what, set);
    // Each registration counts for itself.
    const own = (): void => {
      run();
    };
    set.add(own);
    return () => {
      set.delete(own);
    };
  }

  focus(focused: boolean): void {
    this.#focused = focused;
  }

  show(): void {
    if (this.#visible) return;
    this.#visible = true;
    this.emit('visible');
  }

  hide(): void {
    if (!this.#visible) return;
    this.#visible = false;
    this.emit('hidden');
  }

  /** Tells the listeners of an event, in the order in which they came. */
  emit(what: PageEvent): void {
    for (const run of [...this.#listeners.get(what) ?? []]) run();
  }
}
