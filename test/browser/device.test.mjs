// The page while its device fails: the database vanishes, space ends, the clock is wrong, a tab
// freezes or dies. And what one user must not leave to another.

import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import {
  BASE, HIGH, canBeDeaf, caughtUp, comeIn, connection, goOffline, newPair, onDisk,
  openChat, openWindow, rest, rows, say, shows, tokenOf, until, write,
} from './browser.mjs';

let alice, bob;

before(async () => {
  [alice, bob] = await Promise.all([openWindow(), openWindow({
    // Playwright takes this cache away, from which Back restores whole pages.
    ignoreDefaultArgs: ['--disable-back-forward-cache'],
  })]);
});

after(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
});

/** Two users with a chat. Alice has come in. */
async function pair() {
  const [a, b, chat] = await newPair(alice, bob);
  await Promise.all([alice, bob].map(({ page }) => page.setViewportSize(HIGH)));
  await comeIn(alice.page, a);
  return [a, b, chat];
}

const noErrors = () => assert.deepEqual([...alice.errors, ...bob.errors], []);
const acked = async (user) => (await rest(user, 'GET', '/chats')).chats[0].last_acked_sequence;
const banner = (page, words) => page.getByTestId('banner').filter({ hasText: words });

/** Removes all that an origin keeps in the browser, as a user may in its settings. */
async function clearStorage(page) {
  const cdp = await page.context().newCDPSession(page);
  await cdp.send('Storage.clearDataForOrigin', { origin: BASE, storageTypes: 'indexeddb' });
}

/** Deletes the databases, as another program on the same origin may. */
async function deleteDatabases(page) {
  const other = await page.context().newPage();
  await other.goto(`${BASE}/icon.svg`);
  await other.evaluate(async () => {
    for (const { name } of await indexedDB.databases()) {
      await new Promise((resolve, reject) => {
        const request = indexedDB.deleteDatabase(name);
        request.onsuccess = resolve;
        request.onerror = reject;
      });
    }
  });
  await other.close();
}

for (const [how, vanish] of [['is deleted', deleteDatabases], ['is cleared', clearStorage]]) {
  test(`a database that ${how} under the page: nothing is lost, nothing sent twice`, async () => {
    const [a, b, chat] = await pair();
    await comeIn(bob.page, b);
    await say(a, chat, ['one', 'two']);
    await openChat(bob.page, a);
    await shows(bob.page, rows(['one', 'two'], null));
    await goOffline(bob.page);
    await write(bob.page, 'unsent');
    await shows(bob.page, [...rows(['one', 'two'], null), { text: 'unsent', tick: 'sending' }]);
    await vanish(bob.page);
    await say(a, chat, ['three']);
    await bob.page.getByTestId('online-switch').click();
    await caughtUp(bob.page);
    const all = ['one', 'two', 'three', 'unsent'].map((text) => ({ text }));
    await shows(bob.page, all);
    await openChat(alice.page, b);
    await shows(alice.page, all);
    await until('Alice has it', async () => await acked(a) === 4, () => acked(a));
    // It is kept again.
    await until('it is on the disk', async () => (await onDisk(bob.page)).includes('three'));
    await bob.page.reload();
    await caughtUp(bob.page);
    await shows(bob.page, all);
    noErrors();
  });
}

