// The page behind a real nginx that refuses WebSockets and holds streams back, and what the user
// sees of answers that are none, or a refusal.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  DEADLINE_MS, HIGH, caughtUp, comeIn, goOffline, messages, newPair, openChat, openWindow, rest,
  rows, say, shows, until, write,
} from './browser.mjs';

const { TIDEMARK_TEST_BLOCKED: BLOCKED, TIDEMARK_TEST_BUFFERED: BUFFERED } = process.env;

let alice, bob;

before(async () => {
  [alice, bob] = await Promise.all([openWindow(), openWindow()]);
});

after(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
});

/** Two users in a chat that both have open. */
async function pair(alicesBase, bobsBase) {
  const [a, b, chat] = await newPair(alice, bob);
  await Promise.all([alice, bob].map(({ page }) => page.setViewportSize(HIGH)));
  await comeIn(alice.page, a, alicesBase);
  await comeIn(bob.page, b, bobsBase);
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  return [a, b, chat];
}

const noErrors = () => assert.deepEqual([...alice.errors, ...bob.errors], []);
const POSTS = '**/api/v1/chats/*/messages';

for (const [base, transport, words] of [
  [BLOCKED, 'SSE', 'refuses WebSockets: the page goes on by SSE'],
  [BUFFERED, 'long-poll', 'holds streams back, too: the page goes on by long-poll'],
]) {
  test(`a proxy that ${words}`, async (t) => {
    const began = Date.now();
    const [, b, chat] = await pair(undefined, base);
    t.diagnostic(`both were live after ${Date.now() - began} ms`);
    const state = bob.page.getByTestId('connection');
    const over = state.filter({ hasText: `Live over ${transport}` });
    await over.waitFor({ timeout: 3 * DEADLINE_MS });
    const texts = [];
    const times = [];
    for (let n = 1; n <= 5; n++) {
      texts.push(`message ${n}`);
      const sent = Date.now();
      await write(alice.page, texts[n - 1]);
      await shows(bob.page, rows(texts, null));
      times.push(Date.now() - sent);
      await shows(alice.page, rows(texts, 'read'));
    }
    // A poll that held messages back would do so for 25 s. One pass may meet a busy machine.
    t.diagnostic(`each message took ${times} ms`);
    assert.ok(Math.min(...times) < 20_000, `${times}`);
    await write(bob.page, 'and back');
    await shows(alice.page, [...rows(texts, 'read'), { text: 'and back', tick: null }]);
    await shows(bob.page, [...rows(texts, null), { text: 'and back', tick: 'read' }]);

    await goOffline(bob.page);
    await write(alice.page, 'while you are away');
    await shows(alice.page, [
      ...rows(texts, 'read'), { text: 'and back' }, { text: 'while you are away', tick: 'sent' },
    ]);
    await write(bob.page, 'unsent');
    await bob.page.reload();
    await bob.page.getByTestId('online-switch').click();
    await over.waitFor({ timeout: 3 * DEADLINE_MS });
    const all = [...texts, 'and back', 'while you are away', 'unsent'];
    for (const { page } of [alice, bob]) await shows(page, all.map((text) => ({ text })));
    const path = `/chats/${chat}/messages?after_sequence=0`;
    const stored = (await rest(b, 'GET', path)).messages.map(({ content }) => content);
    assert.deepEqual(stored, all);
    noErrors();
  });
}

test('a captive portal: its page is no answer, and what waits is sent once', async () => {
  const [, b, chat] = await pair();
  await goOffline(alice.page);
  let asked = 0;
  await alice.page.route('**/api/**', (route) => {
    asked++;
    return route.fulfill({
      status: 200, contentType: 'text/html', body: '<h1>Welcome to our hotel</h1>',
    });
  });
  await write(alice.page, 'waits for the portal');
  await alice.page.getByTestId('online-switch').click();
  await alice.page.getByTestId('banner').filter({ hasText: '1 message not sent yet' }).waitFor();
  await until('the portal was asked again', () => asked > 3);
  await shows(alice.page, rows(['waits for the portal'], 'sending'));
  await alice.page.unroute('**/api/**');
  await caughtUp(alice.page);
  await shows(alice.page, rows(['waits for the portal'], 'read'));
  assert.equal((await rest(b, 'GET', `/chats/${chat}`)).head_sequence, 1);
  noErrors();
});

