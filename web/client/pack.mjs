// npm run pack: packs what npm would publish, as bin/tidemark-client.tgz.

import { execFileSync } from 'node:child_process';
import {
  copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync,
} from 'node:fs';
import path from 'node:path';

const HERE = import.meta.dirname;
export const ROOT = path.join(HERE, '../..');
export const PACKAGE = path.join(ROOT, '.build/package');
export const BIN = path.join(HERE, 'node_modules/.bin');
// A release has its own version and place (tools/release).
const TARBALL = process.env.TIDEMARK_TARBALL ?? path.join(ROOT, 'bin/tidemark-client.tgz');

/** Builds into an empty directory, so that nothing old is packed. Returns the tarball. */
export function pack() {
  rmSync(PACKAGE, { recursive: true, force: true });
  mkdirSync(PACKAGE, { recursive: true });
  mkdirSync(path.dirname(TARBALL), { recursive: true });
  const run = (command, args, cwd, stdout) => execFileSync(command, args, {
    cwd, stdio: ['inherit', stdout, 'inherit'],
    env: { ...process.env, npm_config_update_notifier: 'false' },
  });
  run(`${BIN}/tsc`, ['-p', 'tsconfig.build.json'], HERE, 'inherit');
  const { scripts: _, devDependencies: __, ...manifest } =
    JSON.parse(readFileSync(path.join(HERE, 'package.json'), 'utf8'));
  manifest.version = process.env.TIDEMARK_TARBALL_VERSION ?? manifest.version;
  writeFileSync(path.join(PACKAGE, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  cpSync(path.join(HERE, 'README.md'), path.join(PACKAGE, 'README.md'));
  cpSync(path.join(ROOT, 'LICENSE'), path.join(PACKAGE, 'LICENSE'));
  run('npm', ['pack', '--silent', '--ignore-scripts'], PACKAGE, 'ignore');
  copyFileSync(path.join(PACKAGE, `tidemark-client-${manifest.version}.tgz`), TARBALL);
  return TARBALL;
}

if (process.argv[1] === import.meta.filename) {
  console.log(`packed ${path.relative(ROOT, pack())}`);
}
