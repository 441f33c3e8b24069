// What the page at `/` must not get wrong: sign-out, the way back, the keyboard, what a person with
// other needs gets, and a page without a network.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { test } from 'node:test';

import {
  BASE, caughtUp, comeIn, connection, goOffline, messages, numbered, onDisk, oneWindow, openChat,
  rest, rows, say, shows, until, write,
} from './browser.mjs';

const require = createRequire(new URL('../../.build/browser/package.json', import.meta.url));
const AXE = await readFile(require.resolve('axe-core/axe.min.js'), 'utf8');

const alice = oneWindow();
const { pair, noErrors } = alice;

test('signing out removes everything, in the page and on the disk', async () => {
  const [a, b, chat] = await pair();
  await say(b, chat, ['a secret']);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await shows(alice.page, [{ text: 'a secret' }]);
  await goOffline(alice.page);
  await write(alice.page, 'not sent yet');
  await shows(alice.page, [{ text: 'a secret' }, { text: 'not sent yet', tick: 'sending' }]);
  const menu = async () => {
    await alice.page.getByTestId('menu').click();
    await alice.page.getByTestId('logout').click();
  };
  await menu();
  await alice.page.getByTestId('stay').click();
  await shows(alice.page, [{ text: 'a secret' }, { text: 'not sent yet', tick: 'sending' }]);
  await menu();
  await alice.page.getByTestId('discard-all').click();
  await alice.page.getByTestId('login').waitFor();
  await until('the focus is in the form', () =>
    alice.page.evaluate(() => ['user', 'token'].includes(document.activeElement.id)));
  assert.equal(new URL(alice.page.url()).hash, '');
  assert.doesNotMatch(await alice.page.content(), /a secret|not sent yet|ben\d/);
  assert.doesNotMatch(await onDisk(alice.page), /a secret|not sent yet/);
  await alice.page.goBack();
  assert.doesNotMatch(await alice.page.content(), /a secret/);
  noErrors();
});

test('on a phone Back leads to the list, and a reload to the open chat', async () => {
  const [a, b, chat] = await pair();
  await say(b, chat, ['hello']);
  await alice.page.setViewportSize({ width: 390, height: 760 });
  await comeIn(alice.page, a);
  const text = alice.page.getByTestId('text');
  await openChat(alice.page, b);
  assert.equal(await alice.page.getByTestId('chats').isVisible(), false);
  await alice.page.reload();
  await shows(alice.page, [{ text: 'hello' }]);
  await alice.page.getByTestId('info').click();
  await alice.page.getByTestId('count-read').waitFor();
  await alice.page.goBack();
  await text.waitFor();
  assert.equal(await alice.page.getByTestId('count-read').count(), 0);
  await alice.page.goBack();
  await alice.page.getByTestId('chats').waitFor();
  assert.equal(await text.isVisible(), false);
  await alice.page.goForward();
  await shows(alice.page, [{ text: 'hello' }]);
  await alice.page.getByTestId('back').click();
  await alice.page.getByTestId('chats').waitFor();
  noErrors();
});

test('everything can be done by the keyboard', async () => {
  const [a, b, chat] = await pair();
  await say(b, chat, ['one', 'two', 'three']);
  const { page } = alice;
  const focus = () => page.evaluate(() => {
    const { tagName, dataset, id } = document.activeElement;
    return dataset.testid ?? dataset.name ?? (dataset.row ? `row ${dataset.row}` : id || tagName);
  });
  const keys = async (...all) => {
    for (const key of all) await page.keyboard.press(key);
  };
  const reaches = (want) =>
    until(`the focus is on ${want}`, async () => await focus() === want, focus);
  await page.goto(BASE);
  await reaches('user');
  await page.keyboard.type(a);
  await keys('Enter');
  await caughtUp(page);
  await page.getByTestId('chat').first().waitFor();
  await reaches('HEADER');
  await keys('Tab');
  await reaches('new-chat');
  await keys('Control+k');
  await reaches('filter');
  await page.keyboard.type('ben');
  await keys('Tab');
  await reaches('chat');
  await keys('Enter');
  await reaches('text');
  await page.keyboard.type('four');
  await keys('Enter');
  // Only a message that is stored has details.
  await shows(page, [...['one', 'two', 'three'].map((text) => ({ text })), {
    text: 'four', tick: 'sent',
  }]);
  await keys('Shift+Tab');
  await reaches('log');
  await keys('ArrowUp');
  await reaches('row 3');
  await keys('ArrowUp');
  await reaches('row 2');
  await keys('ArrowDown');
  await reaches('row 3');
  await keys('Enter');
  await reaches('close-panel');
  await page.getByTestId('count-read').waitFor();
  await keys('Escape');
  await reaches('row 3');
  await keys('Escape');
  await reaches('text');
  await keys('Control+f');
  await reaches('search-text');
  await page.keyboard.type('TWO');
  await page.getByTestId('search-count').filter({ hasText: '1 of 1' }).waitFor();
  assert.equal(await page.locator('.row[data-current="true"] mark').textContent(), 'two');
  await keys('Escape');
  assert.equal(await page.getByTestId('search-text').count(), 0);
  noErrors();
});