test('a server that says "too fast": the message waits as told, and the order stays', async () => {
  await pair();
  const tries = [];
  let seen = false;
  await alice.page.route(POSTS, (route) => {
    if (route.request().method() !== 'POST') return route.continue();
    tries.push([route.request().postDataJSON().content, Date.now()]);
    if (seen && tries.length > 2) return route.continue();
    return route.fulfill({
      status: 429, contentType: 'application/problem+json', headers: { 'Retry-After': '1' },
      body: '{"code":"RATE_LIMITED","detail":"slower"}',
    });
  });
  await write(alice.page, 'first');
  await write(alice.page, 'second');
  await shows(alice.page, rows(['first', 'second'], 'sending'));
  seen = true;
  await shows(bob.page, rows(['first', 'second'], null));
  await shows(alice.page, rows(['first', 'second'], 'read'));
  await alice.page.unroute(POSTS);
  const order = tries.map(([text]) => text);
  assert.ok(order.indexOf('second') >= 3, `${order}`);
  assert.ok(order.lastIndexOf('first') < order.indexOf('second'), `${order}`);
  const [one, two, three] = tries.map(([, at]) => at);
  assert.ok(two - one >= 1_000 && three - two >= 1_000, JSON.stringify(tries));
  noErrors();
});

test('a message that the server refuses for good: ✗, and the next one goes', async () => {
  await pair();
  await alice.page.route(POSTS, (route) => {
    const poison = route.request().method() === 'POST'
      && route.request().postDataJSON().content === 'poison';
    return poison ? route.fulfill({
      status: 400, contentType: 'application/problem+json',
      body: '{"code":"INVALID","detail":"not this"}',
    }) : route.continue();
  });
  for (const text of ['before', 'poison', 'after']) await write(alice.page, text);
  await shows(bob.page, rows(['before', 'after'], null));
  await shows(alice.page, [...rows(['before', 'after'], 'read'),
    { text: 'poison', tick: 'failed' }]);
  await alice.page.getByTestId('discard').click();
  await shows(alice.page, rows(['before', 'after'], 'read'));
  await alice.page.unroute(POSTS);
  noErrors();
});

test('a text that is too large is not queued, and stays in the box', async () => {
  await pair();
  const large = 'x'.repeat(70_000);
  await write(alice.page, large);
  await alice.page.locator('.composer [role="alert"]', { hasText: 'It is too long.' }).waitFor();
  assert.equal(await alice.page.getByTestId('text').inputValue(), large);
  assert.deepEqual(await messages(alice.page), []);
  await write(alice.page, 'shorter');
  await shows(bob.page, rows(['shorter'], null));
  noErrors();
});

test('who is removed can read on, and not write; a newcomer takes no tick back', async () => {
  const [a, b] = await pair();
  const c = `carol-${process.pid}`;
  const { chat_id: group } = await rest(a, 'POST', '/chats', {
    type: 'group', name: 'Harbour', member_ids: [b], client_chat_id: `harbour-${process.pid}`,
  });
  for (const { page } of [alice, bob]) await openChat(page, 'Harbour');
  await write(alice.page, 'read by all');
  await shows(alice.page, rows(['read by all'], 'read'));
  await rest(a, 'POST', `/chats/${group}/members`, { user_ids: [c] });
  await alice.page.getByTestId('chat-members').filter({ hasText: '3 members' }).waitFor();
  await write(alice.page, 'not read by Carol');
  await shows(bob.page, rows(['read by all', 'not read by Carol'], null));
  await until('Bob has read it', async () => {
    const { members } = await rest(a, 'GET', `/chats/${group}/delivery-status`);
    return members.find(({ user_id: id }) => id === b).last_read_sequence >= 2;
  });
  await shows(alice.page, [{ text: 'read by all', tick: 'read' },
    { text: 'not read by Carol', tick: 'sent' }]);
  await alice.page.reload();
  await caughtUp(alice.page);
  await shows(alice.page, [{ text: 'read by all', tick: 'read' },
    { text: 'not read by Carol', tick: 'sent' }]);

  await rest(a, 'DELETE', `/chats/${group}/members/${b}`);
  await bob.page.getByText('You are no longer a member of this chat.').waitFor();
  assert.equal(await bob.page.getByTestId('text').count(), 0);
  await shows(bob.page, rows(['read by all', 'not read by Carol'], null));
  await say(a, group, ['not for Bob']);
  await bob.page.reload();
  await caughtUp(bob.page);
  await shows(bob.page, rows(['read by all', 'not read by Carol'], null));
  noErrors();
});
