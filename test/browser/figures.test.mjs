// What a page costs a browser that nobody drives: processor time of the thread that runs it. It
// waits until the browser is quiet, so it needs a quiet machine, and `make test` does not run it.
// Start `bin/tidemark serve --dev` on a new database, and here, with its URL and Chromium's path:
//
//	TIDEMARK_TEST_URL=… TIDEMARK_TEST_CHROMIUM=… node --test figures.test.mjs

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

import { BASE, DEADLINE_MS, FLAGS, rest, say, until } from './browser.mjs';
import { scriptOf } from './client.mjs';

/** The fields of a stat file after the name, which may have spaces. */
const statOf = async (file) => (await readFile(file, 'utf8')).replace(/^.*\) /s, '').split(' ');

/** The processes below one. */
async function below(pid) {
  const children = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const stat = await statOf(`/proc/${name}/stat`).catch(() => undefined);
    if (stat && Number(stat[1]) === pid) children.push(Number(name));
  }
  return [...children, ...(await Promise.all(children.map(below))).flat()];
}

/** The processor time of a thread in milliseconds. One that ends meanwhile counts no more. */
const cpuOf = async (thread) =>
  Number((await readFile(`${thread}/schedstat`, 'utf8').catch(() => '0')).split(' ')[0]) / 1e6;

const sum = (all) => all.reduce((one, other) => one + other, 0);

/** The processor time of a browser: of the threads that run pages, and of all its threads. */
async function cpuBelow(root) {
  const times = { page: 0, all: 0 };
  for (const pid of [root, ...await below(root)]) {
    const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
    if (line.includes('--type=renderer')) times.page += await cpuOf(`/proc/${pid}/task/${pid}`);
    const threads = await readdir(`/proc/${pid}/task`).catch(() => []);
    times.all += sum(await Promise.all(threads.map((one) => cpuOf(`/proc/${pid}/task/${one}`))));
  }
  return times;
}

/**
 * Runs a Chromium of its own. `use` gets `cpu`, which says how much processor time it has taken,
 * and `send`, which sends a command to its one page. No command makes the browser report anything.
 */
async function inBrowser(use) {
  const place = await mkdtemp(path.join(tmpdir(), 'tidemark-chromium-'));
  const browser = spawn(process.env.TIDEMARK_TEST_CHROMIUM,
    [...FLAGS, '--remote-debugging-pipe', `--user-data-dir=${place}`, 'about:blank'],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] });
  const gone = new Promise((resolve) => { browser.once('exit', resolve); });
  const answers = new Map();
  let rest = '';
  browser.stdio[4].setEncoding('utf8').on('data', (data) => {
    const parts = (rest + data).split('\0');
    rest = parts.pop();
    for (const { id, result, error } of parts.map((part) => JSON.parse(part))) {
      answers.get(id)?.({ ...result, error });
    }
  });
  const call = (message) => new Promise((resolve, reject) => {
    const id = answers.size + 1;
    answers.set(id, (result) => result.error ? reject(new Error(result.error.message))
      : resolve(result));
    browser.stdio[3].write(`${JSON.stringify({ id, ...message })}\0`);
  });
  try {
    const page = await until('the browser has a page', async () => {
      const { targetInfos } = await call({ method: 'Target.getTargets' });
      return targetInfos.find(({ type }) => type === 'page');
    });
    const { sessionId } = await call({ method: 'Target.attachToTarget',
      params: { targetId: page.targetId, flatten: true } });
    return await use({
      cpu: () => cpuBelow(browser.pid),
      send: (method, params) => call({ sessionId, method, params }),
    });
  } finally {
    browser.kill('SIGTERM');
    await gone;
    await rm(place, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Waits until the pages do nothing for a while. Returns their processor time. */
async function quiet(cpu) {
  let last = await cpu();
  for (let still = 0; still < 4;) {
    await new Promise((resolve) => setTimeout(resolve, 250));
    const now = await cpu();
    still = now.page - last.page > 2 ? 0 : still + 1;
    last = now;
  }
  return last;
}

const html = (body) => `<!doctype html><html lang="en"><title>Figures</title>${body}</html>`;

/** Serves the page that catches up, and an empty one. `heard` gets what the page tells. */
async function serve(heard) {
  const script = await scriptOf('test/figurespage.ts');
  const server = createServer(async (request, response) => {
    const { pathname, search } = new URL(request.url, 'http://page');
    const [type, body] = pathname === '/script.js' ? ['text/javascript', script]
      : ['text/html', html(pathname === '/empty' ? ''
        : '<script type="module" src="/script.js"></script>')];
    if (pathname === '/tell') await heard(search.slice(1));
    response.setHeader('Content-Type', `${type}; charset=utf-8`);
    response.end(body);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  server.unref();
  return `http://127.0.0.1:${server.address().port}`;
}

test('the processor time of a message that is caught up', { timeout: 5 * DEADLINE_MS },
  async (t) => {
    const MESSAGES = 4_000;
    const AT_ONCE = 50;
    const [ann, ben] = [`ann-${process.pid}`, `ben-${process.pid}`];
    const { chat_id: chat } = await rest(ann, 'POST', '/chats', {
      type: 'direct', member_ids: [ben],
    });
    for (let n = 0; n < MESSAGES; n += AT_ONCE) {
      await Promise.all(Array.from({ length: AT_ONCE }, () =>
        say(ann, chat, ['x'.repeat(200)])));
    }
    const seen = {};
    await inBrowser(async ({ cpu, send }) => {
      const url = await serve(async (what) => { seen[what] = await cpu(); });
      await send('Page.navigate', {
        url: `${url}/?server=${BASE}&user=${ben}&messages=${MESSAGES}`,
      });
      await until('the page has caught up', () => seen['caught-up']);
    });
    const { ready, 'caught-up': done } = seen;
    const micros = (what) => Math.round((done[what] - ready[what]) * 1_000 / MESSAGES);
    t.diagnostic(`a message: ${micros('page')} µs of the page's thread, ${micros('all')} of all`);
    assert.ok(micros('page') <= 400, `${micros('page')} µs`);
  });

test('the processor time of the page, as a multiple of an empty one', {
  timeout: 5 * DEADLINE_MS,
}, async (t) => {
  const empty = `${await serve(() => undefined)}/empty`;
  await rest('cat', 'POST', '/chats', { type: 'direct', member_ids: ['dan'] });
  await inBrowser(async ({ cpu, send }) => {
    /** What it costs to go to a page, in a browser that has been there. */
    const cost = async (url) => {
      await send('Page.navigate', { url: 'about:blank' });
      const from = await quiet(cpu);
      await send('Page.navigate', { url });
      const to = await quiet(cpu);
      return { page: to.page - from.page, all: to.all - from.all };
    };
    for (const [state, most] of [['signed out', 6], ['signed in', 10]]) {
      const all = [];
      for (let n = 0; n < 3; n++) all.push([await cost(empty), await cost(BASE)]);
      const ratioOf = (what) => {
        const [none, full] = [0, 1].map((i) =>
          all.map((one) => one[i][what]).sort((a, b) => a - b)[1]);
        t.diagnostic(`${state}, ${what}: ${full.toFixed(0)} ms, ` +
          `${(full / none).toFixed(1)} times the ${none.toFixed(0)} ms of an empty page`);
        return full / none;
      };
      ratioOf('all');
      const ratio = ratioOf('page');
      assert.ok(ratio <= most, `${state}: ${ratio}`);
      await send('Runtime.evaluate', { expression: `sessionStorage.setItem('tidemark.who',
        JSON.stringify({ who: { name: 'cat' }, user: 'cat', out: null }))` });
    }
  });
});
