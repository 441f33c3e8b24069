// Chromium, and the few things every test here does with the page.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before } from 'node:test';

// `make browser-deps` puts playwright-core below .build, where a bare import does not look.
const require = createRequire(new URL('../../.build/browser/package.json', import.meta.url));
export const { chromium } = require('playwright-core');

export const FLAGS = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
];

/**
 * How long anything may take that is a matter of milliseconds on an idle machine. It only separates
 * a hang from slowness.
 */
export const DEADLINE_MS = 60_000;

/**
 * The server under test. It runs with --dev, or there is a TIDEMARK_TEST_CONTROL, which makes
 * tokens for it and starts it anew. TIDEMARK_TEST_NODES are several servers, with --dev.
 */
export const BASE = required('TIDEMARK_TEST_URL');
const CONTROL = process.env.TIDEMARK_TEST_CONTROL;
const SIGN_IN = CONTROL && !process.env.TIDEMARK_TEST_NODES;

function required(name) {
  const value = process.env[name];
  if (!value) {
    const how = 'start these tests with go test ./test -run TestChromium';
    throw new Error(`${name} is not set: ${how}`);
  }
  return value;
}

/**
 * A window of its own: a Chromium process with a new, empty profile, so that two windows share
 * nothing but the server. Whatever the page reports as an error (a refused script, an exception) is
 * kept in `errors`. `options` are those of Playwright; `profile` is one that exists.
 */
