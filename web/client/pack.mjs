// npm run pack: packs what npm would publish, as bin/tidemark-client.tgz.

import { execFileSync } from 'node:child_process';
import {
  copyFileSync, cpSync, mkdirSync, readFileSync, rmSync, writeFileSync,
} from 'node:fs';
import path from 'node:path';

const HERE = import.meta.dirname;
export const ROOT = path.join(HERE, '../..');
export const BIN = path.join(HERE, 'node_modules/.bin');

/**
 * Builds into `place`, a directory that is emptied before, so that nothing old is packed. Packs it
 * as `tarball`. Two calls at a time need two places.
 */
export function pack(place, tarball) {
  rmSync(place, { recursive: true, force: true });
  mkdirSync(place, { recursive: true });
  mkdirSync(path.dirname(tarball), { recursive: true });
  const run = (command, args, cwd, stdout) => execFileSync(command, args, {
    cwd, stdio: ['inherit', stdout, 'inherit'],
    env: { ...process.env, npm_config_update_notifier: 'false' },
  });
  run(`${BIN}/tsc`, ['-p', 'tsconfig.build.json', '--outDir', path.join(place, 'dist')], HERE,
    'inherit');
  const { scripts: _, devDependencies: __, ...manifest } =
    JSON.parse(readFileSync(path.join(HERE, 'package.json'), 'utf8'));
  manifest.version = process.env.TIDEMARK_TARBALL_VERSION ?? manifest.version;
  writeFileSync(path.join(place, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  cpSync(path.join(HERE, 'README.md'), path.join(place, 'README.md'));
  cpSync(path.join(ROOT, 'LICENSE'), path.join(place, 'LICENSE'));
  run('npm', ['pack', '--silent', '--ignore-scripts'], place, 'ignore');
  copyFileSync(path.join(place, `tidemark-client-${manifest.version}.tgz`), tarball);
}

if (process.argv[1] === import.meta.filename) {
  // A release has its own version and place (tools/release).
  const own = process.env.TIDEMARK_TARBALL;
  const tarball = own ?? path.join(ROOT, 'bin/tidemark-client.tgz');
  pack(own ? `${own}.packed` : path.join(ROOT, '.build/package'), tarball);
  console.log(`packed ${path.relative(ROOT, tarball)}`);
}
