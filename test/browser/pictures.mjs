// Takes pictures of the states of the page, wide and narrow, light and dark, for people to look
// at. It is no test. It needs a server of its own with --dev, and its users are new each time:
//
//   TIDEMARK_TEST_URL=http://127.0.0.1:8080 TIDEMARK_TEST_CHROMIUM=/usr/bin/chromium \
//     node test/browser/pictures.mjs DIRECTORY [STATE…]

import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import {
  BASE, comeIn, goOffline, openChat, openWindow, rest, say, write,
} from './browser.mjs';

const [directory, ...wanted] = process.argv.slice(2);
if (!directory) throw new Error('name the directory of the pictures');
await mkdir(directory, { recursive: true });

const WIDE = { width: 1100, height: 720 };
const NARROW = { width: 390, height: 720 };
const run = Date.now().toString(36);

/** Makes users and chats for one picture. The names of each differ only in a suffix. */
async function people() {
  const suffix = `-${run}-${Math.random().toString(36).slice(2, 6)}`;
  const name = (one) => `${one}${suffix}`;
  const me = name('ana');
  const chat = async (with_, texts, more = {}) => {
    const { chat_id: id } = await rest(me, 'POST', '/chats', {
      type: 'direct', member_ids: [name(with_)], ...more,
    });
    for (const [who, text] of texts) await say(who === 'ana' ? me : name(who), id, [text]);
    return id;
  };
  const bob = await chat('bob', [
    ['bob', 'Is the tide in yet?'],
    ['ana', 'High water is at ten past five. The harbour office says that the wind turns north.'],
    ['bob', 'Then I leave at four'],
    ['ana', 'https://example.com/tides?day=today&port=7'],
    ['ana', 'Bring the charts'],
  ]);
  await rest(name('bob'), 'PATCH', `/chats/${bob}/delivery-state`, { last_read_sequence: 4 });
  await rest(me, 'PATCH', `/chats/${bob}/delivery-state`, { last_read_sequence: 5 });
  const group = await rest(me, 'POST', '/chats', {
    type: 'group', client_chat_id: `crew${suffix}`, name: 'Crew of the Petrel',
    member_ids: [name('bob'), name('carol'), name('dan')],
  });
  await say(name('carol'), group.chat_id, ['Who has the key?', 'It is not in the office']);
  await say(name('dan'), group.chat_id, ['I have it']);
  await chat('noor', [['noor', 'مرحبا، كيف حالك اليوم؟'], ['ana', 'Very well!']]);
  return { me, name, bob, group: group.chat_id };
}

const inChat = async (page) => {
  const all = await people();
  await comeIn(page, all.me);
  await openChat(page, all.name('bob'));
  return all;
};

/** Does something in the list of an open chat. A narrow page shows either of them. */
async function inList(page, what) {
  const back = page.getByTestId('back');
  const narrow = await back.isVisible();
  if (narrow) await back.click();
  await what();
  if (narrow) await page.goForward();
  await page.getByTestId('text').waitFor();
}

const offline = (page) => inList(page, () => goOffline(page));

