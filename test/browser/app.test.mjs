// The page at `/`, as two people use it.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  BASE, HIGH, caughtUp, comeIn, connection, editStore, goOffline, messages, newPair, onDisk,
  openChat, openWindow, rest, shows, until, wholeChat, write,
} from './browser.mjs';
import { startCutter } from './cutter.mjs';

let alice, bob;

before(async () => {
  [alice, bob] = await Promise.all([openWindow(), openWindow()]);
});

after(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
});

async function pair() {
  const [a, b] = await newPair(alice, bob);
  await comeIn(alice.page, a);
  await comeIn(bob.page, b);
  return [a, b];
}

function noErrors() {
  assert.deepEqual([...alice.errors, ...bob.errors], []);
}

test('ticks move from sent to delivered to read, live', async () => {
  const [a, b] = await pair();
  await openChat(alice.page, b);
  await goOffline(bob.page);

  await write(alice.page, 'hello');
  await shows(alice.page, [{ text: 'hello', tick: 'sent' }]);

  await bob.page.getByTestId('online-switch').click();
  await shows(alice.page, [{ text: 'hello', tick: 'delivered' }]);
  await bob.page.locator('[data-testid="unread"]', { hasText: '1' }).waitFor();

  await openChat(bob.page, a);
  await shows(alice.page, [{ text: 'hello', tick: 'read' }]);
  await bob.page.getByTestId('unread').waitFor({ state: 'detached' });
  await shows(bob.page, [{ text: 'hello', tick: null }]);
  noErrors();
});

test('fifty messages while offline arrive in order, and every tick is right', async () => {
  const [a, b] = await pair();
  await Promise.all([alice, bob].map(({ page }) => page.setViewportSize(HIGH)));
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  await goOffline(bob.page);

  const texts = Array.from({ length: 50 }, (_, i) => `message ${i + 1}`);
  for (const text of texts) await write(alice.page, text);
  await shows(alice.page, texts.map((text) => ({ text, tick: 'sent' })));
  assert.deepEqual(await messages(bob.page), []);

  await bob.page.getByTestId('online-switch').click();
  await caughtUp(bob.page);
  await shows(bob.page, texts.map((text) => ({ text, tick: null })));
  await shows(alice.page, texts.map((text) => ({ text, tick: 'read' })));
  noErrors();
});

test('a reload keeps the open chat, the wish to be offline, and what is written', async () => {
  const [, b] = await pair();
  await openChat(alice.page, b);
  await goOffline(alice.page);
  await write(alice.page, 'written in the tunnel');
  await shows(alice.page, [{ text: 'written in the tunnel', tick: 'sending' }]);
  await alice.page.getByTestId('text').fill('not finis');

  await alice.page.reload();
  await connection(alice.page, 'offline');
  await shows(alice.page, [{ text: 'written in the tunnel', tick: 'sending' }]);
  assert.equal(await alice.page.getByTestId('text').inputValue(), 'not finis');
  await alice.page.getByTestId('online-switch').click();
  await caughtUp(alice.page);
  await shows(alice.page, [{ text: 'written in the tunnel', tick: 'delivered' }]);
  noErrors();
});

test('a send that is refused shows ✗ and is retried under the same id', async () => {
  const [a, b] = await pair();
  await openChat(alice.page, b);
  const ids = [];
  let refuse = true;
  await alice.page.route('**/api/v1/chats/*/messages', async (route) => {
    if (route.request().method() !== 'POST') return route.continue();
    ids.push(route.request().postDataJSON().client_message_id);
    if (!refuse) return route.continue();
    return route.fulfill({
      status: 400,
      contentType: 'application/problem+json',
      body: '{"code":"INVALID","detail":"not today"}',
    });
  });
  await write(alice.page, 'try me');
  await shows(alice.page, [{ text: 'try me', tick: 'failed' }]);

  refuse = false;
  await alice.page.getByTestId('retry').click();
  await shows(alice.page, [{ text: 'try me', tick: 'delivered' }]);
  await alice.page.unroute('**/api/v1/chats/*/messages');
  assert.ok(ids.length >= 2);
  assert.equal(new Set(ids).size, 1);
  await openChat(bob.page, a);
  await shows(bob.page, [{ text: 'try me', tick: null }]);
  noErrors();
});

