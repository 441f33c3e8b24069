// The figures of the last five minutes. All of this is pure.

import type { Stats, StatsTotals } from '../../../client/src/wire.gen';

/** How far back the plots look. */
export const SPAN_MS = 300_000;
/** Two figures further apart than this have a gap between them. */
export const GAP_MS = 3_000;

/** What is plotted. Null is not known. */
export interface Values {
  readonly sends: number | null;
  readonly deliveries: number | null;
  readonly acks: number | null;
  /** Milliseconds, of the last ten seconds. */
  readonly commitP99: number | null;
  readonly websocket: number;
  readonly sse: number;
  readonly longpoll: number;
  readonly marksWritten: number | null;
  readonly marksCleared: number | null;
  readonly retryQueue: number;
  readonly catchUps: number;
  readonly catchUpsWaiting: number;
}

/** The figures that came at a time, by this browser's clock. */
export interface Sample {
  readonly at: number;
  readonly values: Values;
}

/** Returns what is plotted of an event. `before` is the event before, if there was one. */
export function valuesOf(stats: Stats, before: Stats | undefined): Values {
  const { totals, rates_1s: rates, rates_10s: ten } = stats;
  const p99 = ten?.commit_p99_microseconds ?? null;
  return {
    sends: rates?.sends_per_second ?? null,
    deliveries: rates?.deliveries_per_second ?? null,
    acks: rates?.acks_per_second ?? null,
    commitP99: p99 === null ? null : p99 / 1_000,
    websocket: totals.connections.websocket,
    sse: totals.connections.sse,
    longpoll: totals.connections.longpoll,
    marksWritten: rateOf(stats, before, (node) => node.pending_rows_written_total),
    marksCleared: rateOf(stats, before, (node) => node.pending_rows_cleared_total),
    retryQueue: totals.retry_queue,
    catchUps: totals.catch_ups,
    catchUpsWaiting: totals.catch_ups_waiting,
  };
}

// Counters begin at 0 when a node starts, so only nodes that lived at both times count.
function rateOf(
  now: Stats, before: Stats | undefined, count: (totals: StatsTotals) => number,
): number | null {
  if (!before) return null;
  const ms = Date.parse(now.measured_at) - Date.parse(before.measured_at);
  if (!(ms > 0 && ms <= GAP_MS)) return null;
  let sum = 0;
  for (const { node_id: id, started_at: started, totals } of now.nodes) {
    const old = before.nodes.find((node) => node.node_id === id && node.started_at === started);
    if (totals && old?.totals) sum += count(totals) - count(old.totals);
  }
  return Math.max(0, sum) * 1_000 / ms;
}

/** Returns the samples that are not too old. */
export function recent(samples: readonly Sample[], now: number): readonly Sample[] {
  const first = samples.findIndex(({ at }) => now - at <= SPAN_MS);
  return first < 0 ? [] : first === 0 ? samples : samples.slice(first);
}

/** Returns about one sample for each `stepMs`, the newest first. */
export function thinned(samples: readonly Sample[], stepMs: number): Sample[] {
  const rows = new Map<number, Sample>();
  for (const sample of samples) {
    const step = Math.floor(sample.at / stepMs);
    if (!rows.has(step)) rows.set(step, sample);
  }
  return [...rows.values()].reverse();
}

/** Returns a round number at or above the greatest value, and at least 1. */
export function ceiling(greatest: number): number {
  if (greatest <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(greatest));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n >= greatest) ?? 10 * power;
}

/**
 * Returns the path of a line, in units of a second to the right and `height` down. It ends where a
 * value is not known or missing.
 */
export function lineOf(
  samples: readonly Sample[], value: (values: Values) => number | null,
  now: number, greatest: number, height: number,
): string[] {
  const paths: string[] = [];
  let path = '';
  let last = -Infinity;
  for (const { at, values } of samples) {
    const y = value(values);
    if (y === null || at - last > GAP_MS) {
      if (path !== '') paths.push(path);
      path = '';
    }
    if (y === null) continue;
    const point = `${xOf(at, now).toFixed(1)} ${(height * (1 - y / greatest)).toFixed(1)}`;
    path += path === '' ? `M${point}h0` : `L${point}`;
    last = at;
  }
  if (path !== '') paths.push(path);
  return paths;
}

/** Returns where a time is, in seconds from the left. */
export function xOf(at: number, now: number): number {
  return (SPAN_MS - (now - at)) / 1_000;
}
