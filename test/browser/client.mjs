// Pages with parts of web/client in them: a small server, and what esbuild makes of the tests.

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

// `make web-deps` puts esbuild below .build, where a bare import does not look.
const require = createRequire(new URL('../../.build/web/package.json', import.meta.url));
const { build } = require('esbuild');

/** Makes one script of a file of web/client. */
export async function scriptOf(file) {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL(`../../web/client/${file}`, import.meta.url))],
    bundle: true, format: 'esm', target: 'es2022', write: false, jsx: 'automatic',
  });
  return outputFiles[0].text;
}

/** Imports a file of web/client. */
export async function bundle(file) {
  const directory = await mkdtemp(path.join(tmpdir(), 'tidemark-client-'));
  const script = path.join(directory, 'script.mjs');
  await writeFile(script, await scriptOf(file));
  const module = await import(script);
  await rm(directory, { recursive: true });
  return module;
}

/** Serves one page, whose script is a file of web/client. Returns its URL. */
export async function serve(file) {
  const script = await scriptOf(file);
  const server = createServer((request, response) => {
    const [type, body] = request.url === '/script.js' ? ['text/javascript', script]
      : ['text/html', '<!doctype html><script type="module" src="/script.js"></script>'];
    response.setHeader('Content-Type', `${type}; charset=utf-8`);
    response.end(body);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  server.unref();
  return `http://127.0.0.1:${server.address().port}`;
}

/** Opens the page in a new tab, and waits until its script has run. */
export async function openTab(context, url) {
  const page = await context.newPage();
  await page.goto(url);
  await page.waitForFunction(() => 'tidemark' in globalThis);
  return page;
}
