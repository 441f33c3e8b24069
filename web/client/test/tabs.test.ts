// The lease that takes the place of Web Locks. test/browser/tabs.test.mjs has real tabs.
import 'fake-indexeddb/auto';

import assert from 'node:assert/strict';
import { mock, test } from 'node:test';

import { browserTabs } from '../src/tabs/index.js';

const settled = () => new Promise((resolve) => setImmediate(resolve));

/** Passes time, and lets IndexedDB work meanwhile. */
async function pass(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 500) {
    mock.timers.tick(500);
    for (let i = 0; i < 20; i++) await settled();
  }
}

/** A tab that wants the lead, and what it has. */
function tab(name: string, steal = false) {
  const abort = new AbortController();
  const it = { abort, leads: false, release: () => undefined as unknown, error: '' };
  browserTabs().lead(name, { signal: abort.signal, steal }).then((release) => {
    Object.assign(it, { leads: true, release });
  }, (error: unknown) => { it.error = String(error); });
  return it;
}

// Each file of tests is a process of its own, so its clock may stand still.
mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'Date'], now: 1_700_000_000_000 });

void test('lease: it is kept for long, and goes on when it is given up', async () => {
  const first = tab('kept');
  await pass(1_000);
  const second = tab('kept');
  await pass(60_000);
  assert.deepEqual([first.leads, second.leads], [true, false]);
  first.release();
  await pass(1_500);
  assert.ok(second.leads, 'nobody leads');
});

void test('lease: one that nobody renews is over after 8 s', async () => {
  const first = tab('over');
  await pass(1_000);
  assert.ok(first.leads);
  // The machine slept, so the first tab renewed nothing.
  mock.timers.setTime(Date.now() + 9_000);
  const second = tab('over');
  for (let i = 0; i < 20; i++) await settled();
  assert.ok(second.leads, 'the lease is not over');
  await pass(20_000);
  const third = tab('over');
  await pass(20_000);
  assert.ok(!third.leads, 'the first tab renewed what is not its own, or the second did not');
});

void test('lease: a clock that goes back does not block it', async () => {
  const first = tab('clock');
  await pass(500);
  assert.ok(first.leads);
  mock.timers.setTime(Date.now() - 86_400_000);
  const second = tab('clock');
  await pass(1_000);
  assert.ok(second.leads, 'the lease lasts a day');
});

void test('lease: a tab may steal it, and keeps it', async () => {
  const first = tab('steal');
  await pass(500);
  const second = tab('steal', true);
  await pass(500);
  const third = tab('steal');
  await pass(20_000);
  assert.deepEqual([first.leads, second.leads, third.leads], [true, true, false]);
  first.release();
  await pass(5_000);
  assert.ok(!third.leads, 'the first tab gave up what is not its own');
});

void test('lease: a wish that is withdrawn takes nothing', async () => {
  const first = tab('withdrawn');
  await pass(500);
  const second = tab('withdrawn');
  await pass(500);
  second.abort.abort();
  await pass(2_000);
  assert.match(second.error, /AbortError/);
  first.release();
  await pass(1_000);
  const third = tab('withdrawn');
  await pass(1_500);
  assert.deepEqual([second.leads, third.leads], [false, true]);
});

void test('lease: one that comes after the wish was withdrawn is given back', async () => {
  const first = tab('late');
  await Promise.resolve();
  first.abort.abort();
  await pass(500);
  const second = tab('late');
  await pass(1_000);
  assert.match(first.error, /AbortError/);
  assert.ok(second.leads, 'the lease is taken');
});

void test('lease: without a database each tab leads', async () => {
  const there = indexedDB;
  Object.assign(globalThis, { indexedDB: undefined });
  const all = [tab('alone'), tab('alone')];
  await pass(500);
  Object.assign(globalThis, { indexedDB: there });
  assert.deepEqual(all.map(({ leads }) => leads), [true, true]);
});
