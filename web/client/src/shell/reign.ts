// What the parts of a leader share.

import type { Answer } from '../core/ended.js';
import { fraction, pauseAfter } from '../core/pause.js';
import { codeOf, fenced } from '../errors.js';
import { planOf } from '../core/plan.js';
import type { Change, Committed, Entry, Options, Platform, Problem } from '../types.js';
import { has } from '../wire/events.js';
import type { SessionStart } from '../wire.gen.js';
import type { Data } from './data.js';
import { sleep, type Rest } from './rest.js';

/** The time in which one tab leads. */
export interface Reign {
  readonly options: Options;
  readonly platform: Platform;
  readonly rest: Rest;
  readonly data: Data;
  readonly end: AbortSignal;
  /** The session of the stream. It is undefined before the first one. */
  session: SessionStart | undefined;
  commit(build: () => Change | undefined): Promise<Committed | undefined>;
  /** What `Known` says of them. */
  readonly ahead: Map<string, number>;
  readonly handled: (chat: string) => number;
  /**
   * Commits the entries of chats whose stored data are of this incarnation, and what was sent.
   * Returns whether a message was left out that must be asked for again.
   */
  take(incarnation: string, entries: readonly Entry[], sent?: readonly string[]): Promise<boolean>;
  /** Pauses until it is time, or `wake`. Throws after the end. */
  pause(ms: number): Promise<void>;
  wake(): void;
  /**
   * Repeats a call until it is answered, or refused for good. Throws after the end. An answer
   * without the shape is none, and so is one of another incarnation than the session's, except that
   * the session is gone. One that names no incarnation counts as one of the session's.
   */
  ask(method: string, path: string, shape: string, body?: object):
    Promise<Exclude<Answer, { is: 'retry' }>>;
  /** Reports what a task has thrown, unless it is known. */
  failed(error: unknown): void;
  /** Runs a task. */
  spawn(task: Promise<unknown>): void;
  random(): number;
}

export function reignOf(
  o: Pick<Reign, 'options' | 'platform' | 'rest' | 'data' | 'end' | 'handled'>, term: number,
  problem: (problem: Problem) => void,
): Reign {
  const { platform, rest, data, end } = o;
  let nap = new AbortController();
  const wake = (): void => {
    nap.abort();
    nap = new AbortController();
  };
  end.addEventListener('abort', wake);
  const check = (): void => { if (end.aborted) throw fenced('Another tab leads.'); };
  const random = (): number => fraction(platform.random(4));
  const ahead = new Map<string, number>();
  return {
    ...o, random, wake, ahead,
    session: undefined,
    commit(build) {
      return data.commit(term, () => {
        check();
        const change = build();
        const chats = new Set(change?.entries?.map((entry) => entry.chat_id));
        // What another device has read may come before the messages.
        const read = [...chats].flatMap((id) => {
          const row = data.chats.get(id);
          const through = Math.max(row?.readConfirmed ?? 0, row?.chat.last_read_sequence ?? 0);
          return row && through > row.read ? { chat_id: id, through } : [];
        });
        return change && read.length > 0
          ? { ...change, read: [...change.read ?? [], ...read] } : change;
      });
    },
    async take(incarnation, entries, sent = []) {
      let again = false;
      await this.commit(() => {
        const { user } = o.options;
        const known = { ...data, ...this, user, incarnation, said: () => 0 };
        const { change, outdated } = planOf(known, [], entries);
        again = outdated;
        return change.entries.length > 0
          ? { ...change, sent: [...change.sent, ...sent] } : undefined;
      });
      return again;
    },
    async pause(ms) {
      check();
      await sleep(platform, ms, nap.signal);
      check();
    },
    async ask(method, path, shape, body) {
      for (let tries = 0; ; tries++) {
        check();
        const answer = await rest.call(method, path, body, { signal: end });
        check();
        if (answer.is === 'refused' || answer.is === 'ok' && has(shape, answer.body)) {
          // After a restore the stream may be one of the lost data for a while. A session that is
          // gone (410) has no such data any more.
          const present = this.session?.incarnation;
          if ((answer.of ?? present) === present || answer.status === 410) return answer;
        }
        const after = answer.is === 'retry' ? answer.after : undefined;
        await this.pause(after ?? pauseAfter(tries, random()));
      }
    },
    failed(error) {
      // The store's errors are handled where they come from.
      if (end.aborted || codeOf(error) !== undefined) return;
      problem({ code: 'BUG', detail: String(error) });
    },
    spawn(task) { task.catch((error: unknown) => { this.failed(error); }); },
  };
}
