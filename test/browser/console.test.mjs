// The console at /console: the key, the figures of known traffic, users and chats, nodes that die,
// and what a person with other needs gets.

import assert from 'node:assert/strict';
import http from 'node:http';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { BASE, comeIn, control, openWindow, rest, until } from './browser.mjs';

const require = createRequire(new URL('../../.build/browser/package.json', import.meta.url));
const AXE = await readFile(require.resolve('axe-core/axe.min.js'), 'utf8');
const {
  TIDEMARK_TEST_KEY: KEY, TIDEMARK_TEST_OTHER_KEY: OTHER, TIDEMARK_TEST_VIEWER_KEY: VIEWER,
} = process.env;

const MEMBERS = 130;
const WIDE = { width: 1280, height: 900 };

let operator, visitor;
const urls = [];
const streams = new AbortController();

before(async () => {
  [operator, visitor] = await Promise.all([openWindow(), openWindow()]);
  operator.page.context().on('request', (request) => urls.push(request.url()));
});

after(async () => {
  streams.abort();
  await Promise.all([operator?.close(), visitor?.close()]);
  assert.ok(urls.some((url) => url.endsWith('/api/v1/admin/stats')));
  assert.deepEqual(urls.filter((url) => url.includes(KEY) || !url.startsWith(BASE)), []);
});

const at = (id) => operator.page.getByTestId(id);
const textOf = async (id) => (await at(id).textContent()).replace(/\s+/g, ' ').trim();
const problem = (text) => at('key-problem').filter({ hasText: text }).waitFor();
const noErrors = () => assert.deepEqual(operator.errors, []);

async function enter(key) {
  await at('key').fill(key);
  await at('open').click();
}

async function openConsole(key = KEY) {
  await operator.newTab();
  await operator.page.setViewportSize(WIDE);
  await operator.page.goto(`${BASE}/console`);
  await enter(key);
  await opened();
}

/** Waits until the console is open. It closes if the server does not answer for six seconds. */
function opened() {
  const silent = at('key-problem').filter({ hasText: 'server does not answer' });
  return until('the console is open', async () => {
    if (await silent.isVisible()) await at('open').click();
    return at('plot-sends').isVisible();
  });
}

/** Waits until the text of an element is this. */
function says(id, want) {
  return until(`${id} says ${want}`, async () => {
    const got = await textOf(id);
    return want instanceof RegExp ? want.test(got) : got.includes(want);
  }, () => textOf(id));
}

/** Reads the events of a user for as long as the tests run, and acknowledges none. */
async function follow(user) {
  const answer = await fetch(`${BASE}/api/v1/events?device_id=laptop`, {
    headers: { Authorization: `Bearer dev:${user}` }, signal: streams.signal,
  });
  assert.equal(answer.status, 200);
  answer.body.pipeTo(new WritableStream()).catch(() => undefined);
}

let sent = 0;
async function send(count) {
  for (let i = 0; i < count; i++) {
    await rest('alice', 'POST', '/chats/crew/messages', {
      client_message_id: `m${++sent}`, content: `message ${sent}`,
    });
  }
}

test('a key that does not work is refused with words, and none is kept', async () => {
  const { page } = operator;
  await page.goto(`${BASE}/console`);
  assert.equal(await at('key').getAttribute('type'), 'password');
  await at('open').click();
  await problem('Paste an API key first');
  await enter('schlüssel');
  await problem('no API key');
  await enter(`${KEY.slice(0, -2)}zz`);
  await problem('does not know this key');
  await enter('dev:alice');
  await problem('scope “stats”');
  await enter(OTHER);
  await problem('scope “stats”');
  await page.context().setOffline(true);
  await enter(KEY);
  await problem('This device has no network');
  assert.equal(await at('key').inputValue(), KEY);
  await page.context().setOffline(false);

  await at('open').click();
  await at('plot-sends').waitFor();
  const kept = await page.evaluate(async () => JSON.stringify([
    { ...localStorage }, { ...sessionStorage }, document.cookie, location.href, history.state,
    document.documentElement.outerHTML, await indexedDB.databases(), await caches.keys(),
  ]));
  assert.equal(kept.includes(KEY), false);
  await page.reload();
  await at('key').waitFor();
  assert.equal(await at('key').inputValue(), '');
  await enter(KEY);
  await at('forget').click();
  assert.equal(await at('key').inputValue(), '');
  noErrors();
});

