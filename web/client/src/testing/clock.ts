// Virtual time. Nothing here waits for real time.

interface Due {
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
  gone: boolean;
}

/** Resolves when all promises that can settle without time or I/O have settled. */
export function settled(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

/**
 * Time that moves only when `run` is called. Timers of the same moment run in the order in which
 * they were made, and all promises settle between two timers. So a test gives the same result each
 * time.
 */
export class VirtualClock {
  #now: number;
  #order = 0;
  readonly #start: number;
  readonly #heap: Due[] = [];

  /** `start` is in milliseconds since 1970. */
  constructor(start = Date.UTC(2026, 0, 31, 10)) {
    this.#now = start;
    this.#start = start;
  }

  /** Milliseconds since 1970. */
  now(): number {
    return this.#now;
  }

  /** Milliseconds since the clock was made. */
  monotonic(): number {
    return this.#now - this.#start;
  }

  /** Calls `run` once after `ms` milliseconds. The result ends that. */
  timer(ms: number, run: () => void): () => void {
    const at = this.#now + Math.max(0, Number.isFinite(ms) ? ms : 0);
    const due: Due = { at, order: this.#order++, run, gone: false };
    this.#push(due);
    return () => {
      due.gone = true;
    };
  }

  /** Resolves after `ms` milliseconds. */
  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.timer(ms, resolve);
    });
  }

  /** Lets `ms` milliseconds pass. */
  async run(ms: number): Promise<void> {
    await this.runUntil(() => false, ms);
  }

  /**
   * Lets time pass until `done` returns true, at most `ms` milliseconds. Resolves with whether it
   * did. `done` is asked after each timer.
   */
  async runUntil(done: () => boolean, ms: number): Promise<boolean> {
    const end = this.#now + ms;
    await settled();
    while (!done()) {
      const next = this.#next();
      if (next === undefined || next.at > end) {
        this.#now = end;
        return false;
      }
      this.#pop();
      this.#now = Math.max(this.#now, next.at);
      next.run();
      await settled();
    }
    return true;
  }

  #next(): Due | undefined {
    while (this.#heap[0]?.gone === true) this.#pop();
    return this.#heap[0];
  }

  #push(due: Due): void {
    const heap = this.#heap;
    let at = heap.length;
    while (at > 0) {
      const up = (at - 1) >> 1;
      const parent = heap[up];
      if (parent === undefined || before(parent, due)) break;
      heap[at] = parent;
      at = up;
    }
    heap[at] = due;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let down = 2 * at + 1;
      let child = heap[down];
      const right = heap[down + 1];
      if (child === undefined) break;
      if (right !== undefined && before(right, child)) {
        child = right;
        down++;
      }
      if (before(last, child)) break;
      heap[at] = child;
      at = down;
    }
    heap[at] = last;
  }
}

function before(a: Due, b: Due): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