test('without space: what is not stored is said, and acknowledged when it is shown', async () => {
  const [a, b, chat] = await pair();
  // On a page of the server: an empty tab has a process of its own, which ends.
  await bob.page.goto(`${BASE}/icon.svg`);
  const cdp = await bob.page.context().newCDPSession(bob.page);
  await cdp.send('Storage.overrideQuotaForOrigin', { origin: BASE, quotaSize: 2 ** 19 });
  await comeIn(bob.page, b);
  const texts = [];
  let kept = 0;
  const full = banner(bob.page, 'not kept in this browser');
  // The browser notices late that too much was written in one step. And a disk that is too slow
  // counts as none for a while, but keeps the messages in the end.
  while (kept === texts.length) {
    assert.ok(texts.length < 240, `all ${kept} are on the disk`);
    if (texts.length > 0) {
      await bob.page.goto(BASE);
      await caughtUp(bob.page);
    }
    do {
      const more = Array.from({ length: 12 }, (_, n) =>
        `large ${texts.length + n + 1} ${'x'.repeat(60_000)}`);
      texts.push(...more);
      await say(a, chat, more);
      await full.waitFor({ timeout: 5_000 }).catch(() => undefined);
    } while (texts.length < 240 && !await full.isVisible());
    await full.waitFor();
    await bob.page.locator('[data-testid="unread"]', { hasText: String(texts.length) }).waitFor();
    // Whatever is acknowledged is on the disk: nobody has looked at it.
    await bob.page.goto('about:blank');
    await bob.page.goto(`${BASE}/icon.svg`);
    const disk = await onDisk(bob.page);
    kept = texts.filter((_, n) => disk.includes(`large ${n + 1} `)).length;
  }
  assert.ok(await acked(b) <= kept, `${await acked(b)} of ${kept} are acknowledged`);

  await bob.page.goto(BASE);
  await caughtUp(bob.page);
  await openChat(bob.page, a);
  await openChat(alice.page, b);
  await until('all is read', async () => {
    await bob.page.getByTestId('log').evaluate((log) => { log.scrollTop = log.scrollHeight; });
    return await acked(b) === texts.length;
  }, () => acked(b));
  await write(bob.page, 'I see');
  await alice.page.getByText('I see', { exact: true }).first().waitFor();
  // With space again, the next visit keeps everything.
  await cdp.send('Storage.overrideQuotaForOrigin', { origin: BASE });
  await bob.page.reload();
  await caughtUp(bob.page);
  // A disk that is too slow counts as none, and is tried again.
  await banner(bob.page, 'not kept').waitFor({ state: 'detached', timeout: 180_000 });
  await until('it is on the disk', async () => (await onDisk(bob.page)).includes('I see'));
  noErrors();
});

test('clocks that are a day off: signed in, in order, with the right ticks', async () => {
  const [a, b] = await pair();
  await alice.newTab();
  for (const [window, user, days] of [[alice, a, 1], [bob, b, -1]]) {
    await window.page.addInitScript((shift) => {
      const Right = Date;
      globalThis.Date = class extends Right {
        constructor(...all) { super(...all.length > 0 ? all : [Right.now() + shift]); }
        static now() { return Right.now() + shift; }
      };
    }, days * 86_400_000);
    await comeIn(window.page, user);
  }
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  const texts = [];
  for (let n = 1; n <= 6; n++) {
    texts.push(`message ${n}`);
    const from = n % 2 ? alice : bob;
    const to = n % 2 ? bob : alice;
    await write(from.page, texts[n - 1]);
    await shows(to.page, texts.map((text) => ({ text })));
  }
  await shows(alice.page, texts.map((text, i) => ({ text, tick: i % 2 ? null : 'read' })));
  await goOffline(alice.page);
  await write(alice.page, 'waits');
  await write(bob.page, 'meanwhile');
  await shows(bob.page, [
    ...texts.map((text) => ({ text })), { text: 'meanwhile', tick: 'sent' },
  ]);
  await alice.page.reload();
  await connection(alice.page, 'offline');
  await alice.page.getByTestId('online-switch').click();
  await shows(alice.page, [...texts, 'meanwhile', 'waits'].map((text) => ({ text })));
  await shows(bob.page, [...texts, 'meanwhile', 'waits'].map((text) => ({ text })));
  noErrors();
});

test('twins: two devices with one profile both go on', async () => {
  const [a, b, chat] = await pair();
  const place = await mkdtemp(path.join(tmpdir(), 'tidemark-twin-'));
  const twins = [];
  try {
    const first = await openWindow();
    await comeIn(first.page, b);
    await say(a, chat, ['before']);
    await until('it is on the disk', async () => (await onDisk(first.page)).includes('before'));
    await first.close(async (profile) => {
      for (const n of [1, 2]) await cp(profile, path.join(place, String(n)), { recursive: true });
    });
    for (const n of [1, 2]) {
      twins.push(await openWindow({}, path.join(place, String(n))));
      await twins[n - 1].page.setViewportSize(HIGH);
      await comeIn(twins[n - 1].page, b);
      await openChat(twins[n - 1].page, a);
    }
    const texts = ['before'];
    for (let n = 1; n <= 3; n++) {
      texts.push(`to both ${n}`);
      await say(a, chat, texts.slice(-1));
      for (const { page } of twins) await shows(page, rows(texts, null));
    }
    for (const { page } of twins) await caughtUp(page);
    const { sessions } = await rest(b, 'GET', '/sessions');
    assert.equal(new Set(sessions.map((one) => one.device_id)).size, 2, JSON.stringify(sessions));
    noErrors();
  } finally {
    for (const twin of twins) await twin.close();
    await rm(place, { recursive: true, force: true, maxRetries: 5 });
  }
});

