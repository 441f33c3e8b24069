import { test } from 'node:test';

import { MemoryData, memoryStore } from '../src/store/memory.js';
import type { Scene } from './scene.js';
import { seedsOf } from './seeds.js';
import { randomTest } from './storemodel.js';
import { storeTests } from './storetest.js';

function scene(): Scene {
  const data = new MemoryData();
  return { tab: () => memoryStore({ data }) };
}

for (const { name, run } of storeTests) {
  void test(`memory: ${name}`, () => run(scene()));
}

void test('memory: random steps do what a naive model does', () =>
  randomTest(scene, seedsOf(10), 400));
