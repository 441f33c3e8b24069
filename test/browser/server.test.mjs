// The page while its server is killed, while its machine sleeps, and when the server's data are
// older than the page's.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  BASE, HIGH, canBeDeaf, caughtUp, comeIn, control, goOffline, newPair, openChat, openWindow,
  rest, rows, say, shows, until, wholeChat, write,
} from './browser.mjs';
import { startCutter } from './cutter.mjs';

let alice, bob;

before(async () => {
  [alice, bob] = await Promise.all([openWindow(), openWindow()]);
});

after(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
});

async function pair(base) {
  const [a, b, chat] = await newPair(alice, bob);
  await Promise.all([alice, bob].map(({ page }) => page.setViewportSize(HIGH)));
  await canBeDeaf(alice.page);
  await comeIn(alice.page, a);
  await comeIn(bob.page, b, base);
  return [a, b, chat];
}

const numbered = (what, n) => Array.from({ length: n }, (_, i) => `${what} ${i + 1}`);
const noErrors = () => assert.deepEqual([...alice.errors, ...bob.errors], []);

/** The texts that the server has, in order. */
async function stored(user, chat) {
  const path = `/chats/${chat}/messages?after_sequence=0&limit=200`;
  return (await rest(user, 'GET', path)).messages.map(({ content }) => content);
}

test('kill -9: what was not answered, and what is unsent, is stored once', async () => {
  const [a, b, chat] = await pair();
  await openChat(alice.page, b);
  await write(alice.page, 'before');
  await shows(alice.page, rows(['before'], 'delivered'));
  await alice.page.evaluate(() => navigator.serviceWorker.ready.then(() => true));

  // Bob's device has these, and did not say so yet.
  await say(a, chat, ['one', 'two']);
  await bob.page.locator('[data-testid="unread"]', { hasText: '3' }).waitFor();

  // Of the next message Alice gets neither the answer nor the echo.
  const ids = [];
  let died;
  await alice.page.route('**/api/v1/chats/*/messages', async (route) => {
    if (route.request().method() !== 'POST') return route.continue();
    ids.push(route.request().postDataJSON().client_message_id);
    if (died) return route.continue();
    await alice.page.evaluate(() => { globalThis.deaf = true; });
    assert.equal((await route.fetch()).status(), 201);
    died = await control('kill').then(() => true);
    return route.abort();
  });
  await write(alice.page, 'stored, not answered');
  await until('the server is dead', () => died);
  const unsent = numbered('unsent', 3);
  for (const text of unsent) await write(alice.page, text);
  const mine = ['before', 'one', 'two', 'stored, not answered', ...unsent];
  const waiting = mine.map((text, i) => ({ text, tick: i < 3 ? undefined : 'sending' }));
  await shows(alice.page, waiting);
  await alice.page.getByTestId('banner').filter({ hasText: '4 messages not sent yet' }).waitFor();

  // The page comes from the browser, and what is unsent from its disk.
  await alice.page.reload();
  await shows(alice.page, waiting);
  await control('start');
  await Promise.all([caughtUp(alice.page), caughtUp(bob.page)]);
  await openChat(bob.page, a);
  await shows(bob.page, rows(mine, null));
  await shows(alice.page, rows(mine, 'read'));
  assert.deepEqual(await stored(b, chat), mine);
  assert.ok(ids.filter((id) => id === ids[0]).length > 1, 'nothing was repeated');
  assert.equal(new Set(ids).size, 4, `${ids}`);
  noErrors();
});

test('kill -9 in a burst of messages, twice: all are stored once, in order', async () => {
  const [a, b, chat] = await pair();
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  const texts = numbered('burst', 24);
  for (const [i, text] of texts.entries()) {
    await write(alice.page, text);
    if (i === 7 || i === 15) {
      await control('kill');
      await control('start');
    }
  }
  await shows(alice.page, rows(texts, 'read'));
  await shows(bob.page, rows(texts, null));
  assert.deepEqual(await stored(b, chat), texts);
  noErrors();
});

