// Virtual tabs of one browser: locks and channels that they share.

import type { Channel, Tabs } from '../types.js';
import type { VirtualClock } from './clock.js';

interface Lock {
  holder: Tab | undefined;
  /** Called when the lock is stolen. */
  readonly waiting: { readonly tab: Tab; readonly take: () => void }[];
}

interface Tab {
  alive: boolean;
  readonly gate: (run: () => void) => void;
}

interface Listener {
  readonly tab: Tab;
  readonly notice: (notice: object) => void;
}

/** Locks and channels of one browser. Notices arrive a little later, and may be lost. */
export class VirtualTabs {
  readonly #clock: VirtualClock;
  readonly #locks = new Map<string, Lock>();
  readonly #channels = new Map<string, Set<Listener>>();
  /** Asked for each notice. True loses it. */
  loses: () => boolean = () => false;

  constructor(clock: VirtualClock) {
    this.#clock = clock;
  }

  /**
   * Returns the tabs as one of them sees them, and how that tab ends. `gate` runs what happens at
   * the tab.
   */
  tab(gate: (run: () => void) => void = (run) => {
    run();
  }): { tabs: Tabs; end: () => void } {
    const tab: Tab = { alive: true, gate };
    return {
      tabs: {
        lead: (name, options) => this.#lead(tab, name, options),
        channel: (name, notice) => this.#channel(tab, name, notice),
      },
      end: () => {
        tab.alive = false;
        for (const lock of this.#locks.values()) {
          if (lock.holder === tab) this.#release(lock, tab);
        }
        for (const listeners of this.#channels.values()) {
          for (const listener of listeners) if (listener.tab === tab) listeners.delete(listener);
        }
      },
    };
  }

  #lead(
    tab: Tab, name: string, options: { signal: AbortSignal; steal?: boolean },
  ): Promise<() => void> {
    let lock = this.#locks.get(name);
    if (lock === undefined) {
      lock = { holder: undefined, waiting: [] };
      this.#locks.set(name, lock);
    }
    const mine = lock;
    const release = (): void => {
      this.#release(mine, tab);
    };
    if (options.signal.aborted) return Promise.reject(options.signal.reason as Error);
    if (mine.holder === undefined || options.steal === true) {
      mine.holder = tab;
      return Promise.resolve(release);
    }
    return new Promise((resolve, reject) => {
      const waiter = { tab, take: () => {
        tab.gate(() => {
          resolve(release);
        });
      } };
      mine.waiting.push(waiter);
      options.signal.addEventListener('abort', () => {
        const at = mine.waiting.indexOf(waiter);
        if (at < 0) return;
        mine.waiting.splice(at, 1);
        reject(options.signal.reason as Error);
      });
    });
  }

  #release(lock: Lock, tab: Tab): void {
    if (lock.holder !== tab) return;
    lock.holder = undefined;
    let next = lock.waiting.shift();
    while (next !== undefined && !next.tab.alive) next = lock.waiting.shift();
    if (next === undefined) return;
    const { tab: holder, take } = next;
    lock.holder = holder;
    // A frozen tab keeps the lock that it has got.
    this.#clock.timer(1, take);
  }

  #channel(tab: Tab, name: string, notice: (notice: object) => void): Channel {
    const listeners = this.#channels.get(name) ?? new Set();
    this.#channels.set(name, listeners);
    const own: Listener = { tab, notice };
    listeners.add(own);
    return {
      post: (n) => {
        for (const other of listeners) {
          if (other === own || this.loses()) continue;
          const copy = structuredClone(n);
          this.#clock.timer(1, () => {
            other.tab.gate(() => {
              if (listeners.has(other)) other.notice(copy);
            });
          });
        }
      },
      close: () => {
        listeners.delete(own);
      },
    };
  }
}