test('a message of an unknown kind is acknowledged, not shown and not counted', async () => {
  const [a, b] = await pair();
  // The server has no such kind yet. So the page of b changes the kind in what it receives.
  await bob.page.addInitScript(() => {
    const later = (value) => {
      if (value?.content?.startsWith?.('poll')) value.kind = 'poll';
      if (value && typeof value === 'object') Object.values(value).forEach(later);
      return value;
    };
    const { parse } = JSON;
    JSON.parse = (...all) => later(parse(...all));
    const { json } = Response.prototype;
    Response.prototype.json = async function known() { return later(await json.call(this)); };
  });
  await bob.page.reload();
  await caughtUp(bob.page);
  await openChat(alice.page, b);
  await write(alice.page, 'hello');
  await write(alice.page, 'poll: lunch?');
  // Both are acknowledged, and one counts.
  await shows(alice.page, [
    { text: 'hello', tick: 'delivered' }, { text: 'poll: lunch?', tick: 'delivered' },
  ]);
  await bob.page.locator('[data-testid="unread"]', { hasText: /^1$/ }).waitFor();
  assert.equal(await bob.page.getByText('lunch').count(), 0);

  await openChat(bob.page, a);
  await shows(bob.page, [{ text: 'hello', tick: null }]);
  // A hidden message is read together with the shown message above it.
  await shows(alice.page, [
    { text: 'hello', tick: 'read' }, { text: 'poll: lunch?', tick: 'read' },
  ]);
  await write(alice.page, 'poll: dinner?');
  await write(alice.page, 'well?');
  await shows(bob.page, [{ text: 'hello', tick: null }, { text: 'well?', tick: null }]);
  await bob.page.reload();
  await caughtUp(bob.page);
  await openChat(bob.page, a);
  await shows(bob.page, [{ text: 'hello', tick: null }, { text: 'well?', tick: null }]);
  noErrors();
});

test('a message is edited and deleted in its place, and nothing is left of it', async () => {
  const [a, b] = await pair();
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  const canaries = ['first', 'second'].map((text) => `${text} ${Math.random()}`);
  await write(alice.page, canaries[0]);
  await shows(bob.page, [{ text: canaries[0] }]);
  await shows(alice.page, [{ text: canaries[0], tick: 'read' }]);

  // With the keyboard: the row, its button, the editor.
  const { page } = alice;
  const focused = (id) => page.locator(`[data-testid="${id}"]:focus`).waitFor();
  const edit = async (text, key) => {
    await page.getByTestId('log').focus();
    await page.keyboard.press('End');
    await page.locator('.row:focus').waitFor();
    await page.keyboard.press('Tab');
    await focused('act');
    await page.keyboard.press('Enter');
    await focused('edit');
    await page.keyboard.press('Enter');
    await focused('edit-text');
    await page.keyboard.press('ControlOrMeta+A');
    await page.keyboard.type(text);
    await page.keyboard.press(key);
    await page.locator('.row:focus').waitFor();
  };
  await edit('never said', 'Escape');
  await shows(page, [{ text: canaries[0] }]);
  await edit(canaries[1], 'Enter');
  await shows(bob.page, [{ text: canaries[1] }]);
  await bob.page.getByTestId('edited').waitFor();
  await shows(page, [{ text: canaries[1], tick: 'read' }]);
  await bob.page.getByTestId('act').click();
  await bob.page.getByTestId('react').first().waitFor();
  assert.equal(await bob.page.getByTestId('edit').count(), 0);
  assert.equal(await bob.page.getByTestId('delete').count(), 0);
  await bob.page.getByTestId('keep').click();

  // With the mouse. It asks once more.
  await page.getByTestId('act').click();
  await page.getByTestId('delete').click();
  await page.getByTestId('keep').click();
  await page.getByTestId('act').click();
  await page.getByTestId('delete').click();
  await page.getByTestId('confirm').click();
  await shows(page, [{ text: 'You deleted this message' }]);
  await shows(bob.page, [{ text: `${a} deleted this message` }]);
  // The page says so before the server has answered, and removes the text after that.
  for (const one of [page, bob.page]) {
    let found = [];
    await until('nothing is left', async () => {
      const left = await onDisk(one) + await one.content();
      found = canaries.filter((canary) => left.includes(canary));
      return found.length === 0;
    }, () => found);
  }
  noErrors();
});

