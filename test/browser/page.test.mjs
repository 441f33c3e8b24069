// What the page at `/` must not get wrong: long chats, many tabs, drafts, the way back, sign-out,
// the keyboard, and what a person with other needs gets.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import {
  BASE, caughtUp, comeIn, connection, goOffline, messages, onDisk, openChat, openWindow,
  rest, rows, say, shows, until, wholeChat, write,
} from './browser.mjs';

const require = createRequire(new URL('../../.build/browser/package.json', import.meta.url));
const AXE = await readFile(require.resolve('axe-core/axe.min.js'), 'utf8');

let alice;

before(async () => {
  alice = await openWindow();
});

after(async () => {
  await alice?.close();
});

// Every test has its own users, and a new tab.
let pairs = 0;
async function pair() {
  const n = ++pairs;
  const names = [`ann${n}-${process.pid}`, `ben${n}-${process.pid}`];
  await alice.newTab();
  await alice.page.context().setOffline(false);
  await alice.page.setViewportSize({ width: 1200, height: 800 });
  await alice.page.emulateMedia({ colorScheme: 'light', forcedColors: 'none' });
  const { chat_id: chat } = await rest(names[0], 'POST', '/chats', {
    type: 'direct', member_ids: [names[1]],
  });
  return [...names, chat];
}

const numbered = (what, n) => Array.from({ length: n }, (_, i) => `${what} ${i + 1}`);

async function readUpTo(user, chat) {
  const { members } = await rest(user, 'GET', `/chats/${chat}/delivery-status`);
  return members.find((member) => member.user_id === user).last_read_sequence;
}

const unread = (page, count) =>
  page.locator('[data-testid="unread"]', { hasText: new RegExp(`^${count}\\+?$`) }).waitFor();
const noErrors = () => assert.deepEqual(alice.errors, []);

test('a chat that is opened while messages arrive has no hole', async () => {
  const [a, b, chat] = await pair();
  const texts = numbered('message', 240);
  await say(b, chat, texts.slice(0, 100));
  await comeIn(alice.page, a);
  const more = say(b, chat, texts.slice(100));
  await openChat(alice.page, b);
  await more;
  await until('the end', async () => {
    const jump = alice.page.getByTestId('jump');
    if (await jump.isVisible()) await jump.click();
    return (await messages(alice.page)).at(-1)?.text === 'message 240';
  }, () => messages(alice.page));
  assert.deepEqual(await wholeChat(alice.page), texts);
  noErrors();
});

test('a new device gets every message once', async () => {
  const [a, b, chat] = await pair();
  const texts = numbered('once', 300);
  await say(b, chat, texts);
  let seen = '';
  alice.page.on('websocket', (socket) => {
    socket.on('framereceived', ({ payload }) => { seen += payload; });
  });
  alice.page.on('response', async (response) => {
    if (!response.url().includes('/messages') && !response.url().includes('/sync')) return;
    seen += await response.text().catch(() => '');
  });
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  assert.deepEqual(await wholeChat(alice.page), texts);
  const times = texts.map((text) => seen.split(`"${text}"`).length - 1);
  assert.deepEqual(times, texts.map(() => 1));
  noErrors();
});

test('300 unread messages open at the divider, and only what is seen is read', async () => {
  const [a, b, chat] = await pair();
  const texts = numbered('old', 30);
  await say(b, chat, texts);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await alice.page.getByTestId('jump').click();
  await until('all is read', async () => await readUpTo(a, chat) === 30, () => readUpTo(a, chat));
  await alice.page.goBack();
  await say(b, chat, numbered('new', 300));
  await unread(alice.page, 300);

  await openChat(alice.page, b);
  await alice.page.getByTestId('divider').waitFor();
  const first = alice.page.locator('.row', { has: alice.page.getByTestId('divider') });
  assert.equal(await first.getByTestId('content').textContent(), 'new 1');
  await until('some are read', async () => await readUpTo(a, chat) > 31, () => readUpTo(a, chat));
  // More may be read in a second step.
  await until('the list counts the rest', async () => {
    const read = await readUpTo(a, chat);
    assert.ok(read < 100, `read up to ${read}, though the screen shows about twenty`);
    return parseInt(await alice.page.getByTestId('unread').textContent(), 10) === 330 - read;
  }, () => readUpTo(a, chat));

  await alice.page.getByTestId('jump').click();
  await until('all is read', async () => await readUpTo(a, chat) === 330, () => readUpTo(a, chat));
  await alice.page.getByTestId('unread').waitFor({ state: 'detached' });
  noErrors();
});

