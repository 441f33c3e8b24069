import 'fake-indexeddb/auto';

import { test } from 'node:test';

import { indexedDBStore } from '../src/store/indexeddb.js';
import { faultTests, runFaultTest } from './idbfaults.js';
import type { Scene } from './scene.js';
import { seedsOf } from './seeds.js';
import { randomTest } from './storemodel.js';
import { storeTests } from './storetest.js';

let scenes = 0;

function scene(): Scene {
  const name = `scene ${scenes++}`;
  return { tab: () => indexedDBStore({ name }) };
}

for (const { name, run } of storeTests) {
  void test(`IndexedDB in Node: ${name}`, () => run(scene()));
}

void test('IndexedDB in Node: random steps do what a naive model does', async () => {
  await randomTest(scene, seedsOf(4), 300);
});

for (const one of faultTests) {
  void test(`IndexedDB in Node: ${one.name}`, () => runFaultTest(one, `faults ${scenes++}`));
}
