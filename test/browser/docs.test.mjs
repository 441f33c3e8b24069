// What docs/quickstart.md, docs/react.md, docs/nextjs.md and the README of the client tell their
// readers to write, in Chromium against the real server. TIDEMARK_TEST_PLACE is the reader's
// directory, in which the quickstart's commands have installed the package.

import assert from 'node:assert/strict';
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { blockWith, blocksOf, filesOf } from '../../web/client/blocks.mjs';
import { BASE, control, DEADLINE_MS, openWindow, rest, until } from './browser.mjs';

const PLACE = process.env.TIDEMARK_TEST_PLACE;
const WRITTEN = 'http://127.0.0.1:8080';
const timeout = 5 * DEADLINE_MS;

/** As `python3 -m http.server` does. It also gives tokens, as the route of docs/nextjs.md does. */
const site = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, WRITTEN);
  const [, user] = /user=(\w+)/.exec(request.headers.cookie ?? '') ?? [];
  if (pathname === '/chat-token') {
    response.writeHead(user ? 200 : 401);
    response.end(`dev:${user}`);
    return;
  }
  const type = pathname.endsWith('.js') ? 'text/javascript' : 'text/html';
  const content = await readFile(path.join(PLACE, pathname)).catch(() => null);
  response.writeHead(content ? 200 : 404, { 'Content-Type': type });
  response.end(content);
});
await new Promise((resolve) => { site.listen(0, '127.0.0.1', resolve); });
after(() => site.close());
const SITE = `http://127.0.0.1:${site.address().port}`;

/** Saves code as a reader does. The server and the two users are those of this test. */
async function save(name, code, ...users) {
  assert.ok(code.includes(WRITTEN) || !users.length, `${name} does not name the server`);
  const here = code.replaceAll(WRITTEN, BASE).replaceAll('alice', users[0] ?? 'alice')
    .replaceAll('bob', users[1] ?? 'bob');
  await mkdir(path.dirname(path.join(PLACE, name)), { recursive: true });
  await writeFile(path.join(PLACE, name), here);
}

/** Opens a page in a window for each of its users. */
async function openFor(users, name) {
  const windows = await Promise.all(users.map(() => openWindow()));
  await Promise.all(windows.map(({ page }, i) => page.goto(`${SITE}/${name}#${users[i]}`)));
  return windows;
}

/** What each line says, with the tick that its style shows. A line may just have been replaced. */
const lines = ({ page }) => page.locator('li').evaluateAll((items) => items.map((item) => {
  const { content, color } = getComputedStyle(item, '::after');
  const tick = content.startsWith('"') ? JSON.parse(content) : '';
  return item.innerText.trim() + tick + (color === 'rgb(30, 144, 255)' ? ' blue' : '');
}));

const has = (window, ...want) => until(`a window shows ${want}`, async () =>
  String(await lines(window)) === String(want), () => lines(window));

async function say({ page }, text) {
  await page.locator('input').last().fill(text);
  await page.locator('input').last().press('Enter');
}

/** Waits until the script of the page has come to its end. */
const ready = ({ page }) => page.waitForFunction(() => document.forms[0].onsubmit);

test('the quickstart: two windows, ticks, and a server that is away', { timeout }, async () => {
  await save('index.html', blocksOf('docs/quickstart.md', 'html')[0], 'anna', 'ben');
  const [anna, ben] = await openFor(['anna', 'ben'], 'index.html');
  try {
    await Promise.all([ready(anna), ready(ben)]);
    await say(anna, 'Tea at five?');
    await has(ben, 'anna: Tea at five?');
    await has(anna, 'anna: Tea at five? ✓✓ blue');
    await say(ben, 'With cake');
    await has(anna, 'anna: Tea at five? ✓✓ blue', 'ben: With cake');
    await has(ben, 'anna: Tea at five?', 'ben: With cake ✓✓ blue');

    // A message that is written while the server is away outlives a reload, and goes once.
    await control('stop');
    await say(anna, 'Which cake?');
    await has(anna, 'anna: Tea at five? ✓✓ blue', 'ben: With cake', 'anna: Which cake? …');
    await anna.page.reload();
    await has(anna, 'anna: Tea at five? ✓✓ blue', 'ben: With cake', 'anna: Which cake? …');
    await control('start');
    await has(ben, 'anna: Tea at five?', 'ben: With cake ✓✓ blue', 'anna: Which cake?');
    await has(anna, 'anna: Tea at five? ✓✓ blue', 'ben: With cake', 'anna: Which cake? ✓✓ blue');

    // While Ben is away, the tick waits.
    await ben.page.goto('about:blank');
    await say(anna, 'Ben?');
    await until('the last tick is the first one', async () =>
      (await lines(anna)).at(-1) === 'anna: Ben? ✓', () => lines(anna));
    for (const window of [anna, ben]) assert.deepEqual(window.errors, []);
  } finally {
    for (const window of [anna, ben]) await window.close();
  }
});