test('a reaction is shown to both, and a click takes it back', async () => {
  const [a, b] = await pair();
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  await write(alice.page, 'cake?');
  await shows(bob.page, [{ text: 'cake?' }]);
  const chips = (page) => page.getByTestId('reaction').evaluateAll((all) =>
    all.map((one) => one.innerText + (one.ariaPressed === 'true' ? '*' : '')));
  const react = (page, want) => until(`the reactions are ${want}`, async () =>
    (await chips(page)).join() === want, () => chips(page));

  await bob.page.getByTestId('act').click();
  await bob.page.getByTestId('react').first().click();
  await react(bob.page, '👍 1*');
  await react(alice.page, '👍 1');
  await alice.page.getByTestId('reaction').click();
  await react(alice.page, '👍 2*');
  await react(bob.page, '👍 2*');
  // It is on disk, and counts for nothing else.
  await alice.page.reload();
  await react(alice.page, '👍 2*');
  assert.equal(await alice.page.getByTestId('unread').count(), 0);
  await shows(alice.page, [{ text: 'cake?', tick: 'read' }]);
  await bob.page.getByTestId('reaction').click();
  await react(bob.page, '👍 1');
  await react(alice.page, '👍 1*');
  // A screen reader is not told that a message was deleted.
  const said = await alice.page.locator('.log-box [role="status"]').allTextContents();
  assert.ok(!said.join().includes('deleted'), said.join());
  await alice.page.getByTestId('reaction').click();
  await react(bob.page, '');
  assert.ok(await alice.page.evaluate(() => document.activeElement?.matches('.row')),
    'the focus stays at the message');
  noErrors();
});

test('of many reactions the most frequent are shown, and the others on demand', async () => {
  const [a, b] = await pair();
  const chat = (await rest(a, 'GET', '/chats')).chats[0].chat_id;
  let sent = 0;
  const reacts = (user, emoji) => rest(user, 'POST', `/chats/${chat}/messages`, {
    client_message_id: `react-${++sent}`, kind: 'react', relation: { sequence: 1, emoji },
  });
  await openChat(alice.page, b);
  await write(alice.page, 'cake?');
  await shows(alice.page, [{ text: 'cake?', tick: 'delivered' }]);
  for (let n = 1; n <= 15; n++) await reacts(b, `x${n}`);
  await reacts(a, 'x15');
  const { page } = alice;
  const chips = () => page.getByTestId('reaction').evaluateAll((all) =>
    all.map((one) => one.innerText.split(' ')[0]));
  const first = Array.from({ length: 11 }, (_, n) => `x${n + 1}`);
  const want = async (shown) => until(`the reactions are ${shown}`, async () =>
    (await chips()).join() === shown.join(), chips);
  await want([...first, 'x15']);
  await page.getByTestId('more-reactions').filter({ hasText: '+3' }).click();
  await want([...first, 'x12', 'x13', 'x14', 'x15']);
  assert.equal(await page.getByTestId('more-reactions').count(), 0);
  assert.ok(await page.evaluate(() => document.activeElement?.matches('.row')),
    'the focus stays at the message');
  noErrors();
});

