// The fake server answers as the real one does: the same random requests go to both.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { Script } from './script.js';
import { fakeWorld, RealServer } from './worlds.js';

const seeds = Number(process.env['TIDEMARK_DIFFERENTIAL_SEEDS'] ?? 100);
const first = Number(process.env['TIDEMARK_DIFFERENTIAL_FIRST'] ?? 0);
const steps = 40;
const atOnce = 25;
/** How long nothing must happen at the real server until its answer counts as whole. */
const quietMs = 80;
const patientMs = 600;

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

/** Compares the servers. A busy machine may be slower than the pause, so a failure has to last. */
async function compare(seed: number): Promise<string | undefined> {
  const fake = await onFake(seed);
  if (difference(fake, await onReal(seed, `${String(seed)}a`, quietMs)) === undefined) {
    return undefined;
  }
  let found: string | undefined;
  for (const pause of [patientMs, 4 * patientMs]) {
    found = difference(fake, await onReal(seed, `${String(seed)}b${String(pause)}`, pause));
    if (found === undefined) return undefined;
  }
  return `seed ${String(seed)}:\n${String(found)}`;
}

void test('the fake server answers as the real one does', async () => {
  const failures: string[] = [];
  const queue = Array.from({ length: seeds }, (_, i) => first + i);
  const work = async (): Promise<void> => {
    for (let seed = queue.shift(); seed !== undefined; seed = queue.shift()) {
      const failure = await compare(seed);
      if (failure !== undefined) failures.push(failure);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  assert.equal(failures.length, 0,
    `${String(failures.length)} seeds differ\n${failures.slice(0, 4).join('\n\n')}`);
});
