// A card with a figure and its last five minutes.

import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { ceiling, lineOf, SPAN_MS, xOf, type Sample, type Values } from './history';
import { timeOfDay } from './words';

const WIDTH = SPAN_MS / 1_000;
const HEIGHT = 64;
const FAR = 10;

export interface Line {
  readonly name: string;
  readonly value: (values: Values) => number | null;
}

export interface PlotProps {
  id: string;
  title: string;
  /** One to three. */
  lines: readonly Line[];
  samples: readonly Sample[];
  now: number;
  format: (value: number | null) => string;
  unit?: string;
  /** What the figure is, and more about it. */
  children?: ComponentChildren;
}

export function Plot({ id, title, lines, samples, now, format, unit = '', children }: PlotProps) {
  // The time that the reader looks at. Without it, the newest figure is shown.
  const [pinned, setPinned] = useState<number>();
  const index = pinned === undefined ? samples.length - 1 : nearest(samples, pinned);
  const shown = samples[index];
  const valueOf = ({ value }: Line) => shown ? value(shown.values) : null;
  const greatest = ceiling(Math.max(0, ...samples.flatMap(({ values }) =>
    lines.map(({ value }) => value(values) ?? 0))));
  const look = (to: number) => {
    setPinned(samples[Math.max(0, Math.min(samples.length - 1, to))]?.at);
  };

  const keys = (event: KeyboardEvent) => {
    const to = stepOf(event.key, index, samples.length);
    if (to === undefined) return;
    event.preventDefault();
    if (Number.isNaN(to)) setPinned(undefined);
    else look(to);
  };
  const point = (event: PointerEvent) => {
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    const at = now - SPAN_MS * (1 - (event.clientX - left) / width);
    look(nearest(samples, at));
  };
  const words = lines.map((line) =>
    `${lines.length > 1 ? `${line.name} ` : ''}${format(valueOf(line))}${unit}`).join(', ');

  return (
    <section class="card plot" aria-labelledby={`${id}-title`} data-testid={`plot-${id}`}>
      <h3 id={`${id}-title`}>{title}</h3>
      <dl class="figures" data-single={lines.length === 1}>
        {lines.map((line, n) => (
          <div key={line.name} data-line={n + 1}>
            <dt>{line.name}</dt>
            <dd class="number" data-testid={`${id}-${n + 1}`}>{format(valueOf(line))}
              {unit !== '' && <span class="unit">{unit}</span>}</dd>
          </div>
        ))}
      </dl>
      <div class="chart" role="slider" tabIndex={0} aria-label={`${title}, last five minutes`}
        aria-valuemin={0} aria-valuemax={Math.max(0, samples.length - 1)}
        aria-valuenow={Math.max(0, index)}
        aria-valuetext={shown ? `${timeOfDay(shown.at)}: ${words}` : 'no figures yet'}
        onKeyDown={keys} onFocus={() => look(index)} onBlur={() => setPinned(undefined)}
        onPointerMove={point} onPointerDown={point} onPointerLeave={() => setPinned(undefined)}>
        <span class="scale number" aria-hidden="true">{format(greatest).replace('≤ ', '')}</span>
        <svg viewBox={`0 -2 ${WIDTH} ${HEIGHT + 4}`} preserveAspectRatio="none" aria-hidden="true">
          <path class="grid" d={`M0 0H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}M0 ${HEIGHT}H${WIDTH}`} />
          {lines.map((line, n) => {
            const paths = lineOf(samples, line.value, now, greatest, HEIGHT);
            return (
              <g key={line.name} data-line={n + 1}>
                {lines.length === 1 && <path class="area" d={paths.map(areaOf).join('')} />}
                <path class="trace" d={paths.join('')} />
                {shown && pinned !== undefined && <path class="dot"
                  d={dotOf(xOf(shown.at, now), valueOf(line), greatest)} />}
              </g>
            );
          })}
          {shown && pinned !== undefined && <path class="cursor"
            d={`M${xOf(shown.at, now)} 0V${HEIGHT}`} />}
        </svg>
      </div>
      <p class="axis" aria-hidden="true">
        {shown && pinned !== undefined
          ? <span class="at number">at {timeOfDay(shown.at)}</span>
          : <><span>5 min ago</span><span>now</span></>}
      </p>
      {children !== undefined && <p class="hint">{children}</p>}
    </section>
  );
}

// Returns the index to go to with a key. NaN is the newest figure, whichever it is.
function stepOf(key: string, index: number, count: number): number | undefined {
  switch (key) {
    case 'ArrowLeft':
    case 'ArrowDown': return index - 1;
    case 'ArrowRight':
    case 'ArrowUp': return index + 1;
    case 'PageDown': return index - FAR;
    case 'PageUp': return index + FAR;
    case 'Home': return 0;
    case 'End': return count - 1;
    case 'Escape': return NaN;
    default: return undefined;
  }
}

function nearest(samples: readonly Sample[], at: number): number {
  let best = -1;
  for (const [i, sample] of samples.entries()) {
    const known = samples[best];
    if (!known || Math.abs(sample.at - at) < Math.abs(known.at - at)) best = i;
  }
  return best;
}

function areaOf(path: string): string {
  const xs = [...path.matchAll(/[ML](-?[\d.]+)/g)];
  return `${path}V${HEIGHT}H${xs[0]?.[1] ?? 0}Z`;
}

function dotOf(x: number, value: number | null, greatest: number): string {
  return value === null ? '' : `M${x} ${HEIGHT * (1 - value / greatest)}h0`;
}
