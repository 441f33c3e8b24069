// How far everyone is, asked again whenever something may have changed.

import { useEffect, useRef, useState } from 'preact/hooks';
import type { Session } from './session';

const SOON_MS = 120;
const AGAIN_MS = 3_000;
const CHANGES = /"(status_update|own_state|membership|message)"/;

/** Returns the last answer, and the problem of the last try. `key` is what is asked for. */
export function useStatus<T>(
  { client }: Session, chat: string | undefined, ask: () => Promise<T>, key: string,
): [answer: T | undefined, problem: unknown] {
  const [answer, setAnswer] = useState<T>();
  const [problem, setProblem] = useState<unknown>();
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    setAnswer(undefined);
    const end = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const over = () => end.signal.aborted;
    let asking = false;
    let changes = 0;
    const later = (ms: number) => {
      clearTimeout(timer);
      timer = setTimeout(() => void run(), ms);
    };
    const run = async () => {
      asking = true;
      const before = changes;
      try {
        const next = await latest.current();
        if (over()) return;
        setAnswer(next);
        setProblem(undefined);
      } catch (error) {
        if (over()) return;
        setProblem(error);
      }
      asking = false;
      // Another tab may have the connection. Then no frame tells of a change.
      later(changes > before ? SOON_MS : AGAIN_MS);
    };
    client.on('frame', ({ text }) => {
      if (!CHANGES.test(text) || (chat !== undefined && !text.includes(chat))) return;
      if (asking) changes++;
      else later(SOON_MS);
    }, { signal: end.signal });
    void run();
    return () => {
      end.abort();
      clearTimeout(timer);
    };
  }, [client, chat, key]);
  return [answer, problem];
}