/** Opens tabs of one user in Bob's browser. The first one leads. */
async function tabsOf(user, count) {
  const tabs = [bob.page];
  while (tabs.length < count) tabs.push(await bob.page.context().newPage());
  for (const tab of tabs) {
    await tab.setViewportSize(HIGH);
    await canBeDeaf(tab);
    await comeIn(tab, user);
  }
  return tabs;
}

test('six tabs whose leader is frozen: another one leads', async (t) => {
  const [a, b, chat] = await pair();
  const [leader, ...others] = await tabsOf(b, 6);
  for (const tab of others) await openChat(tab, a);
  await openChat(leader, a);
  // When a tab first opened a socket. That it takes ten seconds at most, and is one tab, is shown
  // with a virtual clock, in client.test.ts. Here a busy machine may freeze tabs of its own. And a
  // tab that is paused in the middle of a transaction keeps it: Chromium takes half a minute to end
  // one that others wait for.
  const led = new Map();
  for (const tab of others) {
    tab.on('websocket', () => { led.set(tab, led.get(tab) ?? Date.now()); });
  }
  // Nothing tells the page. It keeps its lock and its connection, as on a frozen phone.
  const cdp = await leader.context().newCDPSession(leader);
  await cdp.send('Debugger.enable');
  const paused = new Promise((resolve) => { cdp.once('Debugger.paused', resolve); });
  await cdp.send('Debugger.pause');
  await paused;
  const began = Date.now();
  await say(a, chat, ['to whom?']);
  for (const tab of others) await shows(tab, rows(['to whom?'], null));
  const took = Math.min(...led.values()) - began;
  t.diagnostic(`another tab led after ${took} ms`);
  // On a busy machine another tab may have led before.
  if (led.size === 0) t.diagnostic('no other tab has opened a socket');
  await openChat(alice.page, b);
  await shows(alice.page, rows(['to whom?'], 'read'));

  await cdp.send('Debugger.resume');
  await cdp.send('Debugger.disable');
  await say(a, chat, ['to all']);
  for (const tab of others) await shows(tab, rows(['to whom?', 'to all'], null));
  // A page in the background draws no rows of the log. The list of chats shows what it has.
  await leader.getByTestId('chat').filter({ hasText: 'to all' }).waitFor();
  await write(leader, 'I slept');
  const all = ['to whom?', 'to all', 'I slept'].map((text) => ({ text }));
  for (const tab of [alice.page, ...others]) await shows(tab, all);
  for (const tab of others) await tab.close();
  noErrors();
});

test('a tab that dies in the middle of a send: another one repeats it, once', async () => {
  const [a, b, chat] = await pair();
  const [leader, other] = await tabsOf(b, 2);
  await openChat(alice.page, b);
  await openChat(leader, a);
  await openChat(other, a);
  const ids = [];
  let stored, dead;
  for (const tab of [leader, other]) {
    await tab.route('**/api/v1/chats/*/messages', async (route) => {
      if (route.request().method() !== 'POST') return route.continue();
      ids.push(route.request().postDataJSON().client_message_id);
      if (dead) return route.continue();
      dead = tab;
      // The server has it, and the tab does not learn that.
      await tab.evaluate(() => { globalThis.deaf = true; });
      stored = (await route.fetch()).status();
      const cdp = await tab.context().newCDPSession(tab);
      cdp.send('Page.crash').catch(() => undefined);
    });
  }
  await write(leader, 'my last words');
  await until('it is stored', () => stored);
  await until('the other tab repeats it', () => ids.length > 1);
  await shows(dead === other ? leader : other, rows(['my last words'], 'read'));
  await shows(alice.page, rows(['my last words'], null));
  assert.deepEqual([stored, new Set(ids).size], [201, 1]);
  const { messages } = await rest(a, 'GET', `/chats/${chat}/messages?after_sequence=0`);
  assert.equal(messages.length, 1);
  noErrors();
});

test('a tab that is duplicated follows the first one', async () => {
  const [a, b, chat] = await pair();
  await comeIn(bob.page, b);
  await openChat(bob.page, a);
  const opened = bob.page.context().waitForEvent('page');
  await bob.page.evaluate(() => { open(location.href); });
  const twin = await opened;
  await twin.setViewportSize(HIGH);
  let sockets = 0;
  twin.on('websocket', () => { sockets++; });
  await caughtUp(twin);
  assert.equal(await twin.getByTestId('me').textContent(), b);
  await say(a, chat, ['once']);
  await write(twin, 'from the copy');
  for (const page of [bob.page, twin]) await shows(page, ['once', 'from the copy'].map((text) =>
    ({ text })));
  assert.equal(sockets, 0);
  await bob.page.close();
  await say(a, chat, ['still here']);
  await shows(twin, ['once', 'from the copy', 'still here'].map((text) => ({ text })));
  bob.errors.length = 0;
});

