// What goes over the wire, as it goes.

import type { Frame } from '@tidemark/client';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { Session } from '../session';
import { timeOf } from '../time';
import { transportName } from '../words';

const KEPT = 60;

interface Seen extends Frame {
  readonly id: number;
  readonly at: string;
}

export function Frames({ session: { client } }: { session: Session }) {
  const [frames, setFrames] = useState<readonly Seen[]>([]);
  const [paused, setPaused] = useState(false);
  const waiting = useRef<readonly Seen[]>([]);
  const next = useRef(0);

  // Not one frame is missed from the moment that the list is there.
  useLayoutEffect(() => {
    if (paused) return undefined;
    const end = new AbortController();
    let drawn = 0;
    // Many frames come at once. They are drawn together.
    client.on('frame', (frame) => {
      const seen = { ...frame, id: next.current++, at: timeOf(new Date()) };
      waiting.current = [seen, ...waiting.current].slice(0, KEPT);
      drawn ||= requestAnimationFrame(() => {
        drawn = 0;
        setFrames(waiting.current);
      });
    }, { signal: end.signal });
    return () => {
      end.abort();
      cancelAnimationFrame(drawn);
    };
  }, [client, paused]);

  // No frame shows what was deleted.
  useLayoutEffect(() => {
    const end = new AbortController();
    client.on('message', ({ kind }) => {
      if (kind === 'redact') setFrames(waiting.current = []);
    }, { signal: end.signal });
    return () => end.abort();
  }, [client]);

  return (
    <section class="hood-part">
      <div class="chat-line">
        <h3>Frames, the newest first</h3>
        <button class="button small" aria-pressed={paused} onClick={() => setPaused(!paused)}>
          Pause</button>
      </div>
      {frames.length === 0 && <p class="hint">Nothing has gone over the wire since you opened this.
        </p>}
      <ol class="frames" data-testid="frames">
        {frames.map((frame) => (
          <li key={frame.id} data-dir={frame.dir} data-testid="frame">
            <details>
              <summary>
                <span class="frame-dir">{frame.dir === 'in' ? 'in' : 'out'}</span>
                <span class="frame-type">{typeOf(frame.text)}</span>
                <span class="soft">{transportName(frame.transport)} · {frame.at}</span>
              </summary>
              <pre>{pretty(frame.text)}</pre>
            </details>
          </li>
        ))}
      </ol>
    </section>
  );
}

function typeOf(text: string): string {
  return /"type":\s*"(\w+)"/.exec(text)?.[1] ?? text.slice(0, 40);
}

function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
