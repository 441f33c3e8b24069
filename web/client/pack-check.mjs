// npm run pack-check: packs what npm would publish, and uses it as others do.
//
// It needs `make web-deps`, and installs what the fixtures need below .build.

import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';

import { build } from 'esbuild';

import { blockWith, filesOf } from './blocks.mjs';
import { BIN, ROOT, pack } from './pack.mjs';

const HERE = import.meta.dirname;
const FIXTURES = path.join(ROOT, '.build/fixtures');
// Other tests read what make client has packed at the same time.
const PACKAGE = path.join(ROOT, '.build/package-check');
const TARBALL = `${PACKAGE}.tgz`;

function run(command, args, cwd = HERE) {
  console.log(`> ${path.basename(command)} ${args.join(' ')}`);
  execFileSync(command, args, { cwd, stdio: 'inherit', env: { ...process.env,
    NEXT_TELEMETRY_DISABLED: '1', npm_config_update_notifier: 'false' } });
}

/** A page without a bundler resolves relative names only. */
async function checkImports() {
  const { exports } = JSON.parse(readFileSync(path.join(PACKAGE, 'package.json'), 'utf8'));
  const entries = Object.values(exports).filter((file) => file.endsWith('.js'));
  const { metafile } = await build({
    entryPoints: entries, absWorkingDir: PACKAGE, bundle: true, packages: 'external',
    format: 'esm', outdir: 'none', write: false, metafile: true,
  });
  for (const [file, { imports }] of Object.entries(metafile.inputs)) {
    for (const { path: name } of imports.filter((one) => one.external)) {
      const allowed = (file.startsWith('dist/react/') && name === 'react')
        || (file.startsWith('dist/testing/') && name.startsWith('node:'));
      if (!allowed) throw new Error(`${file} imports ${name}`);
    }
  }
}

/** What the guides tell their readers to write, by its place below the fixtures. */
function fromGuides() {
  const react = filesOf('docs/react.md');
  const files = new Map([...react].map(([name, code]) => [`react/${name}`, code]));
  for (const [name, code] of filesOf('docs/nextjs.md')) files.set(`next/${name}`, code);
  files.set('next/app/chat.tsx', react.get('src/chat.tsx'));
  const readme = 'web/client/README.md';
  files.set('react/src/readme.tsx', blockWith(readme, 'tsx', 'TidemarkProvider'));
  files.set('node/testing.mjs', blockWith(readme, 'js', 'FakeServer'));
  return files;
}

/** Installs the tarball beside what the fixtures need, and builds them. */
async function checkFixtures() {
  run(path.join(ROOT, 'scripts/npm-deps'), ['web/client/test/fixtures', '.build/fixtures'], ROOT);
  const installed = path.join(FIXTURES, 'node_modules/@tidemark/client');
  rmSync(installed, { recursive: true, force: true });
  mkdirSync(installed, { recursive: true });
  run('tar', ['-xzf', TARBALL, '--strip-components=1', '-C', installed]);
  const bin = path.join(FIXTURES, 'node_modules/.bin');
  cpSync(path.join(HERE, 'test/fixtures/tsconfig.json'), path.join(FIXTURES, 'tsconfig.json'));
  const names = ['node', 'page', 'vite', 'react', 'next'];
  for (const name of names) {
    rmSync(path.join(FIXTURES, name), { recursive: true, force: true });
    cpSync(path.join(HERE, 'test/fixtures', name), path.join(FIXTURES, name), { recursive: true });
  }
  for (const [name, code] of fromGuides()) {
    const file = path.join(FIXTURES, name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, code);
  }
  // Next writes the types of its pages itself, and checks all of them when it builds.
  for (const name of names.slice(0, -1)) run(`${bin}/tsc`, ['-p', path.join(FIXTURES, name)]);
  run(`${bin}/tsc`, ['-p', 'node', '--noEmit', 'false', '--outDir', 'node/out'], FIXTURES);
  run('node', ['node/out/bot.mjs'], FIXTURES);
  run('node', ['node/testing.mjs'], FIXTURES);
  for (const name of ['vite', 'react']) {
    run(`${bin}/vite`, ['build', '--logLevel', 'warn'], path.join(FIXTURES, name));
    statSync(path.join(FIXTURES, name, 'dist/index.html'));
  }
  run(`${bin}/next`, ['build'], path.join(FIXTURES, 'next'));
  await checkNext(`${bin}/next`);
}

/** Asks the application of the guide for its page, as a user and without one. */
async function checkNext(next) {
  const port = await new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port: free } = server.address();
      server.close(() => { resolve(free); });
    });
  });
  console.log('> next start');
  const started = spawn(next, ['start', '--hostname', '127.0.0.1', '--port', port], {
    cwd: path.join(FIXTURES, 'next'), stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, NEXT_TELEMETRY_DISABLED: '1' },
  });
  try {
    const ask = async (place, cookie) => {
      const answer = await fetch(`http://127.0.0.1:${port}${place}`, { headers: { cookie } });
      return `${answer.status} ${await answer.text()}`;
    };
    for (const end = Date.now() + 60_000; ;) {
      if (await ask('/', '').catch(() => '')) break;
      if (Date.now() > end) throw new Error('Next does not answer');
      await new Promise((resolve) => { setTimeout(resolve, 100); });
    }
    for (const [place, cookie, want] of [
      ['/', '', 'Please sign in.'], ['/', 'user=alice', '<p role="status">stopped</p>'],
      ['/chat-token', '', '401 signed out'],
    ]) {
      const got = await ask(place, cookie);
      if (!got.includes(want)) throw new Error(`Next answers ${place} with ${got}, not ${want}`);
    }
  } finally {
    started.kill();
  }
}

// What a page runs knows no types of Node.
run(`${BIN}/tsc`, ['-p', 'tsconfig.page.json']);
pack(PACKAGE, TARBALL);
await checkImports();
run(`${BIN}/publint`, [PACKAGE, '--strict']);
run(`${BIN}/attw`, [TARBALL, '--profile', 'esm-only']);
await checkFixtures();
