// The page on a server for others: without --dev, with tokens and tickets, started anew, and behind
// networks that fail.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  BASE, DEADLINE_MS, HIGH, caughtUp, comeIn, control, editStore, messages, openChat, openWindow,
  rest, shows, tokenOf, until, wholeChat, write,
} from './browser.mjs';
import { startCutter } from './cutter.mjs';

let alice, bob;
const urls = [];

before(async () => {
  [alice, bob] = await Promise.all([openWindow(), openWindow()]);
  for (const window of [alice, bob]) {
    window.page.context().on('request', (request) => urls.push(request.url()));
    window.page.context().on('page', (page) => {
      page.on('websocket', (socket) => urls.push(socket.url()));
    });
  }
});

// Everything that happens below is looked at for this: a token is good for long, and URLs end up
// in logs.
after(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
  assert.ok(urls.some((url) => url.includes('ticket=')));
  assert.deepEqual(urls.filter((url) => url.includes('eyJ') || url.includes('dev:')), []);
});

let pairs = 0;
async function pair(base) {
  const n = ++pairs;
  const names = [`alice${n}-${process.pid}`, `bob${n}-${process.pid}`];
  await Promise.all([alice.newTab(), bob.newTab()]);
  await Promise.all([alice, bob].map(({ page }) => page.setViewportSize(HIGH)));
  await rest(names[0], 'POST', '/chats', { type: 'direct', member_ids: [names[1]] });
  await comeIn(alice.page, names[0]);
  await comeIn(bob.page, names[1], base);
  await openChat(alice.page, names[1]);
  await openChat(bob.page, names[0]);
  return names;
}

function noErrors() {
  assert.deepEqual([...alice.errors, ...bob.errors], []);
}

const numbered = (what, n) => Array.from({ length: n }, (_, i) => `${what} ${i + 1}`);
const banner = (page) => page.getByTestId('banner');

test('one signs in with a token, is told why not, and again when it has expired', async () => {
  await Promise.all([alice.newTab(), bob.newTab()]);
  const name = `carol-${process.pid}`;
  const { page } = alice;
  const problem = page.getByTestId('login-problem');
  const signIn = async (token) => {
    await page.getByTestId('token').fill(token);
    await page.getByTestId('login').click();
  };
  const began = Date.now();
  await page.goto(BASE);
  await page.getByTestId('token').waitFor();
  assert.equal(await page.getByTestId('user').isVisible(), false);

  await page.getByTestId('login').click();
  await problem.filter({ hasText: 'Paste an access token first' }).waitFor();
  await signIn('nonsense');
  await problem.filter({ hasText: 'not an access token' }).waitFor();
  const [head, body, signature] = (await tokenOf(name)).split('.');
  await signIn([head, body, signature.split('').reverse().join('')].join('.'));
  await problem.filter({ hasText: 'Sign in again' }).waitFor();

  // The token is good for signing in and a reload, which take as long as the steps above.
  const seconds = 60 + Math.ceil(3 * (Date.now() - began) / 1_000);
  await signIn(await control(`token?user=${name}&ttl=${seconds}s`));
  await caughtUp(page);
  assert.equal(await page.getByTestId('me').textContent(), name);
  await page.reload();
  await caughtUp(page);
  await problem.filter({ hasText: 'Sign in again' })
    .waitFor({ timeout: seconds * 1_000 + DEADLINE_MS });

  const { chat_id: chat } = await rest(name, 'POST', '/chats', {
    type: 'direct',
    member_ids: ['dave'],
  });
  await rest('dave', 'POST', `/chats/${chat}/messages`, {
    client_message_id: 'm',
    content: 'are you back?',
  });
  await signIn(await tokenOf(name));
  await caughtUp(page);
  await openChat(page, 'dave');
  await shows(page, [{ text: 'are you back?' }]);
  noErrors();
});

test('after a restart the page asks for a new ticket, and nothing is lost or doubled', async () => {
  const [a, b] = await pair();
  const chat = (await rest(a, 'GET', '/chats')).chats[0].chat_id;
  let tickets = 0;
  bob.page.on('request', (request) => {
    if (request.url().endsWith('/api/v1/tickets')) tickets++;
  });
  const texts = numbered('message', 30);
  for (const text of texts.slice(0, 10)) await write(alice.page, text);
  await shows(bob.page, texts.slice(0, 10).map((text) => ({ text })));

  await control('stop');
  await banner(bob.page).filter({ hasText: 'The connection is lost' }).waitFor();
  for (const text of texts.slice(10, 20)) await write(alice.page, text);
  await shows(alice.page, texts.slice(0, 20).map((text, i) => ({
    text,
    tick: i < 10 ? undefined : 'sending',
  })));
  await control('start');
  await caughtUp(bob.page);
  await banner(bob.page).waitFor({ state: 'hidden' });
  await shows(alice.page, texts.slice(0, 20).map((text) => ({ text, tick: 'read' })));
  for (const text of texts.slice(20)) await write(alice.page, text);

  await shows(bob.page, texts.map((text) => ({ text, tick: null })));
  await shows(alice.page, texts.map((text) => ({ text, tick: 'read' })));
  const stored = await rest(b, 'GET', `/chats/${chat}/messages?after_sequence=0&limit=100`);
  assert.deepEqual(stored.messages.map((m) => m.content), texts);
  assert.ok(tickets >= 1, `${tickets} tickets`);
  noErrors();
});

