// Runs many seeds on all cores: the seeds are dealt out to threads.

import { availableParallelism } from 'node:os';
import { fileURLToPath } from 'node:url';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

import { ddmin } from './shrink.js';
import { simulate, type Outcome } from './simulation.js';
import { stepsOf } from './steps.js';

/** The seeds `first`, `first + stride`, … below `end`. */
interface Share { readonly first: number; readonly end: number; readonly stride: number }

/** What a share, or all of them, came to. */
export interface Result {
  /** How many seeds were run. It is fewer than asked for after failures. */
  readonly seeds: number;
  /** How often each thing happened. */
  readonly counts: ReadonlyMap<string, number>;
  /** A report of each failing seed. */
  readonly failures: readonly string[];
}

/** After so many failures a thread stops. */
const enough = 3;

/** Runs `seeds` seeds from `first` on. Rejects if a thread ends without a result. */
export async function sweep(
  first: number, seeds: number, threads = availableParallelism(),
): Promise<Result> {
  const stride = Math.max(1, Math.min(threads, seeds));
  const results = await Promise.all(Array.from({ length: stride }, (_, i) => (
    inThread({ first: first + i, end: first + seeds, stride }))));
  const counts = new Map<string, number>();
  for (const result of results) add(counts, result.counts);
  return {
    seeds: results.reduce((sum, result) => sum + result.seeds, 0), counts,
    failures: results.flatMap((result) => result.failures),
  };
}

function inThread(share: Share): Promise<Result> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(fileURLToPath(import.meta.url), { workerData: share });
    worker.on('message', resolve);
    worker.on('error', reject);
    worker.on('exit', (code) => {
      reject(new Error(`a thread of the simulation ended with ${String(code)}`));
    });
  });
}

function add(sums: Map<string, number>, counts: ReadonlyMap<string, number>): void {
  for (const [what, n] of counts) sums.set(what, (sums.get(what) ?? 0) + n);
}

async function runShare({ first, end, stride }: Share): Promise<Result> {
  const counts = new Map<string, number>();
  const failures: string[] = [];
  let seeds = 0;
  for (let seed = first; seed < end && failures.length < enough; seed += stride) {
    const outcome = await simulate(seed, stepsOf(seed));
    seeds++;
    add(counts, outcome.counts);
    if (outcome.failure !== undefined) failures.push(await report(outcome));
  }
  return { seeds, counts, failures };
}

/** Returns a failure with the smallest history that still has it. */
async function report(failed: Outcome): Promise<string> {
  const rule = failed.failure?.rule;
  const smallest = await ddmin(stepsOf(failed.seed), async (part) => (
    (await simulate(failed.seed, part)).failure?.rule === rule));
  const again = await simulate(failed.seed, smallest);
  return `seed ${String(failed.seed)}: ${again.failure?.detail ?? failed.failure?.detail ?? ''}\n` +
    `${again.lines.join('\n')}\nThe whole history: TIDEMARK_CLIENT_FIRST_SEED=` +
    `${String(failed.seed)} TIDEMARK_CLIENT_SEEDS=1`;
}

if (!isMainThread && parentPort !== null) {
  parentPort.postMessage(await runShare(workerData as Share));
}
