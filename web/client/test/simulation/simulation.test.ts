// The simulation of the client: many seeds, and every kind of fault.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { simulate } from './simulation.js';
import { ops, stepsOf } from './steps.js';
import { sweep } from './sweep.js';

const seeds = Number(process.env['TIDEMARK_CLIENT_SEEDS'] ?? 500);
const first = Number(process.env['TIDEMARK_CLIENT_FIRST_SEED'] ?? 0);
/** So many seeds reach every kind of fault. */
const enough = 500;

void test('the rules of the client hold whatever happens', async (t) => {
  const result = await sweep(first, seeds);
  const table = [...result.counts].sort().map(([what, n]) => `${String(n).padStart(7)} ${what}`);
  t.diagnostic(`${String(result.seeds)} seeds\n${table.join('\n')}`);
  assert.equal(result.failures.length, 0, result.failures.join('\n\n'));
  assert.equal(result.seeds, seeds);
  if (seeds < enough) return;
  const never = ops.filter((op) => !result.counts.has(op));
  assert.deepEqual(never, [], 'these never happened');
});

void test('a seed gives the same history again', async () => {
  for (let seed = 0; seed < 20; seed++) {
    const [one, other] = [await simulate(seed, stepsOf(seed)), await simulate(seed, stepsOf(seed))];
    assert.deepEqual(one, other);
  }
});