/** Each brings the page into a state. */
const states = {
  async 'sign-in'(page) { await page.goto(BASE); await page.getByTestId('user').waitFor(); },
  async empty(page) {
    await comeIn(page, `new-${run}-${Math.random().toString(36).slice(2, 6)}`);
    await page.getByTestId('no-chats').waitFor();
  },
  async list(page) { await comeIn(page, (await people()).me); },
  async conversation(page) { await inChat(page); },
  async 'unread-divider'(page) {
    const all = await people();
    await say(all.name('bob'), all.bob, Array.from({ length: 25 }, (_, i) => `Buoy ${i + 1}`));
    await comeIn(page, all.me);
    await openChat(page, all.name('bob'));
    await page.getByTestId('divider').waitFor();
  },
  async group(page) {
    const all = await people();
    await comeIn(page, all.me);
    await openChat(page, 'Crew of the Petrel');
    await write(page, 'Leave it under the mat');
    await rest(all.name('bob'), 'POST', `/chats/${all.group}/typing`);
  },
  async attachments(page) {
    const all = await inChat(page);
    await rest(all.name('bob'), 'POST', `/chats/${all.bob}/messages`, {
      client_message_id: 'with-files', content: 'The chart and the log', seen_sequence: 0,
      attachments: [
        { name: 'harbour-chart.pdf', content_type: 'application/pdf', size: 482_133 },
        { name: 'log of the voyage, with a long name that does not fit.txt', size: 1_204 },
      ],
    });
    await page.getByTestId('attachment').last().waitFor();
  },
  async 'right-to-left'(page) {
    const all = await people();
    await comeIn(page, all.me);
    await openChat(page, all.name('noor'));
  },
  async 'who-has-it'(page) {
    const all = await people();
    await comeIn(page, all.me);
    await openChat(page, 'Crew of the Petrel');
    await write(page, 'Leave it under the mat');
    await page.locator('.tick[data-tick="sent"]').last().waitFor();
    await rest(all.name('bob'), 'PATCH', `/chats/${all.group}/delivery-state`,
      { last_read_sequence: 4 });
    await rest(all.name('carol'), 'PATCH', `/chats/${all.group}/delivery-state`,
      { last_acked_sequence: 4 });
    await page.locator('.row button.tick, [data-testid="tick"]').last().click();
    await page.getByTestId('count-read').waitFor();
  },
  async search(page) {
    await inChat(page);
    await page.getByTestId('log').focus();
    await page.keyboard.press('Control+f');
    await page.getByTestId('search-text').fill('tide');
    await page.getByTestId('search-count').waitFor();
  },
  async menu(page) {
    await comeIn(page, (await people()).me);
    await page.getByTestId('menu').click();
    await page.getByTestId('logout').waitFor();
  },
  async 'new-chat'(page) {
    await comeIn(page, (await people()).me);
    await page.getByTestId('new-chat').click();
    await page.getByTestId('people').fill('not/a/name');
    await page.getByTestId('create').click();
    await page.locator('dialog [role="alert"]').waitFor();
  },
  async offline(page) {
    await inChat(page);
    await offline(page);
    await write(page, 'Written without a connection');
  },
  async 'no-network'(page) {
    await inChat(page);
    await page.context().setOffline(true);
    await write(page, 'Written without a network');
    await page.getByTestId('banner').waitFor();
  },
  async failed(page) {
    const all = await inChat(page);
    await offline(page);
    await write(page, 'Too late');
    await rest(all.name('bob'), 'POST', `/chats/${all.bob}/messages`,
      { client_message_id: 'meanwhile', content: 'Are you there?', seen_sequence: 0 });
    await page.route('**/messages', (route) => route.request().method() === 'POST'
      ? route.fulfill({ status: 403, contentType: 'application/problem+json',
        body: JSON.stringify({ code: 'DENIED', detail: 'readers do not write' }) })
      : route.continue());
    await inList(page, () => page.getByTestId('online-switch').click());
    await page.getByTestId('discard').waitFor();
    await page.getByTestId('banner').waitFor({ state: 'detached' });
  },
  async 'sign-out-unsent'(page) {
    await inChat(page);
    await offline(page);
    await write(page, 'Not sent yet');
    if (await page.getByTestId('back').isVisible()) await page.getByTestId('back').click();
    await page.getByTestId('menu').click();
    await page.getByTestId('logout').click();
    await page.getByTestId('stay').waitFor();
  },
  async hood(page) {
    const all = await inChat(page);
    await page.getByRole('button', { name: 'Under the hood' }).click();
    await page.getByTestId('frames').waitFor();
    await say(all.name('bob'), all.bob, ['Seen under the hood']);
    await page.getByTestId('frame').first().waitFor();
  },
};

for (const name of wanted.length > 0 ? wanted : Object.keys(states)) {
  const shots = [];
  for (const viewport of [WIDE, NARROW]) {
    const window = await openWindow({ viewport, locale: 'en-GB' });
    const { page } = window;
    try {
      await states[name](page);
      await page.waitForTimeout(700); // Fonts, images and the list settle.
      for (const colorScheme of ['light', 'dark']) {
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        shots.push([viewport.width, await page.screenshot({ animations: 'disabled' })]);
      }
    } catch (error) {
      console.error(`${name} at ${viewport.width}: ${error.message.split('\n')[0]}`);
      process.exitCode = 1;
    } finally {
      await page.context().setOffline(false);
      await window.close();
    }
  }
  const sheet = await openWindow({ viewport: { width: 1560, height: 1460 } });
  try {
    await sheet.page.setContent(`<style>
      body { margin: 16px; background: #888; display: grid; gap: 16px;
        grid-template-columns: 1100px 390px }
      img { display: block; grid-row: span 1 }
    </style>${[0, 2, 1, 3].filter((i) => shots[i]).map((i) => `<img width="${shots[i][0]}"
      src="data:image/png;base64,${shots[i][1].toString('base64')}">`).join('')}`);
    await writeFile(path.join(directory, `${name}.png`),
      await sheet.page.screenshot({ fullPage: true }));
  } finally {
    await sheet.close();
  }
  console.log(name);
}
