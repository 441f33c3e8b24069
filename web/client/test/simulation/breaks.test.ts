// The recorded breaks fit the client, and each is found by a test, or by the simulation.
// `npm run mutate` tries both.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { breaks } from './breaks.js';
import { broken, mutate } from './mutate.js';

/** So many seeds find what no test finds. */
const seeds = 300;

void test('each recorded break fits one place, and has a name of its own', () => {
  assert.equal(new Set(breaks.map((b) => b.name)).size, breaks.length);
  assert.ok(breaks.length >= 40);
  for (const one of breaks) assert.doesNotThrow(() => broken(one));
});

void test('each recorded break is found', async (t) => {
  const missed = await mutate(breaks, seeds, true, (line) => { t.diagnostic(line); });
  assert.deepEqual(missed, []);
});