test('the same without a visible pause: a session that is gone is replaced', async () => {
  const [, b] = await pair();
  await control('stop');
  await control('start');
  await write(alice.page, 'still there?');
  await shows(bob.page, [{ text: 'still there?' }]);
  await shows(alice.page, [{ text: 'still there?', tick: 'read' }]);
  assert.equal((await rest(b, 'GET', '/chats')).chats[0].last_acked_sequence, 1);
  noErrors();
});

// Alice writes twenty messages while Bob's network is gone. Bob writes some meanwhile, too. `gone`
// takes the network away, and `back` gives it back.
async function tunnel(gone, back) {
  await write(alice.page, 'before');
  await shows(bob.page, [{ text: 'before' }]);
  await shows(alice.page, [{ text: 'before', tick: 'read' }]);
  await gone();
  await banner(bob.page).filter({ hasText: 'The connection is lost' }).waitFor();
  const texts = numbered('message', 20);
  for (const text of texts) await write(alice.page, text);
  await shows(alice.page, ['before', ...texts].map((text, i) => ({
    text,
    tick: i === 0 ? 'read' : 'sent',
  })));
  const replies = numbered('from the tunnel', 5);
  for (const text of replies) await write(bob.page, text);
  await shows(bob.page, ['before', ...replies].map((text, i) => ({
    text,
    tick: i === 0 ? null : 'sending',
  })));

  await back();
  await caughtUp(bob.page);
  const hers = ['before', ...texts];
  const row = (text, tick) => ({ text, tick });
  await shows(bob.page, [
    ...hers.map((text) => row(text, null)),
    ...replies.map((text) => row(text, 'read')),
  ]);
  await shows(alice.page, [
    ...hers.map((text) => row(text, 'read')),
    ...replies.map((text) => row(text, null)),
  ]);
  await banner(bob.page).waitFor({ state: 'hidden' });
}

test('twenty messages while the device has no network, and back', async () => {
  await pair();
  const context = bob.page.context();
  await tunnel(() => context.setOffline(true), () => context.setOffline(false));
  noErrors();
});

test('twenty messages while the way to the server is cut, and back', async () => {
  const cutter = await startCutter(BASE);
  try {
    await pair(cutter.url);
    await tunnel(() => cutter.down(), () => cutter.up());
    noErrors();
  } finally {
    await cutter.close();
  }
});

test('in a group of more than fifty the ticks follow the aggregates', async () => {
  await Promise.all([alice.newTab(), bob.newTab()]);
  const [a, b] = [`anna-${process.pid}`, `ben-${process.pid}`];
  const others = Array.from({ length: 58 }, (_, i) => `member${i}-${process.pid}`);
  const { chat_id: chat } = await rest(a, 'POST', '/chats', {
    type: 'group',
    client_chat_id: `fleet-${process.pid}`,
    name: 'Fleet',
    member_ids: [b, ...others],
  });
  const say = (users, boundary) => {
    const chats = [{ chat_id: chat, ...boundary }];
    return Promise.all(users.map((user) => rest(user, 'POST', '/acks', { chats })));
  };
  await comeIn(alice.page, a);
  await openChat(alice.page, 'Fleet');
  await alice.page.getByTestId('chat-members').filter({ hasText: '60 members' }).waitFor();
  await comeIn(bob.page, b);
  await openChat(bob.page, 'Fleet');

  await write(alice.page, 'all ships');
  await shows(bob.page, [{ text: 'all ships' }]);
  await say(others.slice(1), { last_acked_sequence: 1 });
  await shows(alice.page, [{ text: 'all ships', tick: 'sent' }]);
  await say(others.slice(0, 1), { last_acked_sequence: 1 });
  await shows(alice.page, [{ text: 'all ships', tick: 'delivered' }]);
  await say(others.slice(1), { last_read_sequence: 1 });
  assert.deepEqual(await messages(alice.page), [{ text: 'all ships', tick: 'delivered' }]);
  await say(others.slice(0, 1), { last_read_sequence: 1 });
  await shows(alice.page, [{ text: 'all ships', tick: 'read' }]);

  // A reload knows it from the snapshot.
  await alice.page.reload();
  await caughtUp(alice.page);
  await openChat(alice.page, 'Fleet');
  await shows(alice.page, [{ text: 'all ships', tick: 'read' }]);
  noErrors();
});

test('what the device has is shown without a network, and the rest when there is one', async () => {
  const [a, b] = await pair();
  const chat = (await rest(a, 'GET', '/chats')).chats[0].chat_id;
  const texts = numbered('old', 120);
  for (const [i, text] of texts.entries()) {
    await rest(b, 'POST', `/chats/${chat}/messages`, {
      client_message_id: `old-${i}`,
      content: text,
    });
  }
  await alice.page.getByText('old 120', { exact: true }).first().waitFor();
  assert.deepEqual(await wholeChat(alice.page, texts.at(-1)), texts);

  await alice.newTab();
  await comeIn(alice.page, a);
  // A device that has only the last sixty.
  await editStore(alice.page, a, { forgetUpTo: 60 });
  await alice.page.reload();
  await caughtUp(alice.page);
  await alice.page.context().setOffline(true);
  await openChat(alice.page, b);
  const failed = alice.page.getByTestId('older').filter({ hasText: 'Try again' });
  await alice.page.getByTestId('log').hover();
  let shown = [];
  await until('the end of what the device has', async () => {
    await alice.page.mouse.wheel(0, -9_000);
    shown = (await messages(alice.page)).map(({ text }) => text);
    return await failed.isVisible() && shown[0] === texts[60];
  }, () => messages(alice.page));
  assert.deepEqual(shown, texts.slice(60, 60 + shown.length));
  await alice.page.context().setOffline(false);
  assert.deepEqual(await wholeChat(alice.page, texts.at(-1)), texts);
  noErrors();
});
