// The stream of figures: it opens, breaks, and opens again.

import type { ProblemDetail, Stats } from '../../../client/src/wire.gen';
import { sseParser } from '../../../client/src/wire/sse';
import { Value } from '../view';
import { ask, Refusal } from './api';
import { recent, valuesOf, type Sample } from './history';

/** The server sends an event each second, so a stream that is silent for longer is dead. */
const SILENCE_MS = 6_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const TICK_MS = 1_000;

/** The state of the stream. Only `refused` is an end. */
export type Link =
  | { readonly state: 'connecting' }
  | { readonly state: 'live' }
  | { readonly state: 'lost'; readonly why: Refusal; readonly since: number }
  | { readonly state: 'refused'; readonly why: Refusal };

/** Follows the figures with a key, from `start` to `stop`. */
export class Feed {
  readonly link = new Value<Link>({ state: 'connecting' });
  /** The last figures. They stay when the stream breaks. */
  readonly stats = new Value<Stats | undefined>(undefined);
  readonly samples = new Value<readonly Sample[]>([]);
  /** The time at the right of the plots. */
  readonly now = new Value(Date.now());
  readonly #key: string;
  readonly #end = new AbortController();
  #wake = () => { /* It sleeps only between two streams. */ };

  constructor(key: string) {
    this.#key = key;
  }

  start(): void {
    const { signal } = this.#end;
    const clock = setInterval(() => this.#age(), TICK_MS);
    signal.addEventListener('abort', () => clearInterval(clock));
    window.addEventListener('online', () => this.retry(), { signal });
    void this.#run();
  }

  stop(): void {
    this.#end.abort();
    this.#wake();
  }

  /** Ends the pause before the next stream. */
  retry(): void {
    this.#wake();
  }

  async #run(): Promise<void> {
    let failures = 0;
    for (;;) {
      let why: Refusal;
      try {
        why = await this.#stream(() => { failures = 0; });
      } catch (error) {
        why = error instanceof Refusal ? error : new Refusal(0, '', '');
      }
      if (this.#end.signal.aborted) return;
      if (why.status === 401 || why.status === 403) {
        this.link.set({ state: 'refused', why });
        return;
      }
      const link = this.link.get();
      const since = link.state === 'lost' ? link.since : Date.now();
      this.link.set({ state: 'lost', why, since });
      await this.#pause(Math.max(why.retryMs, pauseMs(failures++)));
    }
  }

  // Returns why the stream ended.
  async #stream(works: () => void): Promise<Refusal> {
    this.#end.signal.throwIfAborted();
    const stream = new AbortController();
    const stop = () => stream.abort();
    this.#end.signal.addEventListener('abort', stop);
    let timer = setTimeout(stop, SILENCE_MS);
    try {
      const answer = await ask(
        this.#key, '/admin/stats', { Accept: 'text/event-stream' }, stream.signal,
      );
      const parse = sseParser();
      const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
      let before: Stats | undefined;
      for (;;) {
        const { done, value } = await reader?.read() ?? { done: true, value: undefined };
        if (done) return new Refusal(0, '', '');
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE_MS);
        for (const { type, data = '' } of parse(value)) {
          if (type === 'problem') return refusalOf(JSON.parse(data) as ProblemDetail);
          if (type !== 'stats') continue;
          const stats = JSON.parse(data) as Stats;
          this.#take(stats, before);
          before = stats;
          works();
        }
      }
    } finally {
      clearTimeout(timer);
      stream.abort();
      this.#end.signal.removeEventListener('abort', stop);
    }
  }

  #take(stats: Stats, before: Stats | undefined): void {
    const now = Date.now();
    this.samples.set([...recent(this.samples.get(), now), {
      at: now, values: valuesOf(stats, before),
    }]);
    this.now.set(now);
    this.stats.set(stats);
    if (this.link.get().state !== 'live') this.link.set({ state: 'live' });
  }

  // Without events the plots move on and show a gap.
  #age(): void {
    if (this.link.get().state === 'live') return;
    const now = Date.now();
    this.now.set(now);
    this.samples.set(recent(this.samples.get(), now));
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#wake(), ms);
      this.#wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

function refusalOf({ code, detail }: ProblemDetail): Refusal {
  const status = code === 'UNAUTHENTICATED' ? 401 : code === 'DENIED' ? 403 : 0;
  return new Refusal(status, code, detail);
}

// Consoles that lost the same server come back at different times.
function pauseMs(failures: number): number {
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures) * (0.75 + Math.random() / 2);
}
