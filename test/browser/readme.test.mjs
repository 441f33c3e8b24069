// The browser code of the README, and its pictures, which TIDEMARK_UPDATE=1 takes anew.

import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import {
  caughtUp, comeIn, goOffline, openChat, openWindow, rest, shows, until, write,
} from './browser.mjs';

const PAGE = process.env.TIDEMARK_TEST_PAGE;
const PICTURE = process.env.TIDEMARK_TEST_PICTURE;
const DRAWER = process.env.TIDEMARK_TEST_DRAWER;

test('the code of the README shows messages and their ticks', async () => {
  const alice = await openWindow();
  const bob = await openWindow();
  const lines = ({ page }) => page.locator('li').evaluateAll((items) =>
    items.map((item) => {
      const { content, color } = getComputedStyle(item, '::after');
      const tick = content.startsWith('"') ? JSON.parse(content) : '';
      return item.textContent + tick + (color === 'rgb(30, 144, 255)' ? ' blue' : '');
    }));
  const has = (window, want) =>
    until(
      `a window shows ${want}`,
      async () => String(await lines(window)) === String(want),
      () => lines(window),
    );
  const say = async ({ page }, text) => {
    await page.waitForFunction(() => document.forms[0].onsubmit);
    await page.locator('#text').fill(text);
    await page.locator('#text').press('Enter');
  };
  try {
    await alice.page.goto(`${PAGE}#alice`);
    await say(alice, 'Tea at five?');
    await has(alice, ['alice: Tea at five? ✓']);

    await bob.page.goto(`${PAGE}#bob`);
    await has(bob, ['alice: Tea at five?']);
    await has(alice, ['alice: Tea at five? ✓✓ blue']);
    await say(bob, 'With cake');
    await has(bob, ['alice: Tea at five?', 'bob: With cake ✓✓ blue']);
    await has(alice, ['alice: Tea at five? ✓✓ blue', 'bob: With cake']);

    const { chat_id: chat } = await rest('alice', 'POST', '/chats', {
      type: 'direct',
      member_ids: ['bob'],
    });
    await bob.close();
    await say(alice, 'Which cake?');
    await has(alice, [
      'alice: Tea at five? ✓✓ blue', 'bob: With cake', 'alice: Which cake? ✓',
    ]);
    await rest('bob', 'PATCH', `/chats/${chat}/delivery-state`, { last_acked_sequence: 3 });
    await has(alice, [
      'alice: Tea at five? ✓✓ blue', 'bob: With cake', 'alice: Which cake? ✓✓',
    ]);
    assert.deepEqual(alice.errors, []);
  } finally {
    await alice.close();
    await bob.close();
  }
});

test('the page shows what the picture shows', async () => {
  const options = {
    viewport: { width: 400, height: 500 },
    colorScheme: 'light',
    deviceScaleFactor: 1.5,
  };
  const alice = await openWindow(options);
  const bob = await openWindow(options);
  try {
    await rest('Alice', 'POST', '/chats', { type: 'direct', member_ids: ['Bob'] });
    await rest('Bob', 'POST', '/chats', { type: 'direct', member_ids: ['Carol'] });
    await comeIn(alice.page, 'Alice');
    await comeIn(bob.page, 'Bob');
    await openChat(alice.page, 'Bob');
    await openChat(bob.page, 'Alice');
    await write(alice.page, 'Tea at five?');
    await shows(alice.page, [{ text: 'Tea at five?', tick: 'read' }]);
    await write(bob.page, 'With cake!');
    await shows(alice.page, [{ text: 'Tea at five?' }, { text: 'With cake!' }]);
    await bob.page.getByTestId('back').click();
    await bob.page.getByTestId('log').waitFor({ state: 'detached' });
    await write(alice.page, 'Which cake?');
    await shows(alice.page, [
      { text: 'Tea at five?' }, { text: 'With cake!' },
      { text: 'Which cake?', tick: 'delivered' },
    ]);
    await goOffline(bob.page);
    await write(alice.page, 'Bob?');
    await shows(alice.page, [
      { text: 'Tea at five?', tick: 'read' }, { text: 'With cake!' },
      { text: 'Which cake?', tick: 'delivered' }, { text: 'Bob?', tick: 'sent' },
    ]);
    if (PICTURE) await writeFile(PICTURE, await sideBySide(alice, bob));
  } finally {
    await alice.close();
    await bob.close();
  }
});

test('the drawer shows what its picture shows', async () => {
  const window = await openWindow({ viewport: { width: 1180, height: 820 }, colorScheme: 'light' });
  const { page } = window;
  try {
    const { chat_id: chat } = await rest('Dora', 'POST', '/chats', {
      type: 'direct', member_ids: ['Emil'],
    });
    await rest('Emil', 'POST', '/chats', { type: 'direct', member_ids: ['Fay'] });
    for (const [user, content] of [
      ['Emil', 'Is the tide in yet?'], ['Dora', 'High water is at ten past five'],
      ['Emil', 'Then I leave the harbour at four'],
    ]) {
      await rest(user, 'POST', `/chats/${chat}/messages`, {
        client_message_id: content.replaceAll(' ', '-').replace('?', ''), content,
      });
    }
    await comeIn(page, 'Dora');
    await openChat(page, 'Emil');
    await shows(page, [{}, {}, {}].map((_, i) => ({
      text: ['Is the tide in yet?', 'High water is at ten past five',
        'Then I leave the harbour at four'][i],
    })));
    await page.getByTestId('hood').click();
    await page.getByTestId('frames').waitFor();
    await write(page, 'I am in the tunnel until then');
    await page.getByTestId('frame').first().waitFor();
    await goOffline(page);
    await page.getByTestId('many').click();
    await page.getByTestId('pending-row').waitFor();
    await page.getByTestId('many').and(page.locator(':enabled')).waitFor();
    // All that the README says of the picture is on the screen.
    for (const name of ['marks', 'pending-row', 'frame']) {
      const { y, height } = await page.getByTestId(name).first().boundingBox();
      assert.ok(y + height <= page.viewportSize().height, `${name} at ${y}`);
    }
    if (DRAWER) await page.screenshot({ path: DRAWER, animations: 'disabled' });
    await page.getByTestId('online-switch').click();
    await caughtUp(page);
    await page.getByTestId('pending-row').waitFor({ state: 'detached' });
    assert.deepEqual(window.errors, []);
  } finally {
    await window.close();
  }
});

/** One picture of two windows, on no background. */
async function sideBySide(...windows) {
  const shots = [];
  for (const { page } of windows) {
    const shot = await page.screenshot({ animations: 'disabled' });
    shots.push(shot.toString('base64'));
  }
  const sheet = await openWindow({ viewport: { width: 860, height: 532 }, deviceScaleFactor: 1.5 });
  try {
    await sheet.page.setContent(`<style>
      body { margin: 16px; display: flex; gap: 28px; background: transparent }
      img {
        width: 400px; height: 500px; border-radius: 10px;
        box-shadow: 0 0 0 1px #8888, 0 2px 10px #0004
      }
    </style>${shots.map((shot) => `<img src="data:image/png;base64,${shot}">`).join('')}`);
    return await sheet.page.screenshot({ omitBackground: true });
  } finally {
    await sheet.close();
  }
}
