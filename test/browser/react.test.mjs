// @tidemark/client/react in Chromium, against the real server, in StrictMode.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BASE, DEADLINE_MS, openWindow, until } from './browser.mjs';
import { openTab, serve } from './client.mjs';

const URL = await serve('test/reactpage.tsx');

const messages = (page) => page.locator('li').evaluateAll((all) =>
  all.map((one) => `${one.textContent} ${one.dataset.tick ?? ''}`.trim()));

const shows = (page, want) => until(`the page shows ${want}`, async () =>
  (await messages(page)).join() === want.join(), () => messages(page));

const phase = (page, want) => page.locator('#phase', { hasText: want }).waitFor();

async function write(page, text) {
  await page.locator('input').fill(text);
  await page.locator('input').press('Enter');
}

test('React in Chromium: a chat of two', { timeout: 5 * DEADLINE_MS }, async () => {
  const windows = [await openWindow(), await openWindow()];
  try {
    const [alice, bob] = await Promise.all(windows.map(async (window, i) => {
      const user = ['alice', 'bob'][i];
      const page = await openTab(window.page.context(), `${URL}?server=${BASE}&user=${user}`);
      await phase(page, 'live');
      return page;
    }));
    await alice.locator('#new').click();
    await alice.locator('input').waitFor();
    await write(alice, 'one');
    // A store in memory acknowledges what is shown.
    await shows(alice, ['one sent']);
    await bob.locator('#unread', { hasText: '1' }).waitFor();

    // What Bob's page shows is read: `useShown` says so.
    await bob.locator('.chat').click();
    await shows(bob, ['one']);
    await shows(alice, ['one read']);
    await bob.locator('#unread', { hasText: '0' }).waitFor();
    await write(bob, 'two');
    await shows(bob, ['one', 'two read']);
    await shows(alice, ['one read', 'two']);

    // StrictMode mounts twice, and starts the client once.
    const phases = await alice.evaluate(() => tidemark.phases());
    assert.equal(phases.filter((one) => one === 'stopped').length, 1, phases.join());

    // The end of the provider stops the client, and another one starts it again.
    const ended = () => alice.evaluate(() => tidemark.phases().at(-1));
    await alice.evaluate(() => tidemark.unmount());
    await until('the client has stopped', async () => await ended() === 'stopped', ended);
    await alice.evaluate(() => tidemark.mount());
    await phase(alice, 'live');
    for (const window of windows) assert.deepEqual(window.errors, []);
  } finally {
    for (const window of windows) await window.close();
  }
});
