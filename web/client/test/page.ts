// What test/browser bundles into a page: the suites of the store, and something to measure.

import { codeOf } from '../src/errors.js';
import { indexedDBStore } from '../src/store/indexeddb.js';
import type { Store } from '../src/types.js';
import { faultTests, runFaultTest } from './idbfaults.js';
import { entriesOf, factsOf, ME, messageOf, SERVER, sendOf, type Scene } from './scene.js';
import { randomTest } from './storemodel.js';
import { storeTests } from './storetest.js';

/** A disk may stall for longer than a page waits. */
const patient = { openMs: 120_000, stepMs: 120_000 };

let scenes = 0;

function scene(): Scene {
  const name = `scene ${Math.random()} ${scenes++}`;
  return { tab: () => indexedDBStore({ name, ...patient }) };
}

const runs = new Map<string, () => Promise<void>>();
for (const { name, run } of storeTests) runs.set(name, () => run(scene()));
for (const one of faultTests) {
  runs.set(one.name, () => runFaultTest(one, `faults ${Math.random()}`));
}

/** The store of the page that tests of several pages use. */
const store = indexedDBStore(patient);

/** Fills a store with messages, as catching up does. Returns the milliseconds it took. */
async function fill(to: Store, first: number, count: number, batch: number): Promise<number> {
  const term = await to.lead();
  const begin = performance.now();
  for (let n = first; n < first + count; n += batch) {
    const numbers = Array.from({ length: batch }, (_, i) => n + i);
    const entries = entriesOf('team', numbers.map((i) =>
      ({ ...messageOf('team', i), content: 'x'.repeat(200) })));
    await to.commit(term, { chats: n === 1 ? [factsOf('team')] : [], entries });
  }
  return performance.now() - begin;
}

const page = {
  names: () => [...runs.keys()],
  run: (name: string) => runs.get(name)?.(),
  random: (seeds: number[], steps: number) => randomTest(scene, seeds, steps),

  open: () => store.open(ME, SERVER),
  lead: () => store.lead(),
  /** Returns a code if the commit throws. */
  commit: (term: number, numbers: number[], newChat: boolean) => store.commit(term, {
    chats: newChat ? [factsOf('team')] : [], entries: entriesOf('team', numbers),
  }).then(() => 'done', codeOf),
  add: (id: string) => store.add(sendOf(id)),
  changes: () => store.changes(-1),
  fill: (first: number, count: number, batch: number) => fill(store, first, count, batch),
  page: async (before: number, limit: number) => {
    const begin = performance.now();
    const found = await store.page('team', before, limit);
    return { length: found.length, ms: performance.now() - begin };
  },
};

export type TestPage = typeof page;
Object.assign(globalThis, { tidemark: page });