test('who may pin undoes a pin of a message that they do not see', async () => {
  const [a, b] = await pair();
  const name = `later ${b}`;
  const { chat_id: chat } = await rest(a, 'POST', '/chats', {
    type: 'group', client_chat_id: name.replace(' ', '-'), name, history: 'since_join',
    member_ids: [a],
  });
  const messages = `/chats/${chat}/messages`;
  await rest(a, 'POST', messages, { client_message_id: 'one', content: 'before' });
  await rest(a, 'POST', messages, {
    client_message_id: 'two', kind: 'pin', relation: { sequence: 1 },
  });
  await rest(a, 'POST', `/chats/${chat}/members`, { user_ids: [b], role: 'admin' });
  await openChat(bob.page, name);
  await bob.page.getByTestId('pinned').filter({ hasText: 'cannot see' }).waitFor();
  await bob.page.getByTestId('unpin-hidden').click();
  await bob.page.getByTestId('pinned').waitFor({ state: 'detached' });
  assert.deepEqual((await rest(a, 'GET', `/chats/${chat}/pins`)).pins, []);
  noErrors();
});

test('a message is pinned above the chat, for both', async () => {
  const [a, b] = await pair();
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  for (const text of ['first', 'second']) await write(alice.page, text);
  await shows(bob.page, [{ text: 'first' }, { text: 'second' }]);
  const pinned = (page, text) =>
    page.getByTestId('pinned').filter({ hasText: text }).waitFor();
  for (const [n, want] of [[0, 'first'], [1, 'second2']]) {
    await alice.page.getByTestId('act').nth(n).click();
    await alice.page.getByTestId('pin').click();
    await Promise.all([alice, bob].map(({ page }) => pinned(page, want)));
  }
  await bob.page.getByTestId('act').nth(1).click();
  await bob.page.getByTestId('pin').filter({ hasText: 'Unpin' }).click();
  await Promise.all([alice, bob].map(({ page }) => pinned(page, 'first')));
  // A pinned message that is deleted says nothing here, either.
  await alice.page.getByTestId('act').first().click();
  await alice.page.getByTestId('delete').click();
  await alice.page.getByTestId('confirm').click();
  await Promise.all([alice, bob].map(({ page }) => pinned(page, 'Message deleted')));
  noErrors();
});

test('a change that the server refuses leaves the message as it was', async () => {
  const [a, b] = await pair();
  await openChat(alice.page, b);
  await write(alice.page, 'it stays');
  await shows(alice.page, [{ text: 'it stays', tick: 'delivered' }]);
  const chat = (await rest(a, 'GET', '/chats')).chats[0].chat_id;
  await goOffline(alice.page);
  await alice.page.getByTestId('act').click();
  await alice.page.getByTestId('edit').click();
  await alice.page.getByTestId('edit-text').fill('it goes');
  await alice.page.getByTestId('save').click();
  await shows(alice.page, [{ text: 'it goes' }]);
  await rest(a, 'POST', `/chats/${chat}/messages`, {
    client_message_id: 'elsewhere', kind: 'redact', relation: { sequence: 1 },
  });
  await alice.page.getByTestId('online-switch').click();
  await alice.page.getByRole('alert').filter({ hasText: 'Not saved' }).waitFor();
  await shows(alice.page, [{ text: 'You deleted this message' }]);
  noErrors();
});

test('a chat that is open in a hidden window is delivered, not read', async () => {
  const [a, b] = await pair();
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  const visibility = (state) => bob.page.evaluate((value) => {
    Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => value });
    document.hasFocus = () => value === 'visible';
    document.dispatchEvent(new Event('visibilitychange'));
    window.dispatchEvent(new Event(value === 'visible' ? 'focus' : 'blur'));
  }, state);
  await visibility('hidden');
  await write(alice.page, 'are you there?');
  await shows(alice.page, [{ text: 'are you there?', tick: 'delivered' }]);
  await visibility('visible');
  await shows(alice.page, [{ text: 'are you there?', tick: 'read' }]);
  noErrors();
});