test('data that newer code has written: the page asks for a reload, and works', async () => {
  const [a, b, chat] = await pair();
  await comeIn(bob.page, b);
  await bob.page.evaluate(async (user) => {
    const found = (await indexedDB.databases()).find(({ name }) => name.endsWith(` ${user}`));
    await new Promise((resolve, reject) => {
      const request = indexedDB.open(found.name);
      request.onsuccess = () => {
        const tx = request.result.transaction('meta', 'readwrite');
        const meta = tx.objectStore('meta');
        meta.get(0).onsuccess = ({ target }) => {
          meta.put({ ...target.result, format: 9, readableBy: 9 }, 0);
        };
        tx.onerror = reject;
        tx.oncomplete = () => resolve(request.result.close());
      };
    });
  }, b);
  await bob.page.reload();
  await banner(bob.page, 'A newer version of this page').waitFor();
  await say(a, chat, ['to the old code']);
  await openChat(bob.page, a);
  await shows(bob.page, rows(['to the old code'], null));
  await write(bob.page, 'it can answer');
  await openChat(alice.page, b);
  await shows(alice.page, [{ text: 'to the old code', tick: 'read' }, { text: 'it can answer' }]);
  assert.ok(!/old code|answer/.test(await onDisk(bob.page)));
  noErrors();
});

test('a foreign token: nothing of the other user comes in', async () => {
  const [a, b, chat] = await pair();
  await say(b, chat, ['for Alice']);
  const mallory = `mallory-${process.pid}`;
  const { chat_id: secret } = await rest(mallory, 'POST', '/chats', {
    type: 'direct', member_ids: [b],
  });
  await say(mallory, secret, ['a secret of others']);
  await openChat(alice.page, b);
  await shows(alice.page, rows(['for Alice'], null));
  // What sends requests for Alice's page mixes up its users.
  const headers = { authorization: `Bearer ${await tokenOf(b)}` };
  const answers = [];
  await alice.page.route('**/api/v1/**', async (route) => {
    const answer = await route.fetch({ headers: { ...route.request().headers(), ...headers } });
    // The form of sign-in asks for no user.
    if (route.request().headers()['x-user-id']) answers.push(answer.status());
    await route.fulfill({ response: answer });
  });
  await goOffline(alice.page);
  await alice.page.getByTestId('online-switch').click();
  await alice.page.getByTestId('login-problem').filter({ hasText: 'Sign in again' }).waitFor();
  assert.deepEqual([...new Set(answers)], [403]);
  const kept = await onDisk(alice.page) + await alice.page.content();
  assert.ok(!/secret|mallory/.test(kept));
  await alice.page.unroute('**/api/v1/**');
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await shows(alice.page, rows(['for Alice'], null));
  noErrors();
});

test('signed out in another tab: Back shows an empty page', async (t) => {
  const [a, b, chat] = await pair();
  await say(a, chat, ['a secret']);
  const [first, second, third] = await tabsOf(b, 3);
  await openChat(first, a);
  await shows(first, rows(['a secret'], null));
  await first.evaluate(() => addEventListener('pageshow', ({ persisted }) => {
    globalThis.restored = persisted;
  }));
  const isEmpty = async () =>
    !(await first.content() + await onDisk(first)).match(`a secret|${a}`);
  for (const tab of [first, third]) await tab.goto(`${BASE}/icon.svg`);
  await second.getByTestId('menu').click();
  await second.getByTestId('logout').click();
  await second.getByTestId('login').waitFor();
  await first.evaluate(() => { history.back(); });
  await first.getByTestId('login').waitFor();
  t.diagnostic(`from the back/forward cache: ${await first.evaluate(() => globalThis.restored)}`);
  assert.ok(await isEmpty());
  // So does a page that is loaded anew, in a tab that has missed the sign-out.
  await third.goto(BASE);
  await third.getByTestId('login').waitFor();
  await first.reload();
  await first.getByTestId('login').waitFor();
  assert.ok(await isEmpty());
  noErrors();
});