test('the figures are those of known traffic', async () => {
  await rest('alice', 'POST', '/chats', {
    type: 'group', chat_id: 'crew', name: 'Crew',
    member_ids: [
      'bob', 'carol', 'dave', ...Array.from({ length: MEMBERS }, (_, i) => `m${100 + i}`),
    ],
  });
  await follow('carol');
  await follow('m100');
  await comeIn(visitor.page, 'dave', process.env.TIDEMARK_TEST_NODES.split(' ')[1]);
  await openConsole();
  await says('connections-1', /^1$/);
  await says('connections-2', /^2$/);
  await says('plot-connections', '3 sessions, 3 connected');
  await says('sends-1', /^0/);

  await send(30);
  await says('plot-sends', '30 messages confirmed');
  // All but Alice, who has her own messages, and the three who are connected.
  // Those three acknowledge nothing, so after ten seconds they are counted, too.
  await says('plot-pending', new RegExp(`${MEMBERS / 10}[0-3] created or lowered`));
  await rest('bob', 'PATCH', '/chats/crew/delivery-state', { last_acked_sequence: 30 });
  await says('plot-pending', /, [12] removed or shortened/);
  await says('plot-retry', 'Empty');
  // What the last ten seconds had is gone after them, and the five minutes of the plot are not.
  await says('plot-commit', /p99 ≤ [\d.]+ (µs|ms|s) of all/);
  // A node that needs too long for one survey answers the next.
  for (const id of ['n1', 'n2']) {
    await operator.page.locator(`[data-node="${id}"]`).filter({ hasText: 'answers' }).waitFor();
  }

  await operator.page.getByTestId('slow').filter({ hasText: 'carol' })
    .filter({ hasText: 'laptop' }).filter({ hasText: '30' }).waitFor();
  noErrors();
});

test('a plot tells its values to the pointer, to the keyboard and as a table', async () => {
  await openConsole();
  const { page } = operator;
  const slider = page.getByRole('slider', { name: 'Sends, last five minutes' });
  await until('ten figures', async () => await slider.getAttribute('aria-valuemax') >= 10);
  await send(20);
  await until('they are in a plot', async () => /20 messages|50 messages/.test(
    await textOf('plot-sends')));
  await slider.focus();
  await slider.press('Home');
  let greatest = 0;
  for (let i = await slider.getAttribute('aria-valuemax'); i > 0; i--) {
    await slider.press('ArrowRight');
    // A stream that was opened anew begins without rates.
    const [, rate] = /^\d\d:\d\d:\d\d: ([\d.,]+|–)\/s$/.exec(
      await slider.getAttribute('aria-valuetext')) ?? [];
    assert.ok(rate !== undefined, await slider.getAttribute('aria-valuetext'));
    greatest = Math.max(greatest, Number(rate) || 0);
  }
  // All 20 may come in one second. On a busy machine a sample may cover several.
  assert.ok(greatest > 0 && greatest < 40, `at most ${greatest} a second`);
  await slider.press('Escape');
  assert.equal(await page.locator('.at').count(), 0);
  const connections = page.getByRole('slider', { name: 'Connections, last five minutes' });
  const box = await connections.boundingBox();
  await page.mouse.move(box.x + box.width - 5, box.y + 10);
  await page.getByTestId('plot-connections').getByText(/^at \d\d:\d\d:\d\d$/).waitFor();

  await at('as-table').click();
  const rows = page.locator('.as-table tbody tr');
  await until('two rows', async () => await rows.count() >= 2);
  const headings = await page.locator('.as-table thead th').allTextContents();
  assert.equal(headings.length, 13);
  assert.equal(await rows.first().locator('td, th').count(), 13);
  noErrors();
});