test('what is sent in the moment of a reload is sent', async () => {
  const [a, b, chat] = await pair();
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  const texts = numbered('just before', 4);
  for (const text of texts) {
    await alice.page.getByTestId('text').fill(text);
    await alice.page.evaluate(() => {
      document.querySelector('[data-testid="text"]').dispatchEvent(
        new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
      location.reload();
    });
    await alice.page.waitForLoadState();
    await openChat(alice.page, b);
  }
  await shows(alice.page, rows(texts, 'sent'));
  const { messages: stored } = await rest(b, 'GET', `/chats/${chat}/messages`);
  assert.deepEqual(stored.map(({ content }) => content), texts);
  noErrors();
});

test('the last message is read when all of it is on the screen', async () => {
  const [a, b, chat] = await pair();
  await say(b, chat, numbered('long', 120));
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  const log = alice.page.getByTestId('log');
  const below = (px) => log.evaluate((element, rest) => {
    element.scrollTop = element.scrollHeight - element.clientHeight - rest;
  }, px);
  await until('its row is cut', async () => {
    await below(9);
    return (await messages(alice.page)).at(-1)?.text === 'long 120';
  });
  await below(9);
  await new Promise((resolve) => { setTimeout(resolve, 1000); });
  await below(0);
  await until('all is read', async () => await readUpTo(a, chat) === 120, () => readUpTo(a, chat));
  noErrors();
});

test('who is at the end stays there, however much comes at once', async () => {
  const [a, b, chat] = await pair();
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  const log = alice.page.getByTestId('log');
  const texts = numbered('many', 180);
  const follows = async (more) => {
    await say(b, chat, more);
    await until(`the end at ${more.at(-1)}`, async () => await log.evaluate((element) =>
      element.scrollHeight - element.scrollTop - element.clientHeight < 48
    ) && (await messages(alice.page)).at(-1)?.text === more.at(-1),
    async () => [await log.evaluate((element) => element.scrollTop),
      (await messages(alice.page)).at(-1)]);
    assert.equal(await alice.page.getByTestId('jump').count(), 0);
  };
  for (let n = 0; n < texts.length; n += 60) await follows(texts.slice(n, n + 60));
  // A click leaves the end no more than a message of several lines.
  await log.click({ position: { x: 5, y: 5 } });
  await follows(['one\ntwo\nthree']);
  // Who goes up stays there.
  await log.hover();
  await alice.page.mouse.wheel(0, -2000);
  await alice.page.getByTestId('jump').waitFor();
  const before = await log.evaluate((element) => element.scrollTop);
  await say(b, chat, ['one more']);
  await alice.page.getByTestId('jump').getByText('1 new message').waitFor();
  assert.equal(await log.evaluate((element) => element.scrollTop), before);
  noErrors();
});

test('a draft belongs to one chat', async () => {
  const [a, b] = await pair();
  const c = `carol-${process.pid}`;
  await rest(a, 'POST', '/chats', { type: 'direct', member_ids: [c] });
  await comeIn(alice.page, a);
  const text = alice.page.getByTestId('text');
  await openChat(alice.page, b);
  await text.fill('only for ben');
  await openChat(alice.page, c);
  assert.equal(await text.inputValue(), '');
  await text.fill('for carol');
  await openChat(alice.page, b);
  assert.equal(await text.inputValue(), 'only for ben');
  await alice.page.getByText('Draft: for carol').waitFor();
  noErrors();
});

test('nine tabs of one browser work, of one user and of others', async () => {
  const [a, b, chat] = await pair();
  const context = alice.page.context();
  const tabs = await Promise.all(Array.from({ length: 8 }, () => context.newPage()));
  try {
    await comeIn(alice.page, a);
    for (const [i, tab] of tabs.entries()) await comeIn(tab, i < 5 ? a : `${b}-${i}`);
    for (const tab of tabs.slice(0, 5)) await openChat(tab, b);
    await say(b, chat, ['to all tabs']);
    for (const tab of tabs.slice(0, 5)) await shows(tab, [{ text: 'to all tabs' }]);
    await unread(alice.page, 1).catch(() => {}); // Another tab may have read it first.
    await write(tabs[4], 'from one of them');
    await openChat(alice.page, b);
    await shows(alice.page, [{ text: 'to all tabs' }, { text: 'from one of them', tick: 'sent' }]);
  } finally {
    await Promise.all(tabs.map((tab) => tab.close()));
  }
  noErrors();
});

test('signing out removes everything, in the page and on the disk', async () => {
  const [a, b, chat] = await pair();
  await say(b, chat, ['a secret']);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await shows(alice.page, [{ text: 'a secret' }]);
  await goOffline(alice.page);
  await write(alice.page, 'not sent yet');
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
  await keys('Control+k');
  await reaches('filter');
  await page.keyboard.type('ben');
  await keys('Tab');
  await reaches('chat');
  await keys('Enter');
  await reaches('text');
  await page.keyboard.type('four');
  await keys('Enter');
  await shows(page, ['one', 'two', 'three', 'four'].map((text) => ({ text })));
  await keys('Shift+Tab');
  await reaches('attach');
  await keys('Shift+Tab');
  await reaches('log');
  await keys('ArrowUp');
  await reaches('row 3');
  await keys('ArrowUp');
  await reaches('row 2');
  await keys('ArrowDown', 'Enter');
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
    await page.evaluate(AXE);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, {
      resultTypes: ['violations'],
    }));
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
  await page.setViewportSize({ width: 390, height: 760 });
  await look('narrow');
  await page.getByTestId('back').click();
  await page.getByTestId('chat').first().waitFor();
  await look('narrow list');
  assert.deepEqual(findings, []);
  noErrors();
});

