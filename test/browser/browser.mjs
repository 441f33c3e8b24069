// Chromium, and the few things every test here does with the page.

import { mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';

// `make browser-deps` puts playwright-core below .build, where a bare import does not look.
const require = createRequire(new URL('../../.build/browser/package.json', import.meta.url));
const { chromium } = require('playwright-core');

const FLAGS = [
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
 * kept in `errors`.
 */
export async function openWindow(options = {}) {
  const profile = await mkdtemp(path.join(tmpdir(), 'tidemark-chromium-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: required('TIDEMARK_TEST_CHROMIUM'),
    args: FLAGS,
    viewport: { width: 1200, height: 800 },
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
        if (message.text().startsWith('Failed to load resource')) return;
        window.errors.push(message.text());
      });
    },
    async close() {
      await context.close();
      await rm(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  await window.newTab();
  return window;
}

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

/** One REST call as a user; throws on an answer >= 400. */
export async function rest(user, method, route, body) {
  const response = await fetch(`${BASE}/api/v1${route}`, {
    method,
    headers: { Authorization: `Bearer ${await tokenOf(user)}`, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) {
    throw new Error(`${method} ${route}: ${response.status} ${JSON.stringify(answer)}`);
  }
  return answer;
}

/** Goes offline by the switch. */
export async function goOffline(page) {
  await page.getByTestId('online-switch').click();
  await page.locator('#connection[data-state="offline"]').waitFor();
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
  return page.locator('#connection[data-state="live"][data-caught-up="true"]').waitFor();
}

export async function openChat(page, name) {
  await page.locator(`[data-testid="chat"][data-name="${name}"]`).click();
  await page.getByTestId('text').waitFor();
}

export async function write(page, text) {
  await page.getByTestId('text').fill(text);
  await page.getByTestId('send').click();
}

/** What the log shows: the text and tick of each message, unsent ones last. */
export function messages(page) {
  return page.locator('.log .message').evaluateAll((items) =>
    items.map((item) => ({
      text: item.querySelector('.content').textContent,
      tick: item.querySelector('.tick')?.dataset.tick ?? null,
    })));
}

/** Waits until the log shows exactly these messages, each with the tick given (undefined: any). */
export function shows(page, expected) {
  return until(`the log shows ${JSON.stringify(expected).slice(0, 300)}`, async () => {
    const got = await messages(page);
    const same = (e, m) => e.text === m.text && (e.tick === undefined || e.tick === m.tick);
    return got.length === expected.length && expected.every((e, i) => same(e, got[i]));
  }, () => messages(page));
}