export async function openWindow(options = {}, profile = undefined) {
  profile ??= await mkdtemp(path.join(tmpdir(), 'tidemark-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: required('TIDEMARK_TEST_CHROMIUM'),
    args: FLAGS,
    viewport: { width: 1200, height: 800 },
    // A page that waits would spend its time on moving things.
    reducedMotion: 'reduce',
    ...options,
  });
  context.setDefaultTimeout(DEADLINE_MS);
  const window = {
    page: null,
    errors: [],
    /** Replaces the tab by a new one: it has forgotten who its user was. */
    async newTab() {
      const old = context.pages();
      window.page = await context.newPage();
      for (const page of old) await page.close();
      window.errors.length = 0;
      window.page.on('pageerror', (error) => window.errors.push(String(error)));
      window.page.on('console', (message) => {
        if (message.type() !== 'error') return;
        // A stream that is cut or a request that is refused is an error to the console, and what
        // these tests do.
        const network = /^(Failed to load resource|WebSocket connection to )/;
        if (network.test(message.text())) return;
        window.errors.push(message.text());
      });
    },
    /** Ends the browser. `use` may look at its profile before that is removed. */
    async close(use = () => undefined) {
      await context.close();
      await use(profile);
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  await window.newTab();
  return window;
}

/**
 * The window of a test file whose tests need one: it is there before the first of them, and ends
 * after the last.
 */
export function oneWindow() {
  let window;
  before(async () => {
    window = await openWindow();
  });
  after(() => window?.close());
  return {
    get page() { return window.page; },
    newTab: () => window.newTab(),
    /** Gives a new tab to one of two new users, so that no test sees what another did. */
    pair: () => newUsers(window),
    noErrors: () => assert.deepEqual(window.errors, []),
  };
}

let pairs = 0;

/**
 * Gives two windows to two new users with a direct chat, so that no test sees the chats of another.
 * Returns their names and the chat.
 */
export async function newPair(alice, bob) {
  const n = ++pairs;
  const names = [`alice${n}-${process.pid}`, `bob${n}-${process.pid}`];
  await Promise.all([alice.newTab(), bob.newTab()]);
  const { chat_id: chat } = await rest(names[0], 'POST', '/chats', {
    type: 'direct', member_ids: [names[1]],
  });
  return [...names, chat];
}

/**
 * Gives a new tab of a window, as wide as a desktop, to one of two new users with a direct chat.
 * Returns their names and the chat.
 */
async function newUsers(window) {
  const n = ++pairs;
  const names = [`ann${n}-${process.pid}`, `ben${n}-${process.pid}`];
  await window.newTab();
  await window.page.context().setOffline(false);
  await window.page.setViewportSize({ width: 1200, height: 800 });
  await window.page.emulateMedia({ colorScheme: 'light', forcedColors: 'none' });
  const { chat_id: chat } = await rest(names[0], 'POST', '/chats', {
    type: 'direct', member_ids: [names[1]],
  });
  return [...names, chat];
}

/** The texts of n messages. */
export const numbered = (what, n) => Array.from({ length: n }, (_, i) => `${what} ${i + 1}`);

/** What the log shows of messages that all have one tick. */
export const rows = (texts, tick) => texts.map((text) => ({ text, tick }));

/** Polls until `check` returns something true; fails with what was last seen. */
export async function until(what, check, seen = () => '') {
  const end = Date.now() + DEADLINE_MS;
  for (;;) {
    const result = await check();
    if (result) return result;
    if (Date.now() > end) {
      const last = JSON.stringify(await seen());
      throw new Error(`not within ${DEADLINE_MS} ms: ${what} ${last}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Asks the test that runs this one for something: start, stop, or a token. */
export async function control(what) {
  const response = await fetch(`${CONTROL}/${what}`, { method: 'POST' });
  const answer = await response.text();
  if (!response.ok) throw new Error(`${what}: ${response.status} ${answer}`);
  return answer;
}

const tokens = new Map();

/** The access token of a user, good for an hour. */
export async function tokenOf(user) {
  if (!SIGN_IN) return `dev:${user}`;
  if (!tokens.has(user)) tokens.set(user, control(`token?user=${user}&ttl=1h`));
  return tokens.get(user);
}

/**
 * One REST call as a user; throws on an answer >= 400. It repeats a 503, as clients do: the disk
 * may stall for longer than the server waits.
 */
export async function rest(user, method, route, body) {
  const call = async () => fetch(`${BASE}/api/v1${route}`, {
    method,
    headers: { Authorization: `Bearer ${await tokenOf(user)}`, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  });
  let response = await call();
  for (const end = Date.now() + DEADLINE_MS; response.status === 503 && Date.now() < end;) {
    await new Promise((resolve) => setTimeout(resolve, 500));
    response = await call();
  }
  const answer = response.status === 204 ? undefined : await response.json();
  if (!response.ok) {
    throw new Error(`${method} ${route}: ${response.status} ${JSON.stringify(answer)}`);
  }
  return answer;
}

/** Sends messages by REST, in order. */
let sends = 0;
export async function say(user, chat, texts) {
  for (const text of texts) {
    await rest(user, 'POST', `/chats/${chat}/messages`, {
      client_message_id: `say-${++sends}`, content: text, seen_sequence: 0,
    });
  }
}

/** Lets a page, once it is loaded, miss what its WebSocket brings, while `deaf` is true there. */
export function canBeDeaf(page) {
  return page.addInitScript(() => {
    Object.defineProperty(WebSocket.prototype, 'onmessage', {
      set(take) {
        this.addEventListener('message', (event) => { if (!globalThis.deaf) take(event); });
      },
    });
  });
}

/** Waits until the page says that its connection is in this state. */
export function connection(page, state) {
  return page.locator(`[data-testid="connection"][data-state="${state}"]`).waitFor();
}

/** Goes offline by the switch. */
export async function goOffline(page) {
  await page.getByTestId('online-switch').click();
  await connection(page, 'offline');
}

/** Opens the app and comes in as `user`. */
export async function comeIn(page, user, base = BASE) {
  await page.goto(base);
  if (SIGN_IN) await page.getByTestId('token').fill(await tokenOf(user));
  else await page.getByTestId('user').fill(user);
  await page.getByTestId('login').click();
  await caughtUp(page);
}

/** Waits until the page has a stream and everything that was pending. */
export function caughtUp(page) {
  return connection(page, 'live');
}

export async function openChat(page, name) {
  await page.locator(`[data-testid="chat"][data-name="${name}"]`).click();
  await page.getByTestId('text').waitFor();
}

export async function write(page, text) {
  await page.getByTestId('text').fill(text);
  await page.getByTestId('send').click();
}

/**
 * What is in the document of the log: the text and tick of each message, unsent ones last. A long
 * chat has more than that: see `wholeChat`.
 */
export function messages(page) {
  return page.locator('.log .message').evaluateAll((items) =>
    items.map((item) => ({
      text: item.querySelector('.content').textContent,
      tick: item.querySelector('.tick')?.dataset.tick ?? null,
    })));
}

/** A window so high that all of about a hundred messages are on the screen. */
export const HIGH = { width: 1200, height: 6_000 };

/**
 * Scrolls from the end of the open chat to its beginning. Returns the texts of all messages. The
 * page may still receive the newest ones: `last` is the text to wait for at the end.
 */
export async function wholeChat(page, last) {
  const texts = new Map();
  const log = page.getByTestId('log');
  const look = async () => {
    const rows = await page.locator('.log [data-row]').evaluateAll((items) =>
      items.map((item) => [
        item.dataset.sequence, item.querySelector('.content')?.textContent ?? item.textContent,
      ]));
    for (const [sequence, text] of rows) texts.set(Number(sequence), text);
  };
  await page.locator('[data-testid="log"][data-opened="true"]').waitFor();
  await log.focus();
  await page.keyboard.press('End');
  // The list draws what it shows within two frames.
  const scroll = (end) => log.evaluate(async (element, toEnd) => {
    if (toEnd) element.scrollTop = element.scrollHeight;
    else element.scrollTop -= element.clientHeight / 2;
    const frame = () => new Promise((resolve) => { requestAnimationFrame(resolve); });
    await frame();
    await frame();
    return element.scrollHeight - element.scrollTop - element.clientHeight < 2;
  }, end);
  const newest = async () => (await messages(page)).at(-1)?.text;
  await until('the end of the chat', async () => await scroll(true) && await newest() === last,
    newest);
  for (let begun = false, seen = -1; !begun; seen = texts.size) {
    await until('more of the chat', async () => {
      await look();
      await scroll(false);
      begun = await page.locator('.log .start').isVisible();
      return begun || texts.size > seen;
    }, () => texts.size);
  }
  await look();
  return [...texts].sort(([a], [b]) => a - b).map(([, text]) => text);
}

/** Waits until the log shows exactly these messages, each with the tick given (undefined: any). */
export function shows(page, expected) {
  return until(`the log shows ${JSON.stringify(expected).slice(0, 300)}`, async () => {
    const got = await messages(page);
    const same = (e, m) => e.text === m.text && (e.tick === undefined || e.tick === m.tick);
    return got.length === expected.length && expected.every((e, i) => same(e, got[i]));
  }, () => messages(page));
}

/**
 * Changes what the page keeps of a user on disk. `prefix` is how far every chat is stored, and
 * `forgetUpTo` the sequence up to which its messages are removed.
 */
export function editStore(page, user, change) {
  return page.evaluate(async ([name, { prefix, forgetUpTo }]) => {
    const found = (await indexedDB.databases()).find((one) => one.name.endsWith(` ${name}`));
    await new Promise((resolve, reject) => {
      const request = indexedDB.open(found.name);
      request.onerror = reject;
      request.onsuccess = () => {
        const tx = request.result.transaction(['chats', 'entries'], 'readwrite');
        const chats = tx.objectStore('chats');
        const entries = tx.objectStore('entries');
        chats.getAll().onsuccess = ({ target }) => {
          for (const chat of target.result) {
            if (prefix) chat.prefix = prefix;
            if (forgetUpTo) chat.base = forgetUpTo;
            chats.put(chat);
          }
        };
        if (forgetUpTo) entries.getAll().onsuccess = ({ target }) => {
          for (const run of target.result) {
            entries.delete([run.chat_id, run.from]);
            const kept = run.entries.filter(({ from }) => from > forgetUpTo);
            if (kept.length > 0) entries.put({ ...run, from: kept[0].from, entries: kept });
          }
        };
        tx.onerror = reject;
        tx.oncomplete = () => resolve(request.result.close());
      };
    });
  }, [user, change]);
}

/** Returns all that the page keeps in the browser, as text. */
export function onDisk(page) {
  return page.evaluate(async () => {
    let text = JSON.stringify([{ ...localStorage }, { ...sessionStorage }]);
    for (const { name } of await indexedDB.databases()) {
      const db = await new Promise((resolve) => {
        indexedDB.open(name).onsuccess = ({ target }) => resolve(target.result);
      });
      for (const store of db.objectStoreNames) {
        const rows = await new Promise((resolve) => {
          const request = db.transaction(store).objectStore(store).getAll();
          request.onsuccess = () => resolve(request.result);
        });
        text += JSON.stringify(rows);
      }
      db.close();
    }
    return text;
  });
}
