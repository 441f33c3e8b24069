// A page of ten lines that knows nothing but EventSource and a ticket.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BASE, control, openWindow, rest, until } from './browser.mjs';
import { startCutter } from './cutter.mjs';

const CUTS = 3;
const BETWEEN = 20;

const PLAIN = `<!doctype html><title>plain</title><script>
  window.opens = []; window.got = [];
  const ticket = new URL(location).searchParams.get('ticket');
  const source = new EventSource('/api/v1/events?ticket=' + ticket);
  source.addEventListener('session', (e) => opens.push(JSON.parse(e.data)));
  window.state = () => source.readyState;
  source.addEventListener('message', (e) => got.push({ ...JSON.parse(e.data), id: e.lastEventId }));
</script>`;

test('EventSource reconnects by itself with Last-Event-ID and gets everything once', async () => {
  const cutter = await startCutter(BASE);
  const window = await openWindow();
  try {
    const { chat_id: chat } = await rest('writer', 'POST', '/chats', {
      type: 'direct',
      member_ids: ['reader'],
    });
    await window.page.route('**/plain.html*', async (route) => {
      // A ticket ends after 30 s.
      const { ticket } = await rest('reader', 'POST', '/tickets', {});
      const body = PLAIN.replace(/new URL\(location\)\S*\)/, JSON.stringify(ticket));
      return route.fulfill({ contentType: 'text/html', body });
    });
    await window.page.goto(`${cutter.url}/plain.html`);

    const want = [];
    const send = async (text) => {
      want.push(text);
      await rest('writer', 'POST', `/chats/${chat}/messages`, {
        client_message_id: `c-${want.length}`,
        content: text,
      });
    };
    const page = (name) => window.page.evaluate((n) => globalThis[n], name);
    const received = async () => (await page('got')).length;
    for (let n = 0; n <= CUTS; n++) {
      await until(
        `connection ${n + 1}`,
        async () => (await page('opens')).length === n + 1,
        () => page('opens'),
      );
      for (let i = 0; i < BETWEEN; i++) await send(`message ${want.length + 1}`);
      await until('everything has come', async () => (await received()) >= want.length, received);
      if (n === CUTS) break;
      cutter.cut();
      await send(`message ${want.length + 1}, during the cut`);
    }

    const got = await page('got');
    const opens = await page('opens');
    assert.deepEqual(got.map((m) => m.content), want);
    assert.deepEqual(got.map((m) => m.sequence), want.map((_, i) => i + 1));
    assert.deepEqual(opens.map((o) => o.resumed), [false, true, true, true]);
    assert.equal(new Set(opens.map((o) => o.session_id)).size, 1);
    const sent = cutter.lastEventIDs();
    assert.equal(sent.length, CUTS);
    for (const id of sent) assert.ok(id.startsWith(`${opens[0].session_id}.`), id);

    // A server that was started anew knows neither ticket nor session, and EventSource does not try
    // twice after a 401.
    const answers = [];
    window.page.on('response', (response) => answers.push(response.status()));
    await control('stop');
    await control('start');
    await until(
      'EventSource gives up',
      () => window.page.evaluate(() => globalThis.state() === EventSource.CLOSED),
      () => answers,
    );
    await until('the last answer', () => answers.at(-1) === 401, () => answers);
  } finally {
    await window.close();
    await cutter.close();
  }
});