test('a machine that sleeps for eight hours catches up when it wakes', async (t) => {
  const cutter = await startCutter(BASE);
  try {
    await bob.newTab();
    const [a, b, chat] = await pair(cutter.url);
    await openChat(bob.page, a);
    await say(a, chat, ['good night']);
    await shows(bob.page, rows(['good night'], null));
    // Its connection is dead, and nobody tells it. Meanwhile the server has started anew, and knows
    // no sessions.
    cutter.swallow();
    await bob.page.evaluate(() => {
      const { now } = Date;
      Date.now = () => now() + 8 * 3_600_000;
    });
    await control('stop');
    await control('start');
    const texts = numbered('while you slept', 40);
    await say(a, chat, texts);
    const woken = Date.now();
    await bob.page.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
    await shows(bob.page, rows(['good night', ...texts], null));
    t.diagnostic(`whole ${Date.now() - woken} ms after it woke`);
    await caughtUp(bob.page);
    await openChat(alice.page, b);
    await shows(alice.page, rows(['good night', ...texts], 'read'));
    noErrors();
  } finally {
    await cutter.close();
  }
});

test('a frozen page goes on when it is resumed, though the server knows it no more', async () => {
  const [a, b, chat] = await pair();
  await openChat(bob.page, a);
  const cdp = await bob.page.context().newCDPSession(bob.page);
  await cdp.send('Page.setWebLifecycleState', { state: 'frozen' });
  await control('stop');
  await control('start');
  const texts = numbered('frozen', 12);
  await say(a, chat, texts);
  await cdp.send('Page.setWebLifecycleState', { state: 'active' });
  await shows(bob.page, rows(texts, null));
  await openChat(alice.page, b);
  await shows(alice.page, rows(texts, 'read'));
  noErrors();
});

test('restored data: the page says what is lost, and shows what the server has', async () => {
  const [a, b, chat] = await pair();
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  const kept = numbered('kept', 3);
  for (const text of kept) await write(alice.page, text);
  await shows(alice.page, rows(kept, 'read'));
  await control('backup');
  const lost = numbered('lost', 2);
  for (const text of lost) await write(alice.page, text);
  await shows(alice.page, rows([...kept, ...lost], 'read'));
  await shows(bob.page, rows([...kept, ...lost], null));

  await goOffline(alice.page);
  await write(alice.page, 'waiting');
  await control('restore');
  // Bob's page is there, and the server's head is below what it has.
  const notice = ({ page }) => page.getByTestId('restored').filter({ hasText: '2 messages' });
  await notice(bob).waitFor();
  await shows(bob.page, rows(kept, null));

  // When Alice's page comes back, other messages have the sequences of the lost ones.
  const anew = numbered('anew', 4);
  await say(b, chat, anew);
  await alice.page.getByTestId('online-switch').click();
  await caughtUp(alice.page);
  await notice(alice).waitFor();
  const all = [...kept, ...anew, 'waiting'];
  await shows(alice.page, [...kept.map((text) => ({ text, tick: 'read' })), ...rows(anew, null),
    { text: 'waiting', tick: 'read' }]);
  await shows(bob.page, all.map((text) => ({ text })));
  assert.deepEqual(await stored(b, chat), all);
  await notice(alice).getByRole('button').click();
  await notice(alice).waitFor({ state: 'detached' });
  noErrors();
});

test('after many messages were skipped, the chat begins where it did', async () => {
  const [a, b, chat] = await pair();
  const [early, late] = [numbered('early', 3), numbered('late', 502)];
  await say(a, chat, early);
  await openChat(bob.page, a);
  await bob.page.locator('.log .start').waitFor();
  await goOffline(bob.page);
  await say(a, chat, late);
  // Another device has them, so this one loads them only if the user wants to see them. The session
  // ends with the server: otherwise it would bring them.
  await rest(b, 'POST', '/acks', {
    chats: [{ chat_id: chat, last_acked_sequence: 505, last_read_sequence: 505 }],
  });
  await control('stop');
  await control('start');
  await bob.page.getByTestId('online-switch').click();
  await bob.page.getByTestId('content').filter({ hasText: 'late 502' }).waitFor();
  assert.deepEqual(await wholeChat(bob.page, late.at(-1)), [...early, ...late]);
});
