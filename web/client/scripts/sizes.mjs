// Measures what a page loads: each entry bundled, minified and compressed. Fails above a bound.
//
// `npm run sizes`. `target` is what the design asks for, `bound` is what must not be passed.

import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const core = "export * from './src/index.ts';";
const store = "export * from './src/store/indexeddb.ts';";
const tabs = "export * from './src/tabs/index.ts';";

/** KiB. React, and what a page has anyway, is not counted. */
const entries = [
  { name: 'core', code: core, target: 10.5, bound: 28 },
  { name: 'core, store and tabs', code: core + store + tabs, target: 15, bound: 30.5 },
  { name: 'store-indexeddb', code: store, target: 2.5, bound: 2.5 },
  { name: 'tabs', code: tabs, target: 2, bound: 2 },
  { name: 'react', code: "export * from './src/react/index.ts';", target: 1.5, bound: 1.5 },
  { name: 'presence', code: "export * from './src/presence/index.ts';", target: 2.2, bound: 2.2 },
  // The table of its calls grows with openapi.yaml. A backend does not load it over a network.
  { name: 'backend', code: "export * from './src/backend/index.ts';", target: 1.6, bound: 1.9 },
];

/** What an entry takes from the core is in the core's figure. */
const external = {
  react: ['react', '../index.js', '../watch.js'],
  presence: ['../core/*', '../errors.js', '../shell/*'],
  'store-indexeddb': ['../core/*', '../errors.js', './steps.js'],
};

let failed = false;
for (const { name, code, target, bound } of entries) {
  const { outputFiles: [file] } = await build({
    stdin: { contents: code, resolveDir: '.', loader: 'ts' }, bundle: true, minify: true,
    format: 'esm', target: 'es2022', write: false, external: external[name] ?? [],
    logLevel: 'error',
  });
  const size = gzipSync(file.contents, { level: 9 }).length / 1024;
  const state = size > bound ? 'TOO LARGE' : size > target ? 'above the target' : 'ok';
  failed ||= size > bound;
  console.log(`${name.padEnd(22)} ${size.toFixed(1).padStart(5)} KiB  target ${target}  `
    + `bound ${bound}  ${state}`);
}
process.exitCode = failed ? 1 : 0;