test('in a group ✓✓ waits for every other member', async () => {
  const [a, b] = await pair();
  const absent = `${b}-absent`;
  await alice.page.getByTestId('new-chat').click();
  await alice.page.getByTestId('people').fill(`${b} ${absent}`);
  await alice.page.getByTestId('group-name').fill('Harbour');
  await alice.page.getByTestId('create').click();
  await alice.page.locator('[data-testid="chat-name"]', { hasText: 'Harbour' }).waitFor();
  await write(alice.page, 'all aboard');
  await openChat(bob.page, 'Harbour');
  await shows(bob.page, [{ text: 'all aboard', tick: null }]);
  // Until the message is confirmed, its tick is no button.
  await alice.page.locator('button[data-testid="tick"]').click();
  await has(alice.page, { received: '2 of 3', read: '2 of 3' }, { read: [a, b], sent: [absent] });
  await shows(alice.page, [{ text: 'all aboard', tick: 'sent' }]);

  const [chat] = (await rest(absent, 'GET', '/chats')).chats;
  await rest(absent, 'POST', '/acks', {
    chats: [{ chat_id: chat.chat_id, last_acked_sequence: 1 }],
  });
  await shows(alice.page, [{ text: 'all aboard', tick: 'delivered' }]);
  await has(alice.page, { received: '3 of 3', read: '2 of 3' }, { delivered: [absent] });
  await rest(absent, 'POST', '/acks', {
    chats: [{ chat_id: chat.chat_id, last_read_sequence: 1 }],
  });
  await shows(alice.page, [{ text: 'all aboard', tick: 'read' }]);
  await has(alice.page, { received: '3 of 3', read: '3 of 3' }, { read: [a, b, absent] });
  noErrors();
});

/** Waits until the open panel shows these counts, and these members below each tick. */
async function has(page, counts, members) {
  const shown = async () => {
    const seen = {};
    for (const name of Object.keys(counts)) {
      seen[name] = await page.getByTestId(`count-${name}`).textContent();
    }
    for (const tick of Object.keys(members)) {
      const names = await page.getByTestId(`who-${tick}`).locator('bdi').allTextContents();
      seen[tick] = names.sort();
    }
    return seen;
  };
  const want = { ...counts };
  for (const [tick, names] of Object.entries(members)) want[tick] = [...names].sort();
  const same = async () => JSON.stringify(await shown()) === JSON.stringify(want);
  await until(`the panel shows ${JSON.stringify(want)}`, same, shown);
}

test('older messages come page by page, without a hole', async () => {
  const [a, b] = await pair();
  const chat = (await rest(a, 'GET', '/chats')).chats[0].chat_id;
  for (let i = 1; i <= 120; i++) {
    await rest(b, 'POST', `/chats/${chat}/messages`, {
      client_message_id: `old-${i}`,
      content: `old ${i}`,
    });
  }
  await openChat(alice.page, b);
  const texts = Array.from({ length: 120 }, (_, i) => `old ${i + 1}`);
  assert.deepEqual(await wholeChat(alice.page, texts.at(-1)), texts);
  noErrors();
});

test('what a message holds is shown as text', async () => {
  const [a, b] = await pair();
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  const nasty = '<img src=x onerror="document.title=1"><script>document.title=2</script>&amp;';
  await write(alice.page, nasty);
  await shows(bob.page, [{ text: nasty }]);
  assert.equal(await bob.page.locator('.log img, .log script').count(), 0);
  noErrors();
});

test('what the device cannot store is acknowledged only when it is shown', async () => {
  const [a, b] = await pair();
  await openChat(alice.page, b);
  await bob.page.evaluate(() => {
    const { put } = IDBObjectStore.prototype;
    const full = { get: () => new DOMException('no room', 'QuotaExceededError') };
    Object.defineProperty(IDBTransaction.prototype, 'error', full);
    IDBObjectStore.prototype.put = function refuse(...all) {
      const request = put.apply(this, all);
      this.transaction.abort();
      return request;
    };
  });
  await write(alice.page, 'too much');
  await bob.page.getByTestId('banner').filter({ hasText: 'not kept in this browser' }).waitFor();
  await bob.page.locator('[data-testid="unread"]', { hasText: '1' }).waitFor();
  await bob.page.goto('about:blank'); // What it wants to acknowledge, it does now at the latest.
  const chat = (await rest(b, 'GET', '/chats')).chats[0];
  assert.deepEqual(
    { head: chat.head_sequence, acked: chat.last_acked_sequence },
    { head: 1, acked: 0 },
  );
  await shows(alice.page, [{ text: 'too much', tick: 'sent' }]);

  await bob.page.goBack();
  await caughtUp(bob.page);
  await shows(alice.page, [{ text: 'too much', tick: 'delivered' }]);
  await openChat(bob.page, a);
  await shows(bob.page, [{ text: 'too much' }]);
  noErrors();
});

