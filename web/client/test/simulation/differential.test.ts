// The fake server answers as the real one does: the same random requests go to both.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Script } from './script.js';
import { fakeWorld, RealServer } from './worlds.js';

const seeds = Number(process.env['TIDEMARK_DIFFERENTIAL_SEEDS'] ?? 40);
const first = Number(process.env['TIDEMARK_DIFFERENTIAL_FIRST'] ?? 0);
const steps = 40;
const atOnce = 20;
/** How long nothing must happen at the real server until its answer counts as whole. */
const quietMs = 80;
/** The same for seeds that differ, which run again one by one. */
const patientMs = [600, 2_400, 6_000] as const;
/** If more seeds differ, it is no machine that is slow. */
const few = 10;

/** Chats of three members are small at one server, and large at the other. */
const fanouts = [50, 2] as const;
const servers: RealServer[] = [];
before(async () => {
  servers.push(...await Promise.all(fanouts.map((n) => RealServer.start(n))));
});
after(async () => {
  await Promise.all(servers.map((server) => server.stop()));
});

async function onFake(seed: number): Promise<string[]> {
  const { world, drive } = fakeWorld(seed, fanouts[seed % 2] ?? 50);
  const script = new Script(world, seed, steps, 'x');
  await drive(script.run());
  return script.lines;
}

async function onReal(seed: number, tag: string, pauseMs: number): Promise<string[]> {
  const world = servers[seed % 2]?.world(pauseMs);
  assert.ok(world);
  const script = new Script(world, seed, steps, tag);
  await script.run();
  return script.lines;
}

/** Returns the first difference with what came before it, or undefined. */
function difference(fake: string[], real: string[]): string | undefined {
  for (let i = 0; i < Math.max(fake.length, real.length); i++) {
    if (fake[i] === real[i]) continue;
    const context = real.slice(Math.max(0, i - 14), i).map((l) => `      ${l.slice(0, 300)}`);
    return `${context.join('\n')}\nfake: ${fake[i] ?? ''}\nreal: ${real[i] ?? ''}`;
  }
  return undefined;
}

/** Compares the servers at seeds, some at once, and returns the differences. */
async function compare(all: readonly number[], pauseMs: number, some: number) {
  const found = new Map<number, string>();
  const queue = [...all];
  const work = async (): Promise<void> => {
    for (let seed = queue.shift(); seed !== undefined; seed = queue.shift()) {
      const tag = `${String(seed)}p${String(pauseMs)}`;
      const differs = difference(await onFake(seed), await onReal(seed, tag, pauseMs));
      if (differs !== undefined) found.set(seed, `seed ${String(seed)}:\n${differs}`);
    }
  };
  await Promise.all(Array.from({ length: some }, work));
  return found;
}

// A busy machine, or a disk that stalls, may be slower than the pause. So a difference has to last.
void test('the fake server answers as the real one does', async () => {
  let found = await compare(Array.from({ length: seeds }, (_, i) => first + i), quietMs, atOnce);
  for (const pauseMs of found.size <= few ? patientMs : []) {
    found = await compare([...found.keys()], pauseMs, 1);
  }
  assert.equal(found.size, 0,
    `${String(found.size)} seeds differ\n${[...found.values()].slice(0, 4).join('\n\n')}`);
});
