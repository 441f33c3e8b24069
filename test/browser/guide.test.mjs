// The two blocks of JavaScript of the client guide, in a page that has no more than they ask for.
// Those of docs/migrate.md replace them.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { blocksOf } from '../../web/client/blocks.mjs';
import { BASE, control, openWindow, rest, tokenOf, until } from './browser.mjs';

const GUIDE = await readFile(new URL('../../docs/client-guide.md', import.meta.url), 'utf8');
const BLOCKS = [...GUIDE.matchAll(/^```js\n(.*?)^```$/gms)].map(([, code]) => code);

/** What the guide says that its reader writes. `mint` asks the test for a token. */
const READER = `
  const api = '/api/v1'
  let token, offers = 0
  const got = []
  const freshToken = async () => token = await mint()
  const handle = (type, payload) => got.push({ type, ...payload })
  const offerToContinue = () => { offers++ }
`;
const PAGE = `<!doctype html><title>guide</title>
  <script>${READER}${BLOCKS.join('\n')}start()</script>`;

/** The same page with the package beside it, and what docs/migrate.md adds for a user. */
const migrating = (user) => PAGE.replace('</script>', `\n  const user = '${user}'</script>
  <script type="importmap">{ "imports": {
    "@tidemark/client": "/package/index.js",
    "@tidemark/client/store-indexeddb": "/package/store/indexeddb.js",
    "@tidemark/client/tabs": "/package/tabs/index.js"
  } }</script>
  <script type="module">
    ${blocksOf('docs/migrate.md', 'js').join('\n')}
    const seen = []
    client.on('message', ({ content }) => seen.push(content))
    const old = { waiting: () => 0, stop: disconnect, session: () => session }
    Object.assign(globalThis, { client, seen, old, retire })
  </script>`);

/** A window of a user with the page of the guide. */
async function openGuide(user, body = PAGE) {
  const window = await openWindow();
  const context = window.page.context();
  await context.exposeFunction('mint', () => tokenOf(user));
  await context.route('**/guide.html', (route) =>
    route.fulfill({ contentType: 'text/html', body }));
  const installed = fileURLToPath(new URL('../../.build/package/dist', import.meta.url));
  await context.route('**/package/**', (route) => {
    const file = new URL(route.request().url()).pathname.replace('/package', installed);
    return route.fulfill({ contentType: 'text/javascript', path: path.normalize(file) });
  });
  await window.page.goto(`${BASE}/guide.html`);
  return window;
}

/** Evaluates an expression of the page's own names. */
const ask = (page, expression) => page.evaluate(expression);
const events = (page, type) => ask(page, `got.filter(({ type }) => type === '${type}')`);

/** Waits until the page has got so many sessions, and returns them. */
async function sessions(page, count) {
  const seen = () => events(page, 'session');
  await until(`${count} sessions`, async () => (await seen()).length === count, seen);
  return seen();
}

const own = async (user) => (await rest(user, 'GET', '/sessions')).sessions;

test('there are two blocks: one keeps a stream open, one knows the tab', () => {
  assert.equal(BLOCKS.length, 2);
  assert.match(BLOCKS[0], /new EventSource/);
  assert.match(BLOCKS[1], /pagehide/);
});

test('the page goes on after a restart of the server, which forgets its ticket', async () => {
  const window = await openGuide('ann');
  const { page } = window;
  try {
    const { chat_id: chat } = await rest('writer', 'POST', '/chats', {
      type: 'direct',
      member_ids: ['ann'],
    });
    await sessions(page, 1);
    const want = [];
    const send = async () => {
      want.push(want.length + 1);
      await rest('writer', 'POST', `/chats/${chat}/messages`, {
        client_message_id: `c-${want.length}`,
        content: 'x',
      });
      const seen = async () => (await events(page, 'message')).map(({ sequence }) => sequence);
      await until('the message', async () => (await seen()).includes(want.length), seen);
    };
    await send();
    await ask(page, 'attempt = 0');
    await control('stop');
    await control('start');
    const [first, second] = await sessions(page, 2);
    assert.notEqual(second.session_id, first.session_id);
    assert.equal(await ask(page, 'session'), second.session_id);
    await send();
    assert.equal((await own('ann')).length, 1);
    assert.deepEqual(window.errors, []);
  } finally {
    await window.close();
  }
});

