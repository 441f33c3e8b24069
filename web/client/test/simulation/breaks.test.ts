// The recorded breaks fit the client, and a sample of them is found. `npm run mutate` tries all.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { breaks } from './breaks.js';
import { broken, mutate } from './mutate.js';

void test('each recorded break fits one place, and has a name of its own', () => {
  assert.equal(new Set(breaks.map((b) => b.name)).size, breaks.length);
  assert.ok(breaks.length >= 40);
  for (const one of breaks) assert.doesNotThrow(() => broken(one));
});

void test('a sample of the breaks is found', async () => {
  const sample = ['what is not stored is acknowledged', 'two sends of a chat are under way'];
  const missed = await mutate(
    breaks.filter((b) => sample.includes(b.name)), 20, false, () => undefined);
  assert.deepEqual(missed, []);
});