test('a stream that is refused is opened anew and goes on in the same session', async () => {
  const cutter = await startCutter(BASE);
  try {
    const names = await pair();
    await bob.newTab();
    const opened = [];
    let refuse = false;
    bob.page.on('websocket', (socket) => {
      opened.push(new URL(socket.url()).searchParams.get('session_id'));
    });
    // Without a ticket the client goes on over SSE, with its token.
    bob.page.on('request', (request) => {
      if (request.url().includes('/api/v1/events')) opened.push(request.headers()['last-event-id']);
    });
    await bob.page.route('**/api/v1/tickets', (route) => {
      if (!refuse) return route.continue();
      refuse = false;
      return route.fulfill({
        status: 503,
        contentType: 'application/problem+json',
        body: '{"code":"UNAVAILABLE"}',
      });
    });
    await comeIn(bob.page, names[1], cutter.url);
    await openChat(bob.page, names[0]);
    await openChat(alice.page, names[1]);
    await write(alice.page, 'before');
    await shows(bob.page, [{ text: 'before' }]);
    assert.equal(opened[0], null);
    opened.length = 0;
    refuse = true;
    cutter.cut();
    await write(alice.page, 'meanwhile');
    await shows(bob.page, [{ text: 'before' }, { text: 'meanwhile' }]);
    await shows(alice.page, [
      { text: 'before', tick: 'read' },
      { text: 'meanwhile', tick: 'read' },
    ]);
    assert.equal(refuse, false);
    assert.ok(opened.some(Boolean), String(opened));
    noErrors();
  } finally {
    await cutter.close();
  }
});

test('two devices of one user show the same, and reading on one reads on both', async () => {
  const [a, b] = await pair();
  await bob.newTab();
  await comeIn(bob.page, a); // The second window is Alice's other device.
  await openChat(alice.page, b);
  await write(alice.page, 'from my phone');
  await openChat(bob.page, b);
  await shows(bob.page, [{ text: 'from my phone', tick: 'sent' }]);
  await bob.newTab(); // In a new tab no chat is open.
  await comeIn(bob.page, a);

  const chat = (await rest(b, 'GET', '/chats')).chats[0].chat_id;
  await goOffline(alice.page);
  await rest(b, 'POST', `/chats/${chat}/messages`, {
    client_message_id: 'answer',
    content: 'to both',
  });
  await bob.page.locator('[data-testid="unread"]', { hasText: '1' }).waitFor();
  await alice.page.getByTestId('online-switch').click();
  await shows(alice.page, [{ text: 'from my phone' }, { text: 'to both' }]);
  await bob.page.getByTestId('unread').waitFor({ state: 'detached' });
  noErrors();
});

test('a device whose store belongs to another past begins the chat again', async () => {
  const [a, b] = await pair();
  await openChat(bob.page, a);
  await openChat(alice.page, b);
  await write(alice.page, 'once');
  await shows(alice.page, [{ text: 'once', tick: 'read' }]);
  await editStore(bob.page, b, { prefix: 999 });
  await bob.newTab();
  await comeIn(bob.page, b);
  // The chat stays closed: an acknowledgement, not a read, has to tell.
  await write(alice.page, 'twice');
  await shows(alice.page, [{ text: 'once', tick: 'read' }, { text: 'twice', tick: 'delivered' }]);
  await openChat(bob.page, a);
  await shows(bob.page, [{ text: 'once' }, { text: 'twice' }]);
  await shows(alice.page, [{ text: 'once', tick: 'read' }, { text: 'twice', tick: 'read' }]);
  noErrors();
});
