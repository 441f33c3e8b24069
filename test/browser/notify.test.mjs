// A message that comes while the tab is hidden is said by the title and by a notification.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { BASE, comeIn, oneWindow, say, until } from './browser.mjs';

const alice = oneWindow();
const { pair, noErrors } = alice;

test('the title counts what is unread, and a hidden tab notifies', async () => {
  const [a, b, chat] = await pair();
  await alice.page.context().grantPermissions(['notifications'], { origin: BASE });
  await alice.page.addInitScript(() => {
    globalThis.notices = [];
    ServiceWorkerRegistration.prototype.showNotification = function show(title, options) {
      globalThis.notices.push([title, options.body]);
      return Promise.resolve();
    };
    globalThis.away = false;
    globalThis.looks = 0;
    Object.defineProperty(document, 'hidden', {
      configurable: true,
      get: () => {
        globalThis.looks++;
        return globalThis.away;
      },
    });
  });
  await comeIn(alice.page, a);
  await alice.page.evaluate(() => navigator.serviceWorker.ready.then(() => true));
  await alice.page.getByTestId('menu').click();
  await alice.page.getByTestId('notify').click();
  await alice.page.locator('[data-testid="notify"][aria-checked="true"]').waitFor();
  await say(b, chat, ['while you look']);
  await until('the title counts', async () => await alice.page.title() === '(1) Tidemark');
  // The page reads a message from the disk after it has counted it. Then it looks whether the tab
  // is hidden.
  await until('the page has looked', () => alice.page.evaluate(() => globalThis.looks > 0));
  await alice.page.evaluate(() => {
    Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => 'hidden' });
    globalThis.away = true;
    document.dispatchEvent(new Event('visibilitychange'));
  });
  await say(b, chat, ['while you are away']);
  const notices = () => alice.page.evaluate(() => globalThis.notices);
  await until('a notification', async () => (await notices()).length > 0, notices);
  assert.deepEqual(await notices(), [[b, 'while you are away']]);
  await until('the title counts', async () => await alice.page.title() === '(2) Tidemark');
  noErrors();
});
