// Firefox: two people with a page each, and the suites of the store on its IndexedDB.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { BASE, DEADLINE_MS, rest, until } from './browser.mjs';
import { openTab, serve } from './client.mjs';
import { startCutter } from './cutter.mjs';

// `make browser-deps` puts it below .build, where a bare import does not look.
const require = createRequire(new URL('../../.build/browser/package.json', import.meta.url));
const puppeteer = require('puppeteer-core');

const [a, b] = [`alice-${process.pid}`, `bob-${process.pid}`];
let firefox, cutter, alice, bob;
const errors = [];

before(async () => {
  firefox = await puppeteer.launch({
    browser: 'firefox', executablePath: process.env.TIDEMARK_TEST_FIREFOX, headless: true,
    defaultViewport: { width: 1200, height: 1600 }, timeout: 2 * DEADLINE_MS,
  });
  cutter = await startCutter(BASE);
  // Each has a browser of their own: a context shares no storage with another.
  [alice, bob] = [await person(), await person()];
});

after(async () => {
  await firefox?.close();
  await cutter?.close();
});

async function person() {
  const page = await (await firefox.createBrowserContext()).newPage();
  page.setDefaultTimeout(DEADLINE_MS);
  page.on('pageerror', (error) => {
    // A reload while the page connects is an error to Firefox, and what a test does.
    if (!/The connection to ws:.* was interrupted/.test(error.message)) errors.push(String(error));
  });
  return page;
}

const by = (id, more = '') => `[data-testid="${id}"]${more}`;
// In a hidden page nothing moves, so it is never still enough to be clicked.
async function click(page, id, more) {
  await page.bringToFront();
  await page.locator(by(id, more)).click();
}
async function fill(page, id, text) {
  await page.bringToFront();
  await page.locator(by(id)).fill(text);
}
const caughtUp = (page) => page.waitForSelector(by('connection', '[data-state="live"]'));

async function comeIn(page, user, base) {
  await page.goto(base);
  await fill(page, 'user', user);
  await click(page, 'login');
  await caughtUp(page);
}

async function write(page, text) {
  await fill(page, 'text', text);
  await click(page, 'send');
}

const messages = (page) => page.$$eval('.log .message', (items) => items.map((item) => [
  item.querySelector('.content').textContent, item.querySelector('.tick')?.dataset.tick ?? null,
]));

function shows(page, want) {
  const same = async () => JSON.stringify(await messages(page)) === JSON.stringify(want);
  return until(`the log shows ${JSON.stringify(want)}`, same, () => messages(page));
}

test('a message goes from ✓ to ✓✓ to blue', async () => {
  await rest(a, 'POST', '/chats', { type: 'direct', member_ids: [b] });
  await comeIn(bob, b, cutter.url);
  await click(bob, 'online-switch');
  await bob.waitForSelector(by('connection', '[data-state="offline"]'));
  await comeIn(alice, a, BASE);
  await click(alice, 'chat', `[data-name="${b}"]`);
  await write(alice, 'hello');
  await shows(alice, [['hello', 'sent']]);

  await click(bob, 'online-switch');
  await shows(alice, [['hello', 'delivered']]);
  await click(bob, 'chat', `[data-name="${a}"]`);
  await shows(bob, [['hello', null]]);
  await shows(alice, [['hello', 'read']]);
  assert.deepEqual(errors, []);
});

test('without a network and back: the unsent outlives a reload, and nothing is lost', async () => {
  await bob.evaluate(() => navigator.serviceWorker.ready.then(() => true));
  cutter.down();
  await bob.waitForSelector(by('banner'));
  await write(bob, 'from the tunnel');
  await shows(bob, [['hello', null], ['from the tunnel', 'sending']]);
  await write(alice, 'are you there?');
  await shows(alice, [['hello', 'read'], ['are you there?', 'sent']]);
  await bob.reload();
  await shows(bob, [['hello', null], ['from the tunnel', 'sending']]);

  cutter.up();
  await bob.bringToFront();
  await caughtUp(bob);
  await shows(bob, [['hello', null], ['are you there?', null], ['from the tunnel', 'delivered']]);
  await shows(alice, [['hello', 'read'], ['are you there?', 'read'], ['from the tunnel', null]]);
  await alice.bringToFront();
  await shows(bob, [['hello', null], ['are you there?', null], ['from the tunnel', 'read']]);
  const [chat] = (await rest(a, 'GET', '/chats')).chats;
  assert.equal(chat.head_sequence, 3);
  assert.deepEqual(errors, []);
});

test('the suites of a store', { timeout: 5 * DEADLINE_MS }, async (t) => {
  const page = await openTab(firefox, await serve('test/page.ts'));
  for (const name of await page.evaluate(() => tidemark.names())) {
    await t.test(name, () => page.evaluate((one) => tidemark.run(one), name));
  }
});
