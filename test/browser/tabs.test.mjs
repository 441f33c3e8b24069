// Tabs of one user in a real browser: who leads, on an origin with Web Locks and on one without.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { openTab, serve } from './client.mjs';

const URL = process.env.TIDEMARK_TEST_URL = await serve('test/tabspage.ts');
const { DEADLINE_MS, FLAGS, openWindow, until } = await import('./browser.mjs');

// Chromium has Web Locks only on secure origins. A loopback address is one; another name is not.
const INSECURE = URL.replace('127.0.0.1', 'chat.test');
const timeout = 5 * DEADLINE_MS;

for (const [kind, url] of [['Web Locks', URL], ['leases', INSECURE]]) {
  describe(`tabs by ${kind}`, { timeout }, () => {
    let window, context;
    before(async () => {
      const rule = '--host-resolver-rules=MAP chat.test 127.0.0.1';
      window = await openWindow({ args: [...FLAGS, rule] });
      context = window.page.context();
    });
    after(() => window.close());

    const open = (count) =>
      Promise.all(Array.from({ length: count }, () => openTab(context, url)));
    const closeAll = (tabs) => Promise.all(tabs.map((tab) => tab.isClosed() || tab.close()));
    const times = (tabs) => Promise.all(tabs.map((tab) => tab.evaluate(() => tidemark.times())));

    /** Waits until one more of the tabs leads, and returns it. */
    async function next(tabs) {
      const had = await times(tabs);
      return until('another tab leads', async () => {
        const now = await times(tabs);
        return tabs.find((_, i) => now[i] > had[i]);
      }, () => times(tabs));
    }

    test('the origin is what the test needs', async () => {
      const [tab] = await open(1);
      assert.equal(await tab.evaluate(() => tidemark.locks()), kind === 'Web Locks');
      await tab.close();
    });

    test('of six tabs one leads; when it is gone, another does', async () => {
      const tabs = await open(6);
      const [first] = tabs;
      assert.equal(await first.evaluate(() => tidemark.lead('six', false)), 'leads');
      let rest = tabs.filter((tab) => tab !== first);
      for (const tab of rest) await tab.evaluate(() => tidemark.want('six'));
      await new Promise((resolve) => setTimeout(resolve, 2_500));
      assert.deepEqual(await times(rest), [0, 0, 0, 0, 0], 'a second tab leads');
      let leader = first;
      for (const how of ['release', 'close', 'release', 'close', 'release']) {
        const since = Date.now();
        const coming = next(rest);
        if (how === 'close') await leader.close();
        else await leader.evaluate(() => tidemark.release());
        leader = await coming;
        rest = rest.filter((tab) => tab !== leader);
        const led = (await times(rest)).reduce((a, b) => a + b, 0);
        // A lease that was not renewed for eight seconds is another's by right.
        if (kind === 'leases' && led > 0 && Date.now() - since > 8_000) return closeAll(tabs);
        assert.equal(led, 0, 'two tabs lead');
      }
      await closeAll(tabs);
    });

    test('names are independent', async () => {
      const tabs = await open(2);
      assert.equal(await tabs[0].evaluate(() => tidemark.lead('alice', false)), 'leads');
      assert.equal(await tabs[1].evaluate(() => tidemark.lead('bob', false)), 'leads');
      await closeAll(tabs);
    });

    test('who withdraws its wish does not lead, and is in nobody\'s way', async () => {
      const tabs = await open(3);
      assert.equal(await tabs[0].evaluate(() => tidemark.lead('withdrawn', false)), 'leads');
      const second = tabs[1].evaluate(() => tidemark.lead('withdrawn', false));
      await tabs[2].evaluate(() => tidemark.want('withdrawn'));
      await new Promise((resolve) => setTimeout(resolve, 300));
      await tabs[1].evaluate(() => tidemark.withdraw());
      assert.equal(await second, 'AbortError');
      const coming = next([tabs[2]]);
      await tabs[0].evaluate(() => tidemark.release());
      await coming;
      assert.deepEqual(await times([tabs[1]]), [0]);
      await closeAll(tabs);
    });

    test('a frozen leader: another tab steals the lead, and the old one is fenced', async () => {
      const [old, thief, third] = await open(3);
      assert.equal(await old.evaluate(() => tidemark.lead('frozen', false)), 'leads');
      await third.evaluate(() => tidemark.want('frozen'));
      const cdp = await context.newCDPSession(old);
      await cdp.send('Page.setWebLifecycleState', { state: 'frozen' });
      assert.equal(await thief.evaluate(() => tidemark.lead('frozen', true)), 'leads');
      assert.equal(await thief.evaluate(() => tidemark.commit()), 'done');
      await cdp.send('Page.setWebLifecycleState', { state: 'active' });
      assert.equal(await old.evaluate(() => tidemark.commit()), 'FENCED');
      // The old leader gives up what it no longer has: the thief keeps it.
      await old.evaluate(() => tidemark.release());
      await new Promise((resolve) => setTimeout(resolve, 2_500));
      assert.deepEqual(await times([third]), [0], 'the third tab leads beside the thief');
      assert.equal(await thief.evaluate(() => tidemark.commit()), 'done');
      await closeAll([old, thief, third]);
    });

    test('notices reach the other tabs of that name, until the channel is closed', async () => {
      const tabs = await open(4);
      for (const tab of tabs.slice(0, 3)) await tab.evaluate(() => tidemark.listen('alice'));
      await tabs[3].evaluate(() => tidemark.listen('bob'));
      const seen = () => Promise.all(tabs.map((tab) => tab.evaluate(() => tidemark.notices())));
      await tabs[0].evaluate(() => tidemark.post({ v: 1, kind: 'changed', rev: 7 }));
      const notice = { v: 1, kind: 'changed', rev: 7 };
      await until('the notice arrives', async () => {
        const [, second, third] = await seen();
        return second.length === 1 && third.length === 1;
      }, seen);
      await tabs[1].evaluate(() => tidemark.close());
      await tabs[1].evaluate(() => tidemark.post({ kind: 'late' }));
      await tabs[2].evaluate(() => tidemark.post({ kind: 'poke' }));
      await until('the second notice arrives', async () => (await seen())[0].length === 1, seen);
      assert.deepEqual(await seen(), [[{ kind: 'poke' }], [notice], [notice], []]);
      await closeAll(tabs);
    });
  });
}