test('the README of the client: a page, a send, and signing out', { timeout }, async () => {
  const readme = 'web/client/README.md';
  const page = blockWith(readme, 'js', 'watchShown(chat, list)')
    .replace('https://chat.example.com', WRITTEN);
  const imports = blockWith('docs/quickstart.md', 'html', 'importmap')
    .match(/<script type="importmap">.*?<\/script>/s)[0];
  await save('readme.html', `<!doctype html><meta charset="utf-8"><ul id="messages"></ul>
    <form><input name="text"></form>${imports}<script type="module">${page}
    globalThis.send = async () => {
      ${blockWith(readme, 'js', 'sent.confirmed()')}
      return message.sequence;
    };
    globalThis.phase = () => client.state.get().phase;
    globalThis.unsent = () => client.unsent.get();
    const first = () => timeline.items.get()[0];
    globalThis.react = async () => {
      const item = first();
      ${blockWith(readme, 'js', 'chat.react(')}
    };
    globalThis.reactions = () => (first().reactions ?? []).map(({ emoji, count, own }) =>
      [emoji, count, own].join(' ')).join();
    globalThis.pin = async () => {
      const item = first();
      ${blockWith(readme, 'js', 'chat.pin(')}
    };
    globalThis.leave = async () => { ${blockWith(readme, 'js', 'signOut()')} };
    </script>`, 'cleo', 'dan');
  const window = await openWindow();
  try {
    await window.page.route('**/my-backend/chat-token', (route) =>
      route.fulfill({ body: 'dev:cleo' }));
    await window.page.goto(`${SITE}/readme.html`);
    await ready(window);
    await say(window, 'one');
    await has(window, 'one sent');
    assert.equal(await window.page.evaluate(() => globalThis.send()), 2);
    await has(window, 'one sent', 'hello sent');
    const { chats } = await rest('dan', 'GET', '/chats');
    await rest('dan', 'PATCH', `/chats/${chats[0].chat_id}/delivery-state`, {
      last_read_sequence: 1, last_acked_sequence: 2,
    });
    await has(window, 'one read', 'hello delivered');

    // A click gives the emoji, the next one takes it back.
    const reactions = (want) => until(`the reactions are ${want}`, async () =>
      await window.page.evaluate(() => globalThis.reactions()) === want);
    await window.page.evaluate(() => globalThis.react());
    await reactions('👍 1 3');
    await window.page.evaluate(() => globalThis.react());
    await reactions('');
    await window.page.evaluate(() => globalThis.pin());
    await until('all is sent', async () =>
      await window.page.evaluate(() => globalThis.unsent()) === 0);
    assert.deepEqual((await rest('dan', 'GET', `/chats/${chats[0].chat_id}/pins`)).pins, []);
    await window.page.evaluate(() => globalThis.leave());
    assert.equal(await window.page.evaluate(() => globalThis.phase()), 'signed-out');
    assert.deepEqual(window.errors, []);
  } finally {
    await window.close();
  }
});

/** Bundles a file with the installed package, and saves a page that runs it. */
async function saveBundle(directory, entry) {
  const require = createRequire(new URL('../../.build/web/package.json', import.meta.url));
  await require('esbuild').build({
    entryPoints: [path.join(PLACE, directory, entry)], bundle: true, format: 'esm',
    jsx: 'automatic', outfile: path.join(PLACE, directory, 'page.js'),
    nodePaths: [fileURLToPath(new URL('../../.build/web/node_modules', import.meta.url))],
  });
  await save(`${directory}/index.html`, `<!doctype html><div id="root"></div>
    <script type="module" src="/${directory}/page.js"></script>`);
}

test('the guide for React: a list of chats and a conversation', { timeout }, async () => {
  for (const [name, code] of filesOf('docs/react.md')) {
    await save(`react/${name}`, code, ...code.includes(WRITTEN) ? ['eve', 'finn'] : []);
  }
  await cp(new URL('../../web/client/test/fixtures/react/src/main.tsx', import.meta.url),
    path.join(PLACE, 'react/src/main.tsx'));
  await saveBundle('react', 'src/main.tsx');
  const [eve, finn] = await openFor(['eve', 'finn'], 'react/index.html');
  try {
    await eve.page.locator('input[name=user]').fill('finn');
    await eve.page.locator('input[name=user]').press('Enter');
    await eve.page.locator('input[name=text]').waitFor();
    await say(eve, 'Tea at five?');
    await finn.page.locator('nav button', { hasText: 'eve (1)' }).click();
    await has(finn, 'eve Tea at five?');
    await has(eve, 'eve Tea at five? ✓✓ read');
    await finn.page.locator('nav button', { hasText: /^eve\s*$/ }).waitFor();
    for (const window of [eve, finn]) assert.deepEqual(window.errors, []);
  } finally {
    for (const window of [eve, finn]) await window.close();
  }
});

// `npm run pack-check` builds the whole application and asks Next for its page.
test('the guide for Next.js: what runs in the browser', { timeout }, async () => {
  await save('next/chat.tsx', filesOf('docs/react.md').get('src/chat.tsx'));
  await save('next/messenger.tsx', filesOf('docs/nextjs.md').get('app/messenger.tsx'));
  await save('next/main.tsx', `import { createRoot } from 'react-dom/client';
    import { Messenger } from './messenger';
    createRoot(document.getElementById('root')).render(<Messenger url="${BASE}" user="gus" />);`);
  await saveBundle('next', 'main.tsx');
  const { chat_id: chat } = await rest('gus', 'POST', '/chats', {
    type: 'direct', member_ids: ['hal'],
  });
  const window = await openWindow();
  try {
    await window.page.goto(`${SITE}/next/index.html`);
    await window.page.locator('[role=status]', { hasText: 'refused' }).waitFor();
    await window.page.evaluate(() => { document.cookie = 'user=gus; path=/'; });
    await window.page.reload();
    await window.page.locator('input[name=text]').waitFor();
    await say(window, 'one');
    await has(window, 'gus one ✓');
    await rest('hal', 'PATCH', `/chats/${chat}/delivery-state`, { last_read_sequence: 1 });
    await has(window, 'gus one ✓✓ read');
    assert.deepEqual(window.errors, []);
  } finally {
    await window.close();
  }
});
