// Virtual time, tabs and networks do what their users rely on.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  FakeServer, Refusal, VirtualClock, VirtualPage, VirtualTabs,
} from '../src/testing/index.js';
import { Dice } from '../src/testing/random.js';

void test('timers run in order, and promises settle between them', async () => {
  const clock = new VirtualClock(0);
  const got: string[] = [];
  clock.timer(20, () => got.push('20'));
  clock.timer(10, () => {
    void Promise.resolve().then(() => got.push('10 then'));
    clock.timer(0, () => got.push('0 after 10'));
  });
  clock.timer(10, () => got.push('10 second'));
  const cancel = clock.timer(15, () => got.push('cancelled'));
  cancel();
  await clock.run(20);
  assert.deepEqual(got, ['10 then', '10 second', '0 after 10', '20']);
  assert.equal(clock.now(), 20);
});

void test('time stops when the condition holds', async () => {
  const clock = new VirtualClock(0);
  let n = 0;
  for (let i = 1; i <= 5; i++) clock.timer(i * 10, () => n++);
  assert.equal(await clock.runUntil(() => n === 3, 1000), true);
  assert.equal(clock.now(), 30);
  assert.equal(await clock.runUntil(() => n === 9, 1000), false);
  assert.equal(clock.now(), 1030);
});

void test('a seed gives the same numbers, another one others', () => {
  const numbers = (seed: number) => Array.from({ length: 5 }, (
    (dice) => () => dice.roll(1000))(new Dice(seed)));
  assert.deepEqual(numbers(7), numbers(7));
  assert.notDeepEqual(numbers(7), numbers(8));
});

void test('one tab leads, the next takes over, and a thief takes at once', async () => {
  const clock = new VirtualClock();
  const tabs = new VirtualTabs(clock);
  const [a, b, c] = [tabs.tab(), tabs.tab(), tabs.tab()];
  const signal = new AbortController().signal;
  const got: string[] = [];
  const release = await a.tabs.lead('x', { signal });
  void b.tabs.lead('x', { signal }).then(() => got.push('b'));
  await clock.run(10);
  assert.deepEqual(got, []);
  await c.tabs.lead('x', { signal, steal: true });
  release(); // the lock is no longer its own
  await clock.run(10);
  assert.deepEqual(got, []);
  c.end();
  await clock.run(10);
  assert.deepEqual(got, ['b']);
});

void test('notices reach the other tabs, unless they are lost', async () => {
  const clock = new VirtualClock();
  const tabs = new VirtualTabs(clock);
  const got: object[] = [];
  const one = tabs.tab().tabs.channel('x', (n) => got.push(n));
  tabs.tab().tabs.channel('x', (n) => got.push(n));
  one.post({ v: 1 });
  await clock.run(10);
  assert.deepEqual(got, [{ v: 1 }]);
  tabs.loses = () => true;
  one.post({ v: 2 });
  await clock.run(10);
  assert.equal(got.length, 1);
});

void test('a page tells what happens to it', () => {
  const page = new VirtualPage();
  const got: string[] = [];
  page.on('hidden', () => got.push('hidden'));
  const end = page.on('visible', () => got.push('visible'));
  page.hide();
  page.hide();
  assert.equal(page.focused(), false);
  page.show();
  end();
  page.hide();
  page.show();
  assert.deepEqual(got, ['hidden', 'visible', 'hidden']);
});

async function post(server: FakeServer, link: (f: ReturnType<FakeServer['place']>) => void) {
  const place = server.place();
  link(place);
  const call = place.platform.fetch(`${server.url}/api/v1/chats/c/messages`, {
    method: 'POST', body: JSON.stringify({ client_message_id: 'm', content: 'x' }),
    headers: { authorization: 'Bearer dev:ann', 'content-type': 'application/json' },
  }).then((r) => r.text().then((text) => `${String(r.status)} ${text.slice(0, 1)}`))
    .catch(() => 'failed');
  return Promise.race([call, server.clock.run(30_000).then(() => 'nothing')]);
}

function serverWithChat(): FakeServer {
  const server = new FakeServer();
  server.call('ann', 'POST', '/chats', { type: 'group', chat_id: 'c', member_ids: [] });
  return server;
}

for (const [fault, want, stored] of [
  [undefined, '201 {', 1], ['drop', 'failed', 0], ['lose', 'failed', 1], ['hang', 'nothing', 1],
  ['double', '201 {', 1], ['slow', '201 {', 1], ['half', 'failed', 1],
] as const) {
  void test(`a request with the fault ${String(fault)}`, async () => {
    const server = serverWithChat();
    const got = await post(server, ({ link }) => {
      link.onRequest = () => fault;
    });
    await server.clock.run(20_000);
    assert.equal(got, want);
    assert.equal(server.data.chat('c').messages.length, stored);
  });
}

void test('a portal, a lost network and a refusal answer in place of the server', async () => {
  const server = serverWithChat();
  assert.equal(await post(server, ({ link }) => {
    link.portal = { status: 200, body: '<html>' };
  }), '200 <');
  assert.equal(await post(server, ({ link }) => {
    link.setOffline(true);
  }), 'failed');
  server.refuse = () => new Refusal('RATE_LIMITED', 'slow down', null, 3);
  assert.equal(await post(server, () => undefined), '429 {');
  assert.equal(server.data.chat('c').messages.length, 0);
});

void test('a restored server begins a new life, and what it lost is free again', async () => {
  const server = serverWithChat();
  const backup = server.backup();
  const before = server.data.incarnation;
  await post(server, () => undefined);
  assert.equal(server.data.chat('c').messages.length, 1);
  server.restore(backup);
  assert.equal(server.data.chat('c').messages.length, 0);
  assert.notEqual(server.data.incarnation, before);
});
