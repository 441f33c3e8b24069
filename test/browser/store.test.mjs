// The store on IndexedDB in a real browser: the suites of web/client/test in a page, several pages
// on the same data, the end of the browser, and how much memory and time it takes.

import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';

import { openTab, serve } from './client.mjs';

const URL = process.env.TIDEMARK_TEST_URL = await serve('test/page.ts');
const { chromium, DEADLINE_MS, FLAGS, openWindow } = await import('./browser.mjs');

describe('IndexedDB in Chromium', { timeout: 20 * DEADLINE_MS }, async () => {
  let window, page;

  before(async () => {
    window = await openWindow();
    page = await openTab(window.page.context(), URL);
  });
  after(() => window.close());

  // The names are those of the suites, which the page knows.
  test('the suites of a store', async (t) => {
    for (const name of await page.evaluate(() => tidemark.names())) {
      await t.test(name, () => page.evaluate((one) => tidemark.run(one), name));
    }
  });

  test('random steps do what a naive model does', async () => {
    const seed = Number(process.env.TIDEMARK_SEED) || Math.floor(Math.random() * 2 ** 31);
    const seeds = process.env.TIDEMARK_SEED ? [seed] : [seed, seed + 1, seed + 2];
    await page.evaluate((some) => tidemark.random(some, 250), seeds);
  });

  test('pages share the data, and a new leader fences the old one', async () => {
    const other = await openTab(page.context(), URL);
    const ids = [await page.evaluate(() => tidemark.open()), await other.evaluate(() =>
      tidemark.open())].map(({ id }) => id);
    assert.equal(ids[0], ids[1]);
    const commit = (tab, ...args) => tab.evaluate((all) => tidemark.commit(...all), args);
    const old = await page.evaluate(() => tidemark.lead());
    assert.equal(await commit(page, old, [1, 2], true), 'done');
    const term = await other.evaluate(() => tidemark.lead());
    assert.equal(await commit(page, old, [3], false), 'FENCED');
    assert.equal(await commit(other, term, [3], false), 'done');
    const [row] = (await page.evaluate(() => tidemark.changes())).chats;
    assert.equal(row.prefix, 3);
    await other.close();
  });
});

test('IndexedDB in Chromium: a resolved step survives a crash of the browser', {
  timeout: 5 * DEADLINE_MS,
}, async () => {
  const profile = await mkdtemp(path.join(tmpdir(), 'tidemark-chromium-'));
  const start = async () => {
    const context = await chromium.launchPersistentContext(profile, {
      executablePath: process.env.TIDEMARK_TEST_CHROMIUM, args: FLAGS,
    });
    context.setDefaultTimeout(DEADLINE_MS);
    return { context, page: await openTab(context, URL) };
  };
  try {
    const first = await start();
    const { id } = await first.page.evaluate(() => tidemark.open());
    let stored = 0;
    const adding = (async () => {
      for (;;) {
        await first.page.evaluate((n) => tidemark.add(`send ${n}`), stored);
        stored++;
      }
    })().catch(() => undefined);
    while (stored < 20) await new Promise((resolve) => setTimeout(resolve, 20));
    const cdp = await first.context.newCDPSession(first.page);
    cdp.send('Browser.crash').catch(() => undefined);
    await adding;
    await first.context.close().catch(() => undefined);

    const second = await start();
    const opened = await second.page.evaluate(() => tidemark.open());
    assert.equal(opened.id, id);
    const sends = opened.outbox.map((item) => item.client_message_id);
    const want = Array.from({ length: stored }, (_, n) => `send ${n}`);
    assert.deepEqual(sends.slice(0, stored), want);
    assert.ok(sends.length <= stored + 1, `${sends.length} of ${stored}`);
    await second.context.close();
  } finally {
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  }
});

test('IndexedDB in Chromium: 100,000 messages take at most 20 MiB', {
  timeout: 5 * DEADLINE_MS,
}, async (t) => {
  const window = await openWindow();
  try {
    const page = await openTab(window.page.context(), URL);
    await page.evaluate(() => tidemark.open());
    const ms = await page.evaluate(() => tidemark.fill(1, 10_240, 128));
    t.diagnostic(`10,240 messages in commits of 128: ${Math.round(ms)} ms`);
    await page.evaluate(() => tidemark.fill(10_241, 89_760, 1020));
    // A new page has nothing but what it reads.
    await page.reload();
    await page.waitForFunction(() => 'tidemark' in globalThis);
    const opened = await page.evaluate(() => tidemark.open());
    assert.deepEqual(opened.chats.map(({ prefix, unread }) => [prefix, unread]),
      [[100_000, 100_000]]);
    const read = await page.evaluate(() => tidemark.page(50_000, 50));
    t.diagnostic(`a page of ${read.length}: ${read.ms.toFixed(1)} ms`);
    await page.evaluate(() => tidemark.fill(100_001, 128, 128));
    const cdp = await page.context().newCDPSession(page);
    await cdp.send('HeapProfiler.collectGarbage');
    const { usedSize } = await cdp.send('Runtime.getHeapUsage');
    t.diagnostic(`heap: ${(usedSize / 2 ** 20).toFixed(1)} MiB`);
    assert.ok(usedSize <= 20 * 2 ** 20, `${usedSize} bytes`);
  } finally {
    await window.close();
  }
});
