// Tries the recorded breaks: `npm run mutate -- [--quick] [NAME…]`. NAME is a part of the names to
// try. With a break, the tests of the client or its simulation must fail. Both are tried, but with
// --quick the simulation only if no test fails.

import { spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

import ts from 'typescript';

import { breaks, type Break } from './breaks.js';
import { simulate } from './simulation.js';
import { stepsOf } from './steps.js';

/** The compiled client, in .build/web/client. */
const built = resolve(dirname(fileURLToPath(import.meta.url)), '../..');
const source = resolve(built, '../../../web/client/src');
/**
 * A broken client may run for ever. A program is ended that has taken so much CPU, or says nothing
 * for so long. Without a break the tests take 5 s of CPU, and are silent for 5 s on two busy cores,
 * for 60 s if many other programs are busy, too.
 */
const mostCPUSeconds = 60;
const patientMs = 240_000;

/** Returns the code of a file with a break, or throws if the break does not fit any more. */
export function broken({ name, file, from, to }: Break): string {
  const text = readFileSync(join(source, file), 'utf8');
  const parts = text.split(from);
  if (parts.length !== 2) {
    throw new Error(`"${name}" fits ${String(parts.length - 1)} places of ${file}, not 1`);
  }
  return parts.join(to);
}

/** A test that has failed, as the reporter writes it. */
const failed = /^ *not ok \d+ - (.+)\n/m;

/**
 * Runs a program of Node. Resolves with what it wrote, and its status, or null if it was ended. A
 * program is ended once a test has failed.
 */
function run(args: readonly string[]): Promise<{ status: number | null; output: string }> {
  return new Promise((done, reject) => {
    // With this variable a test runner within a test would run nothing.
    const env = { ...process.env, NODE_TEST_CONTEXT: undefined };
    const limited = `ulimit -t ${String(mostCPUSeconds)}; exec "$@"`;
    const child = spawn('sh', ['-c', limited, 'sh', process.execPath, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'], env,
    });
    let output = '';
    const silent = setTimeout(() => child.kill('SIGKILL'), patientMs);
    child.stdout.on('data', (data: Buffer) => {
      output += data.toString();
      silent.refresh();
      if (failed.test(output)) child.kill('SIGKILL');
    });
    child.on('error', reject);
    child.on('close', (status) => {
      clearTimeout(silent);
      done({ status, output });
    });
  });
}

/** Returns what finds the break: nothing, one test, one seed, or both. */
async function findOne(one: Break, seeds: number, quick: boolean): Promise<string[]> {
  const dir = mkdtempSync(join(dirname(built), 'break-'));
  try {
    cpSync(built, dir, { recursive: true });
    const code = ts.transpileModule(broken(one), {
      compilerOptions: { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext },
    }).outputText;
    writeFileSync(join(dir, 'src', one.file.replace(/\.ts$/, '.js')), code);
    const tests = await inTests(dir);
    if (quick && tests.length > 0) return tests;
    return [...tests, ...await inSimulation(dir, seeds)];
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

async function inSimulation(dir: string, seeds: number): Promise<string[]> {
  const program = join(dir, 'test/simulation/mutate.js');
  const { status, output } = await run([program, '--find', String(seeds)]);
  if (status === 0) return [];
  const end = output.split('\n').filter((line) => line !== '').at(-1) ?? '';
  const seed = Number(/^seed (\d+)/.exec(end)?.[1]);
  if (status !== null && !end.includes(':')) {
    throw new Error(`a simulation ended with ${String(status)}: ${end}`);
  }
  const { failure } = await simulate(seed, stepsOf(seed));
  if (failure === undefined) return [status === null ? `${end}: never ends` : end];
  throw new Error(`seed ${String(seed)} fails without a break, too: ${failure.detail}`);
}

/** Runs the tests of the core, the client and the store. Those that take longer come later. */
async function inTests(dir: string): Promise<string[]> {
  const core = readdirSync(join(dir, 'test/core')).filter((file) => file.endsWith('.test.js'));
  const groups = [
    [...core.map((file) => `core/${file}`), 'client.test.js', 'revisions.test.js'],
    ['trouble.test.js'],
    ['memory.test.js'],
  ];
  for (const files of groups) {
    const found = await inFiles(files.map((file) => join(dir, 'test', file)));
    if (found !== undefined) return [found];
  }
  return [];
}

/** Runs files of tests in one process, and returns the first test that fails. */
async function inFiles(files: readonly string[]): Promise<string | undefined> {
  const imports = files.slice(1).flatMap((file) => ['--import', pathToFileURL(file).href]);
  const { status, output } = await run(['--test-reporter=tap', ...imports, files[0] ?? '']);
  if (status === 0) return undefined;
  const test = failed.exec(output)?.[1];
  // A loop without an end keeps even what failed before from being printed.
  if (test === undefined && status === null) return 'the tests never end';
  if (test === undefined) throw new Error(`the tests ended with ${String(status)}: ${output}`);
  return `test "${test}"`;
}

/** Tries breaks with at most `seeds` seeds each. Returns those that nothing finds. */
export async function mutate(
  chosen: readonly Break[], seeds: number, quick: boolean, log: (line: string) => void,
): Promise<string[]> {
  const before = await inTests(built);
  if (before.length > 0) throw new Error(`without a break, ${before.join()} fails, too`);
  const missed: string[] = [];
  const queue = [...chosen];
  const work = async (): Promise<void> => {
    for (let one = queue.shift(); one !== undefined; one = queue.shift()) {
      const found = await findOne(one, seeds, quick);
      log(`${found.length === 0 ? 'MISSED' : 'found '} ${one.name}: ${found.join('; ')}`);
      if (found.length === 0) missed.push(one.name);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() }, work));
  return missed;
}

async function main(args: readonly string[]): Promise<number> {
  if (args[0] === '--find') {
    for (let seed = 0; seed < Number(args[1]); seed++) {
      console.log(`seed ${String(seed)}`);
      const { failure } = await simulate(seed, stepsOf(seed));
      if (failure === undefined) continue;
      console.log(`seed ${String(seed)}: ${failure.detail.split('\n', 1)[0] ?? ''}`);
      return 1;
    }
    return 0;
  }
  const names = args.filter((arg) => arg !== '--quick');
  const chosen = breaks.filter((b) => names.length === 0 || names.some((n) => b.name.includes(n)));
  const seeds = Number(process.env['TIDEMARK_BREAK_SEEDS'] ?? 2000);
  const missed = await mutate(chosen, seeds, names.length < args.length, console.log);
  console.log(`${String(chosen.length - missed.length)} of ${String(chosen.length)} are found`);
  for (const name of missed) console.log(`missed: ${name}`);
  return missed.length > 0 ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  process.exitCode = await main(process.argv.slice(2));
}