test('problems are said in words', async () => {
  const [a] = await pair();
  await comeIn(alice.page, a);
  await alice.page.getByTestId('new-chat').click();
  await alice.page.getByTestId('people').fill('not/a/name');
  await alice.page.getByTestId('create').click();
  const problem = alice.page.locator('dialog [role="alert"]');
  await problem.filter({ hasText: 'User names have only' }).waitFor();
  await alice.page.context().setOffline(true);
  await alice.page.getByTestId('people').fill('dave');
  await alice.page.getByTestId('create').click();
  await problem.filter({ hasText: 'The server does not answer.' }).waitFor();
  await alice.page.context().setOffline(false);
  noErrors();
});

test('a lost connection is said until there is one again', async () => {
  const [a] = await pair();
  await comeIn(alice.page, a);
  await alice.page.context().setOffline(true);
  await alice.page.getByTestId('banner').filter({ hasText: 'The connection is lost' }).waitFor();
  await alice.page.evaluate(() => {
    Object.assign(globalThis, { tries: 0, gone: 0 });
    let words = '';
    new MutationObserver(() => {
      const banner = document.querySelector('[data-testid="banner"]');
      if (!banner) globalThis.gone++;
      const now = banner?.textContent.replace(/\d+/g, '') ?? '';
      if (now !== words) globalThis.tries++;
      words = now;
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  const seen = () => alice.page.evaluate(() => [globalThis.tries, globalThis.gone]);
  await until('two tries', async () => (await seen())[0] > 4, seen);
  assert.equal((await seen())[1], 0);
  await alice.page.context().setOffline(false);
  await caughtUp(alice.page);
  await alice.page.getByTestId('banner').waitFor({ state: 'detached' });
  noErrors();
});

test('the page opens without a network', async () => {
  const [a, b, chat] = await pair();
  await say(b, chat, ['kept']);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await shows(alice.page, [{ text: 'kept' }]);
  await alice.page.evaluate(() => navigator.serviceWorker.ready.then(() => true));
  const kept = await alice.page.evaluate(async () => {
    const all = [];
    for (const name of await caches.keys()) {
      for (const { url } of await (await caches.open(name)).keys()) all.push(url);
    }
    return all;
  });
  assert.ok(kept.length > 4, String(kept));
  assert.deepEqual(kept.filter((url) => url.includes('/api/')), []);
  await alice.page.context().setOffline(true);
  await alice.page.reload();
  await shows(alice.page, [{ text: 'kept' }]);
  await alice.page.getByTestId('banner').waitFor();
  await write(alice.page, 'written without a network');
  await alice.page.context().setOffline(false);
  await caughtUp(alice.page);
  await shows(alice.page, [{ text: 'kept' }, { text: 'written without a network', tick: 'sent' }]);
  noErrors();
});

test('right-to-left text stands as it is read', async () => {
  const [a, b, chat] = await pair();
  await say(b, chat, ['مرحبا كيف حالك', 'hello']);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  const directions = () => alice.page.getByTestId('content').evaluateAll((items) =>
    items.map((item) => getComputedStyle(item).direction));
  await until('both', async () => (await directions()).length === 2, directions);
  assert.deepEqual(await directions(), ['rtl', 'ltr']);
  noErrors();
});

test('in forced colours read and delivered look different', async () => {
  const [a, b, chat] = await pair();
  await alice.page.emulateMedia({ forcedColors: 'active' });
  await say(a, chat, ['first', 'second']);
  await rest(b, 'POST', '/acks', {
    chats: [{ chat_id: chat, last_acked_sequence: 2, last_read_sequence: 1 }],
  });
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await shows(alice.page, [{ text: 'first', tick: 'read' }, { text: 'second', tick: 'delivered' }]);
  const [read, delivered] = await alice.page.getByTestId('tick').evaluateAll((ticks) =>
    ticks.map((tick) => getComputedStyle(tick).backgroundColor));
  assert.notEqual(read, delivered);
  noErrors();
});

test('axe-core finds nothing, in any state of the page', async () => {
  const [a, b, chat] = await pair();
  const { page } = alice;
  const findings = [];
  const look = async (state) => {
    await alice.page.evaluate(AXE);
    const { violations } = await alice.page.evaluate(() => globalThis.axe.run(document, {
      resultTypes: ['violations'],
    }));
    const wide = await alice.page.evaluate(() => {
      const all = [document.body, ...document.querySelectorAll('.panel, dialog[open], .menu-box')];
      return all.filter((one) => {
        const { left, right } = one.getBoundingClientRect();
        return left < 0 || right > innerWidth || one.scrollWidth > innerWidth;
      }).map(({ tagName, className }) => `${tagName} ${className}`);
    });
    for (const one of wide) findings.push(`${state}: wider than the screen: ${one}`);
    for (const { id, nodes } of violations) {
      for (const { html, failureSummary } of nodes) {
        findings.push(`${state}: ${id}: ${html}\n${failureSummary}`);
      }
    }
  };
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await page.goto(BASE);
  await page.getByTestId('user').waitFor();
  await look('sign-in');
  await say(b, chat, numbered('hello', 40));
  await comeIn(page, a);
  // The list hides its rows until it has measured them.
  await page.getByTestId('chat').first().waitFor();
  await look('no chat is open');
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    await openChat(page, b);
    await page.getByTestId('message').first().waitFor();
    await look(`chat, ${colorScheme}`);
    await page.getByTestId('info').click();
    await page.getByTestId('count-read').waitFor();
    await look(`who has it, ${colorScheme}`);
    await page.getByTestId('hood').click();
    await page.getByTestId('marks').first().waitFor();
    await look(`drawer, ${colorScheme}`);
    await page.getByTestId('close-panel').click();
    await page.getByTestId('search').click();
    await page.getByTestId('search-text').fill('hello');
    await look(`search, ${colorScheme}`);
    await page.getByTestId('search').click();
    await page.getByTestId('menu').click();
    await look(`settings, ${colorScheme}`);
    await page.keyboard.press('Escape');
    await page.getByTestId('new-chat').click();
    await look(`new chat, ${colorScheme}`);
    await page.getByTestId('cancel').click();
  }
  await goOffline(page);
  await write(page, 'later');
  await look('offline');
  await page.setViewportSize({ width: 320, height: 640 });
  await look('narrow');
  await page.getByTestId('back').click();
  await page.getByTestId('chat').first().waitFor();
  await look('narrow list');
  await page.getByTestId('menu').click();
  await page.getByTestId('logout').click();
  await page.getByTestId('stay').waitFor();
  await look('unsent messages at sign-out');
  await page.getByTestId('stay').click();
  await page.route('**/messages', (route) => route.request().method() === 'POST'
    ? route.fulfill({ status: 403, contentType: 'application/problem+json',
      body: '{"code":"DENIED","detail":"readers do not write"}' })
    : route.continue());
  await page.getByTestId('online-switch').click();
  await caughtUp(page);
  await openChat(page, b);
  await until('the message that failed', async () => {
    // A chat opens at its first unread message.
    await page.getByTestId('log').press('End');
    return page.getByTestId('discard').isVisible();
  }, () => messages(page));
  for (const colorScheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme });
    await look(`failed, ${colorScheme}`);
  }
  // Both buttons stand in one line.
  await page.setViewportSize({ width: 390, height: 640 });
  const [retry, discard] = await page.evaluate(() => ['retry', 'discard'].map((name) =>
    document.querySelector(`[data-testid="${name}"]`).getBoundingClientRect().toJSON()));
  assert.equal(retry.y, discard.y);
  await page.getByTestId('info').click();
  await page.getByTestId('count-read').waitFor();
  await look('narrow: who has it');
  await page.getByTestId('close-panel').click();
  await page.getByRole('button', { name: 'Under the hood' }).click();
  await page.getByTestId('marks').first().waitFor();
  await look('narrow: drawer');
  await page.getByTestId('close-panel').click();
  await page.context().setOffline(true);
  await page.getByTestId('banner').waitFor();
  await look('no network');
  await page.context().setOffline(false);
  await alice.newTab();
  await alice.page.emulateMedia({ reducedMotion: 'reduce' });
  await comeIn(alice.page, `${a}-new`);
  await alice.page.getByTestId('no-chats').waitFor();
  await look('no chats');
  assert.deepEqual(findings, []);
  noErrors();
});
