import { test } from 'node:test';

import { MemoryData, memoryStore } from '../src/store/memory.js';
import type { Scene } from './scene.js';
import { seedsOf } from './seeds.js';
import { hasAllSteps, randomTest } from './storemodel.js';
import { storeTests } from './storetest.js';

function scene(): Scene {
  const data = new MemoryData();
  return { tab: () => memoryStore({ data }) };
}

for (const { name, run } of storeTests) {
  void test(`memory: ${name}`, () => run(scene()));
}

void test('memory: random steps do what a naive model does', async () => {
  await randomTest(scene, seedsOf(10), 400);
});

void test('memory: the steps of fixed seeds are of every kind', async () => {
  hasAllSteps(await randomTest(scene, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 400));
});