test('one looks a user up, and a chat, page by page', async () => {
  await openConsole();
  const { page } = operator;
  await at('find-user').fill('carol');
  await page.keyboard.press('Enter');
  await at('session').filter({ hasText: 'laptop' }).filter({ hasText: 'n1' }).waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.tagName), 'H1');
  await at('states-empty').waitFor();
  // A grace period after the message that the client did not acknowledge.
  await until('a pending row', async () => {
    await at('refresh').click();
    return await at('waiting-row').filter({ hasText: 'crew' }).count() === 1;
  });
  // The page shows what it read once, and acknowledgements may be written later.
  let behind = [];
  await until('the author and one member are not behind', async () => {
    const status = await rest('alice', 'GET', '/chats/crew/delivery-status?limit=1000');
    const { sequence } = status.delivery_summary;
    behind = status.members.filter((m) => m.last_acked_sequence < sequence);
    return behind.length === MEMBERS + 4 - 2;
  }, () => behind.length);
  await at('waiting-row').getByRole('link').click();
  await says('facts', `Members${MEMBERS + 4}`);
  await says('facts', `Last message${sent}`);
  assert.equal(await at('member').count(), 100);
  await at('members-more').click();
  await until('all members', async () => await at('member').count() === MEMBERS + 4);
  assert.equal(await at('members-more').count(), 0);
  await at('only-behind').check();
  await until('those who are behind', async () => await at('member').count() === behind.length,
    () => at('member').count());
  await says('facts', `Behind${behind.length}`);
  await page.locator('[data-user="bob"]').filter({ hasText: `${sent - 30} messages` }).waitFor();
  assert.equal(await page.locator('[data-user="alice"]').count(), 0);

  await page.locator('[data-user="bob"]').getByRole('link').click();
  await at('state-row').filter({ hasText: 'crew' }).filter({ hasText: '30' }).waitFor();
  await at('sessions-empty').waitFor();
  await page.goBack();
  await says('found', 'Chat crew');
  for (const [kind, id, want] of [
    ['chat', 'nowhere', 'There is no chat with this id'],
    ['chat', 'no id!', 'This is no id of a chat'],
  ]) {
    await at(`find-${kind}`).fill(id);
    await page.keyboard.press('Enter');
    await at('chat-problem').filter({ hasText: want }).waitFor();
  }
  await at('find-user').fill('no id!');
  await page.keyboard.press('Enter');
  await at('sessions-problem').filter({ hasText: 'This is no id of a user' }).waitFor();
  await page.getByRole('link', { name: '← Overview' }).click();
  await at('plot-sends').waitFor();
  noErrors();
});

async function look(state, findings) {
  const { page } = operator;
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, {
    resultTypes: ['violations'],
  }));
  for (const { id, nodes } of violations) {
    for (const { html, failureSummary } of nodes) {
      findings.push(`${state}: ${id}: ${html}\n${failureSummary}`);
    }
  }
  const wider = await page.evaluate(() => Math.max(
    ...[document.documentElement, document.querySelector('.console') ?? document.body]
      .map(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)));
  if (wider > 0) findings.push(`${state}: ${wider} pixels are outside the screen`);
}

test('axe-core finds nothing, and nothing is wider than the screen', async () => {
  const findings = [];
  const { page } = operator;
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await at('forget').click();
  await look('form', findings);
  await openConsole();
  await operator.page.emulateMedia({ reducedMotion: 'reduce' });
  for (const [colorScheme, width] of [['light', 1280], ['light', 720], ['dark', 320]]) {
    await operator.page.emulateMedia({ colorScheme });
    await operator.page.setViewportSize({ width, height: 800 });
    const name = `${colorScheme}, ${width}`;
    await at('as-table').click();
    await look(`overview, ${name}`, findings);
    await operator.page.evaluate(() => { location.hash = '#user/carol'; });
    await at('session').waitFor();
    await look(`user, ${name}`, findings);
    await operator.page.evaluate(() => { location.hash = '#chat/crew'; });
    await at('member').first().waitFor();
    await look(`chat, ${name}`, findings);
    await operator.page.evaluate(() => { location.hash = '#'; });
    await at('plot-sends').waitFor();
  }
  assert.deepEqual(findings, []);
  noErrors();
});

/** Receives deliveries, and refuses them while `refuses` is set. */
async function receiver() {
  const got = { types: [], refuses: false };
  const server = http.createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    if (got.refuses) {
      response.writeHead(500).end('no room');
      return;
    }
    got.types.push(JSON.parse(body).type);
    response.writeHead(204).end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  got.url = `http://127.0.0.1:${server.address().port}/`;
  got.close = () => server.close();
  return got;
}

