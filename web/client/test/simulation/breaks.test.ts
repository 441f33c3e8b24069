// The recorded breaks fit the client. `npm run mutate` shows that each is found by a test or by the
// simulation, and by which of both.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { breaks } from './breaks.js';
import { broken } from './mutate.js';

void test('each recorded break fits one place, and has a name of its own', () => {
  assert.equal(new Set(breaks.map((b) => b.name)).size, breaks.length);
  assert.ok(breaks.length >= 40);
  for (const one of breaks) assert.doesNotThrow(() => broken(one));
});
