// Two people on different nodes of a cluster, and behind its proxy while nodes die.
// BASE is the proxy.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  BASE, caughtUp, comeIn, control, goOffline, newPair, openChat, openWindow, shows, write,
} from './browser.mjs';

const NODES = process.env.TIDEMARK_TEST_NODES.split(' ');

let alice, bob;

before(async () => {
  [alice, bob] = await Promise.all([openWindow(), openWindow()]);
});

after(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
});

async function pair(alicesBase, bobsBase) {
  const [a, b] = await newPair(alice, bob);
  await comeIn(alice.page, a, alicesBase);
  await comeIn(bob.page, b, bobsBase);
  return [a, b];
}

test('on different nodes ticks move from sent to delivered to read, live', async () => {
  const [a, b] = await pair(NODES[0], NODES[1]);
  await openChat(alice.page, b);
  await goOffline(bob.page);

  await write(alice.page, 'hello');
  await shows(alice.page, [{ text: 'hello', tick: 'sent' }]);

  await bob.page.getByTestId('online-switch').click();
  await shows(alice.page, [{ text: 'hello', tick: 'delivered' }]);
  await openChat(bob.page, a);
  await shows(alice.page, [{ text: 'hello', tick: 'read' }]);

  const texts = ['hello'];
  for (let i = 1; i <= 4; i++) {
    texts.push(`message ${i}`);
    await write((i % 2 ? bob : alice).page, texts[i]);
    await shows(alice.page, texts.map((text, n) => ({ text, tick: n % 2 ? null : 'read' })));
    await shows(bob.page, texts.map((text, n) => ({ text, tick: n % 2 ? 'read' : null })));
  }
  assert.deepEqual([...alice.errors, ...bob.errors], []);
});

test('behind the proxy everybody goes on while one node after the other dies', async () => {
  const [a, b] = await pair(BASE, BASE);
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  const seen = [];
  for (const node of NODES.keys()) {
    await control(`kill?node=${node}`);
    const from = [alice, bob][node % 2].page;
    await write(from, `n${node + 1} is dead`);
    seen.push(`n${node + 1} is dead`);
    await shows(alice.page, seen.map((text, i) => ({ text, tick: i % 2 ? null : 'read' })));
    await shows(bob.page, seen.map((text, i) => ({ text, tick: i % 2 ? 'read' : null })));
    await control(`await?node=${node}`);
  }
  await Promise.all([caughtUp(alice.page), caughtUp(bob.page)]);
});