test('an operator creates an outlet, tries it, pauses it and deletes it', async () => {
  const hook = await receiver();
  const findings = [];
  const said = (text) => at('outlet-done').filter({ hasText: text }).waitFor();
  try {
    await openConsole(VIEWER);
    await at('outlets').click();
    await at('all-outlets-problem').filter({ hasText: 'may not manage outlets' }).waitFor();
    await openConsole();
    await at('outlets').click();
    await at('all-outlets-empty').waitFor();
    await look('no outlets', findings);
    await at('outlet-url').fill('https://u:p@example.com/');
    await at('outlet-create').click();
    await at('outlet-problem').filter({ hasText: 'url' }).waitFor();
    await at('outlet-url').fill(hook.url);
    await at('outlet-id').fill('crm');
    await at('outlet-create').click();
    await said('is being created');
    assert.match(await at('secret').textContent(), /^whsec_/);
    await look('a secret', findings);
    const row = operator.page.locator('[data-outlet="crm"]');
    await row.getByText('active', { exact: true }).waitFor({ timeout: 60_000 });

    await send(1);
    await until('the message is delivered', () => hook.types.includes('message.persisted'));
    await row.getByRole('link').click();
    await until('nothing waits', async () => {
      await at('refresh').click();
      return (await textOf('facts')).includes('Chats that wait for it0');
    }, () => textOf('facts'));
    await at('failures-empty').waitFor();
    await at('test').click();
    await said('It was accepted');
    assert.ok(hook.types.includes('outlet.test'));
    hook.refuses = true;
    await at('test').click();
    await said('It was refused: 500 ');
    await send(1);
    await until('the refusal is listed', async () => {
      await at('refresh').click();
      return await at('failure-row').filter({ hasText: 'no room' }).count() > 0;
    });
    await look('an outlet with refusals', findings);
    hook.refuses = false;
    await at('rotate').click();
    await said('another 24 hours');
    assert.match(await at('secret').textContent(), /^whsec_/);
    await at('pause').click();
    await said('It is paused');
    await at('outlet-state').filter({ hasText: 'paused' }).waitFor();
    await at('pause').click();
    await at('outlet-state').filter({ hasText: 'active' }).waitFor();
    await at('delete').click();
    await at('delete').filter({ hasText: 'Really' }).click();
    await at('all-outlets-empty').waitFor();
    assert.deepEqual(findings, []);
    noErrors();
  } finally {
    hook.close();
  }
});

test('a node that does not answer is named, and so is a stream that is not live', async () => {
  await openConsole();
  const { page } = operator;
  await page.locator('[data-node="n2"][data-status="ok"]').waitFor();
  await until('figures', async () => await page.getByRole('slider').first()
    .getAttribute('aria-valuemax') >= 3);
  // What the page says until the node's lease ends is there for seconds only, so it is recorded.
  await page.evaluate(() => {
    globalThis.said = new Set();
    const note = () => {
      for (const found of document.querySelectorAll('[data-testid="away"], [data-node="n2"]')) {
        globalThis.said.add(found.textContent);
      }
    };
    new MutationObserver(note).observe(document.body, {
      subtree: true, childList: true, characterData: true, attributes: true,
    });
  });
  await control('kill?node=1');
  const said = () => page.evaluate(() => [...globalThis.said]);
  await until('the page says that n2 is away', async () => {
    const texts = await said();
    return texts.some((text) =>
      text.includes('1 of 2 nodes does not answer: n2. The figures lack it.')) &&
      texts.some((text) => text.includes('n2') && text.includes('does not answer'));
  }, said);
  await page.locator('[data-node="n2"]').waitFor({ state: 'detached' });
  await at('away').waitFor({ state: 'detached' });

  await control('kill?node=0');
  await at('banner').filter({ hasText: 'Not live since' }).filter({ hasText: 'does not answer' })
    .waitFor();
  await says('link', 'Not live');
  // The last figures stay, and searches say why they find nothing.
  await at('plot-sends').waitFor();
  await at('find-user').fill('bob');
  await page.keyboard.press('Enter');
  await at('sessions-problem').filter({ hasText: 'The server does not answer' }).waitFor();
  await page.goBack();
  const findings = [];
  await look('not live', findings);
  assert.deepEqual(findings, []);
  await new Promise((resolve) => setTimeout(resolve, 4_000)); // It is a gap from 3 s on.

  await control('start?node=0');
  await at('retry').click().catch(() => undefined); // Or it came back by itself.
  await at('banner').waitFor({ state: 'detached' });
  await says('link', /^Live$/);
  const trace = page.locator('[data-testid="plot-retry"] .trace');
  await until('a gap', async () => (await trace.getAttribute('d')).split('M').length >= 3,
    () => trace.getAttribute('d'));
  await control('start?node=1');
  await page.locator('[data-node="n2"][data-status="ok"]').waitFor();
  noErrors();
});

test('a key that is withdrawn ends the console', async () => {
  await openConsole();
  await control('withdraw');
  await problem('not valid any more');
  assert.equal(await at('key').inputValue(), '');
  await enter(KEY);
  await problem('does not know this key');
  noErrors();
});
