import { test } from 'node:test';

import { MemoryData, memoryStore } from '../src/store/memory.js';
import { factsOf, ME, rowOf, same, SERVER, throws, type Scene } from './scene.js';
import { seedsOf } from './seeds.js';
import { Disk } from './simulation/disk.js';
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

void test('a step that comes to its turn late changes no newer data', async () => {
  let ids = 0;
  const disk = new Disk(() => `identity-${String(++ids)}`);
  let held = Promise.resolve();
  const store = disk.store(true, () => held);
  const { id } = await store.open(ME, SERVER);
  const term = await store.lead();
  let go = (): void => undefined;
  held = new Promise((resolve) => { go = resolve; });
  const late = store.commit(term, { position: { session_id: 'S', event_id: 7 } });
  held = Promise.resolve();
  await disk.evict();
  const opened = await store.open(ME, SERVER);
  same(opened.id === id, false, 'the identity is the old one');
  // After an eviction terms begin again, so the term alone does not tell the data apart.
  same(await store.lead(), term, 'term');
  await store.commit(term, { chats: [factsOf('team')] });
  go();
  await throws('STORE_LOST', late);
  same((await store.changes(-1)).position, undefined, 'position');
  same((await rowOf(store)).prefix, 0, 'prefix');
});