test('a renewed ticket resumes the session at its position', async () => {
  const window = await openGuide('bob');
  const { page } = window;
  try {
    await sessions(page, 1);
    await until('an event', () => ask(page, 'position !== ""'));
    await ask(page, 'later(0)');
    const [first, second] = await sessions(page, 2);
    assert.equal(second.session_id, first.session_id);
    assert.equal(second.resumed, true);
    assert.equal((await own('bob')).length, 1);
    assert.equal(await ask(page, 'offers'), 0);
  } finally {
    await window.close();
  }
});

test('a page whose session is taken over waits for its user', async () => {
  const window = await openGuide('carol');
  const { page } = window;
  try {
    const [{ session_id: session }] = await sessions(page, 1);
    await rest('carol', 'DELETE', `/sessions/${session}`).catch(() => null); // 204 has no body
    await until('the offer', () => ask(page, 'offers === 1'));
    assert.equal(await ask(page, 'running'), false);
    assert.deepEqual(await own('carol'), []);
    await ask(page, 'start()');
    const [, second] = await sessions(page, 2);
    assert.notEqual(second.session_id, session);
  } finally {
    await window.close();
  }
});

test('a reload replaces its own session, and a duplicate of the tab has its own', async () => {
  const window = await openGuide('dave');
  const { page } = window;
  try {
    await sessions(page, 1);
    const device = await ask(page, 'tab');
    await page.reload();
    await sessions(page, 1);
    assert.equal(await ask(page, 'tab'), device);
    const devices = async () => (await own('dave')).map(({ device_id: id }) => id);
    await until('one session', async () => String(await devices()) === device, devices);

    const popup = page.waitForEvent('popup');
    await page.evaluate(() => { globalThis.open(globalThis.location.href); });
    const copy = await popup;
    await sessions(copy, 1);
    assert.notEqual(await ask(copy, 'tab'), device);
    assert.equal((await own('dave')).length, 2);
    assert.equal(await ask(page, 'offers'), 0);

    await copy.close({ runBeforeUnload: true });
    await until('the session of the closed tab is gone', async () =>
      String(await devices()) === device, devices);
  } finally {
    await window.close();
  }
});

test('the client of docs/migrate.md runs beside the one of the guide, and takes over', async () => {
  const window = await openGuide('fred', migrating('fred'));
  const { page } = window;
  try {
    const { chat_id: chat } = await rest('writer', 'POST', '/chats', {
      type: 'direct', member_ids: ['fred'],
    });
    const send = (content) => rest('writer', 'POST', `/chats/${chat}/messages`, {
      client_message_id: content, content,
    });
    const phase = () => page.evaluate(() => globalThis.client?.state.get().phase);
    const seen = () => page.evaluate(() => globalThis.seen);
    const all = (...want) => until(`the new client has ${want}`, async () =>
      String(await seen()) === String(want), seen);
    await sessions(page, 1);
    await until('the new client is live', async () => await phase() === 'live', phase);

    // Side by side: each has the message, and neither takes the other's session.
    await send('one');
    await all('one');
    await until('the old client has it, too', async () =>
      (await events(page, 'message')).length === 1);
    assert.equal(await ask(page, 'offers'), 0);
    assert.equal((await own('fred')).length, 2);

    // A queue that is not empty keeps the old client.
    assert.equal(await page.evaluate(() =>
      globalThis.retire({ ...globalThis.old, waiting: () => 1 })), false);
    assert.equal((await own('fred')).length, 2);
    assert.equal(await page.evaluate(() => globalThis.retire(globalThis.old)), true);
    const left = async () => (await own('fred')).length;
    await until('one session is left', async () => await left() === 1, left);
    await send('two');
    await all('one', 'two');
    assert.equal(await page.evaluate(async (id) => {
      const sent = await globalThis.client.chat(id).send({ content: 'three' });
      return (await sent.confirmed()).sequence;
    }, chat), 3);
    assert.equal(await ask(page, 'offers'), 0);
    assert.deepEqual(window.errors, []);
  } finally {
    await window.close();
  }
});