test('under the hood: catch-up, the pending row, and the move between transports', async () => {
  const [a, b, chat] = await pair();
  const { page } = alice;
  await comeIn(page, a);
  await openChat(page, b);
  await page.getByTestId('hood').click();
  const transport = (name) =>
    page.locator(`[data-transport="${name}"][aria-current="step"]`).waitFor();
  await transport('websocket');
  await say(b, chat, ['first']);
  await page.getByTestId('frame').filter({ hasText: 'message' }).first().waitFor();

  await page.getByTestId('block').click();
  await transport('sse');
  await say(b, chat, ['over SSE']);
  await shows(page, [{ text: 'first' }, { text: 'over SSE' }]);
  await page.getByTestId('block').click();

  await page.getByTestId('kill').click();
  await connection(page, 'offline');
  await page.getByTestId('many').click();
  await caughtUp(page); // after ten seconds, by itself
  const mark = (text) =>
    page.locator(`[data-testid="marks"][data-user="${a}"]`, { hasText: text }).waitFor();
  await mark('acknowledged 22');

  await goOffline(page);
  await say(b, chat, ['while you are away']);
  await page.getByTestId('pending-row').filter({ hasText: 'from message 23 on' }).waitFor();
  await mark('acknowledged 22');
  await page.getByTestId('online-switch').click();
  await mark('acknowledged 23');
  await page.getByTestId('pending-row').waitFor({ state: 'detached' });
  await page.getByTestId('cut').click();
  await caughtUp(page);
  noErrors();
});

test('scrolling costs the same in a chat of 100 and of 10,000 messages', async () => {
  const [a, b, chat] = await pair();
  const [, short] = [b, await rest(a, 'POST', '/chats', {
    type: 'direct', member_ids: [`${b}-short`],
  })];
  await say(`${b}-short`, short.chat_id, numbered('short', 100));
  await fill(b, chat, 10_000);
  await comeIn(alice.page, a);
  const costs = {};
  for (const [name, count] of [[`${b}-short`, 100], [b, 10_000]]) {
    await openChat(alice.page, name);
    await until(`all ${count} are loaded`, async () => {
      await alice.page.getByTestId('log').evaluate((log) => { log.scrollTop = 0; });
      const size = await alice.page.locator('.row').first().getAttribute('aria-setsize');
      return Number(size) === count;
    }, () => alice.page.locator('.row').first().getAttribute('aria-setsize'));
    costs[count] = await scrollCost(alice.page);
    assert.ok(costs[count].rows <= 60, `${costs[count].rows} rows in the document`);
  }
  const [few, many] = [costs[100], costs[10_000]];
  assert.ok(many.changed <= few.changed * 1.5 + 50, JSON.stringify(costs));
  noErrors();
});

/** Scrolls down in twenty steps. Returns the changed nodes, and the most rows in the document. */
function scrollCost(page) {
  return page.getByTestId('log').evaluate(async (log) => {
    let changed = 0;
    let rows = 0;
    const observer = new MutationObserver((records) => {
      for (const { addedNodes, removedNodes } of records) {
        changed += addedNodes.length + removedNodes.length;
      }
    });
    observer.observe(log, { subtree: true, childList: true });
    const frame = () => new Promise((resolve) => { requestAnimationFrame(resolve); });
    for (let i = 0; i < 20; i++) {
      log.scrollTop += 120;
      await frame();
      await frame();
      rows = Math.max(rows, log.querySelectorAll('.row').length);
    }
    observer.disconnect();
    return { changed, rows };
  });
}

/** Sends many messages, several at a time. */
async function fill(user, chat, count) {
  let next = 0;
  const work = async () => {
    while (next < count) {
      const i = ++next;
      await rest(user, 'POST', `/chats/${chat}/messages`, {
        client_message_id: `fill-${i}`, content: `message ${i}`, seen_sequence: 0,
      });
    }
  };
  await Promise.all(Array.from({ length: 16 }, work));
}
