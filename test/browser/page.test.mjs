// What the page at `/` must not get wrong: long chats, many tabs, drafts, reloads.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  caughtUp, comeIn, connection, editStore, goOffline, messages, numbered, oneWindow, openChat, rest,
  rows, say, shows, until, wholeChat, write,
} from './browser.mjs';

const alice = oneWindow();
const { pair, noErrors } = alice;

async function readUpTo(user, chat) {
  const { members } = await rest(user, 'GET', `/chats/${chat}/delivery-status`);
  return members.find((member) => member.user_id === user).last_read_sequence;
}

const unread = (page, count) =>
  page.locator('[data-testid="unread"]', { hasText: new RegExp(`^${count}\\+?$`) }).waitFor();

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
    // It may go by itself meanwhile.
    if (await jump.isVisible()) await jump.click({ timeout: 5_000 }).catch(() => undefined);
    return (await messages(alice.page)).at(-1)?.text === 'message 240';
  }, () => messages(alice.page));
  assert.deepEqual(await wholeChat(alice.page, texts.at(-1)), texts);
  noErrors();
});

test('a new device gets every message once', async () => {
  const [a, b, chat] = await pair();
  const texts = numbered('once', 300);
  await say(b, chat, texts);
  const parts = [];
  let connections = 0;
  alice.page.on('websocket', (socket) => {
    connections++;
    socket.on('framereceived', ({ payload }) => { parts.push(payload); });
  });
  alice.page.on('response', (response) => {
    if (!response.url().includes('/messages') && !response.url().includes('/sync')) return;
    parts.push(response.text().catch(() => ''));
  });
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  assert.deepEqual(await wholeChat(alice.page, texts.at(-1)), texts);
  const seen = (await Promise.all(parts)).join('');
  const times = texts.map((text) => seen.split(`"${text}"`).length - 1);
  // What a connection brought may come again over the next one.
  assert.ok(times.every((n) => n >= 1 && n <= connections), `${connections}: ${times}`);
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
  // The address changes first. A message that comes before the chat has gone is read.
  await alice.page.getByTestId('log').waitFor({ state: 'detached' });
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
    const loaded = alice.page.waitForEvent('load');
    await alice.page.evaluate(() => {
      document.querySelector('[data-testid="text"]').dispatchEvent(
        new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
      location.reload();
    });
    await loaded;
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
    await alice.page.getByTestId('jump').waitFor({ state: 'detached' });
  };
  for (let n = 0; n < texts.length; n += 60) await follows(texts.slice(n, n + 60));
  // A click leaves the end no more than a message of several lines.
  await log.click({ position: { x: 5, y: 5 } });
  await follows(['one\ntwo\nthree']);
  // Who goes up stays there.
  await until('the log is scrolled up', async () => {
    await log.hover();
    await alice.page.mouse.wheel(0, -2000);
    return alice.page.getByTestId('jump').waitFor({ timeout: 5_000 }).then(() => true, () => false);
  });
  const stands = async () => {
    let last;
    let times = 0;
    await until('the log stands', async () => {
      const top = await log.evaluate((element) => element.scrollTop);
      times = top === last ? times + 1 : 0;
      last = top;
      return times >= 5;
    }, () => last);
    return last;
  };
  const before = await stands();
  await say(b, chat, ['one more']);
  await alice.page.getByTestId('jump').getByText('1 new message').waitFor();
  assert.equal(await log.evaluate((element) => element.scrollTop), before);
  noErrors();
});

test('older messages that come late move nothing on the screen', async () => {
  const [a, b, chat] = await pair();
  const texts = numbered('old', 120);
  await say(b, chat, texts);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await wholeChat(alice.page, texts.at(-1));
  await alice.page.getByTestId('log').press('End');
  await until('all is read', async () => await readUpTo(a, chat) === 120, () => readUpTo(a, chat));
  // A device that has only the last sixty, and a server that fails at first.
  await editStore(alice.page, a, { forgetUpTo: 60 });
  await alice.newTab();
  await alice.page.route(/\/messages\?/, (route) => route.abort());
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await until('the log is scrolled up a little', async () => {
    await alice.page.getByTestId('log').hover();
    await alice.page.mouse.wheel(0, -500);
    return alice.page.getByTestId('jump').waitFor({ timeout: 5_000 }).then(() => true, () => false);
  });
  const again = alice.page.getByTestId('older').getByText('Try again');
  await again.waitFor();
  await alice.page.unroute(/\/messages\?/);
  const log = () => alice.page.getByTestId('log').evaluate((element) => {
    const tops = [...element.querySelectorAll('.message')].map((message) =>
      [message.querySelector('.content').textContent, message.getBoundingClientRect().top]);
    return { height: element.scrollHeight, tops: tops.filter(([, top]) => top > 0) };
  });
  const before = await log();
  await again.click();
  let after;
  await until('the older messages', async () => {
    after = await log();
    return after.height > before.height + 1000;
  }, () => after);
  const [text, top] = before.tops[0];
  const same = after.tops.find((one) => one[0] === text);
  assert.ok(same && Math.abs(same[1] - top) < 2, JSON.stringify([before, after]));
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
    await write(tabs[4], 'from one of them');
    await openChat(alice.page, b);
    await shows(alice.page, [{ text: 'to all tabs' }, { text: 'from one of them', tick: 'sent' }]);
  } finally {
    await Promise.all(tabs.map((tab) => tab.close()));
  }
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

  await Promise.all([connection(page, 'offline'), page.getByTestId('kill').click()]);
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

test('scrolling costs the same in a chat of 100 and of thousands of messages', async () => {
  const large = Number(process.env.TIDEMARK_PAGE_MESSAGES ?? 2_000);
  const [a, b, chat] = await pair();
  const [, short] = [b, await rest(a, 'POST', '/chats', {
    type: 'direct', member_ids: [`${b}-short`],
  })];
  await say(`${b}-short`, short.chat_id, numbered('short', 100));
  await fill(b, chat, large);
  await comeIn(alice.page, a);
  const costs = {};
  for (const [name, count] of [[`${b}-short`, 100], [b, large]]) {
    await openChat(alice.page, name);
    const sizeOf = async () =>
      Number(await alice.page.locator('.row').first().getAttribute('aria-setsize'));
    for (let size = 0; size < count;) {
      size = await until(`more than ${size} of ${count} are loaded`, async () => {
        await alice.page.getByTestId('log').evaluate((log) => { log.scrollTop = 0; });
        const now = await sizeOf();
        return now > size && now;
      }, sizeOf);
    }
    assert.equal(await sizeOf(), count);
    costs[count] = await scrollCost(alice.page);
    assert.ok(costs[count].rows <= 60, `${costs[count].rows} rows in the document`);
  }
  const [few, many] = [costs[100], costs[large]];
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
