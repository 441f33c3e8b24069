// The two servers of the differential test, as a script sees them.

import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { FakeServer } from '../../src/testing/index.js';
import { connect, type Wire } from './websocket.js';

/** A server and a way to wait until it has nothing more to say. */
export interface World {
  readonly base: string;
  fetch(url: string, init: RequestInit): Promise<Response>;
  connect(url: string): Promise<Wire>;
  /** Resolves when nothing more happens. `last` tells when something happened last. */
  quiet(last: () => number): Promise<void>;
  now(): number;
  pause(ms: number): Promise<void>;
}

/**
 * How long a session outlives its connection. A patient run takes minutes, and none may end in it:
 * in virtual time it takes seconds.
 */
const resumeSeconds = 3600;

/** Returns a fake server of its own, and what runs it. */
export function fakeWorld(
  seed: number, statusFanout: number,
): { world: World; drive: (script: Promise<void>) => Promise<void> } {
  const server = new FakeServer({ seed, statusFanout, graceSeconds: 3600, resumeSeconds });
  const { platform, link } = server.place();
  link.latency = 1;
  link.jitter = 0;
  let waiting: (() => void)[] = [];
  const world: World = {
    base: `${server.url}/api/v1`,
    fetch: (url, init) => platform.fetch(url, init),
    connect: (url) => Promise.resolve(overSocket(url, platform.WebSocket)),
    quiet: () => new Promise((resolve) => {
      waiting.push(resolve);
    }),
    now: () => server.clock.monotonic(),
    pause: (ms) => server.clock.sleep(ms),
  };
  const drive = async (script: Promise<void>): Promise<void> => {
    let over = false;
    const isOver = (): boolean => over;
    const end = script.finally(() => {
      over = true;
    });
    for (;;) {
      if (isOver()) break;
      await server.clock.run(400);
      const ready = waiting;
      waiting = [];
      for (const resolve of ready) resolve();
    }
    await end;
  };
  return { world, drive };
}

function overSocket(url: string, Socket: typeof WebSocket | undefined): Wire {
  if (Socket === undefined) throw new Error('there is no WebSocket');
  const socket = new Socket(url, 'tidemark.v1');
  const wire: Wire = {
    onmessage: () => undefined,
    onclose: () => undefined,
    send: (text) => {
      if (socket.readyState === 1) socket.send(text);
    },
    close: (code) => {
      socket.close(code);
    },
    cut: () => {
      wire.onmessage = () => undefined;
      wire.onclose = () => undefined;
      socket.close(4000);
    },
  };
  socket.onmessage = (e) => {
    if (typeof e.data === 'string') wire.onmessage(e.data);
  };
  socket.onclose = (e) => {
    wire.onclose(e.code);
  };
  return wire;
}

/** How long a server may take to begin. On a disk that stalls it takes several seconds. */
const readyMs = 60_000;

/** The real server, with SQLite, on a free port of the loopback. */
export class RealServer {
  readonly #process: ChildProcess;
  readonly #dir: string;
  readonly base: string;

  private constructor(child: ChildProcess, dir: string, base: string) {
    this.#process = child;
    this.#dir = dir;
    this.base = base;
  }

  /** The server refuses variables that it does not know, so it gets only its own. */
  static async start(statusFanout: number): Promise<RealServer> {
    const dir = mkdtempSync(join(tmpdir(), 'tidemark-'));
    const binary = process.env['TIDEMARK_CLIENT_SERVER'] ?? build(dir);
    const child = spawn(binary, ['serve', '--dev', '--listen', '127.0.0.1:0', '--store',
      `sqlite:${join(dir, 'data.db')}`, '--log-format', 'json'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        HOME: dir, TIDEMARK_STATUS_FANOUT: String(statusFanout), TIDEMARK_ACK_INTERVAL: '5ms',
        TIDEMARK_STATUS_INTERVAL: '5ms', TIDEMARK_GRACE: '5m',
        TIDEMARK_RESUME_WINDOW: `${String(resumeSeconds)}s`,
      },
    });
    const address = await new Promise<string>((resolve, reject) => {
      let log = '';
      child.stderr.on('data', (data: Buffer) => {
        log += data.toString();
        const found = /127\.0\.0\.1:(\d+)/.exec(log);
        if (found?.[1] !== undefined && found[1] !== '0') resolve(`127.0.0.1:${found[1]}`);
      });
      child.on('exit', (code) => {
        reject(new Error(`the server ended with ${String(code)}: ${log}`));
      });
    });
    const server = new RealServer(child, dir, `http://${address}/api/v1`);
    for (const begin = performance.now(); performance.now() - begin < readyMs;) {
      const ready = await fetch(`http://${address}/readyz`).catch(() => undefined);
      if (ready?.ok === true) return server;
      await pause(50);
    }
    throw new Error('the server does not become ready');
  }

  world(quietMs: number): World {
    const now = (): number => performance.now();
    return {
      base: this.base, now,
      // On a machine that is slow a pause is as much longer as the silence that is waited for.
      pause: (ms) => pause(ms + quietMs),
      fetch: (url, init) => fetch(url, init),
      connect: (url) => connect(url),
      quiet: async (last) => {
        const begin = now();
        for (;;) {
          const idle = now() - Math.max(begin, last());
          if (idle >= quietMs) return;
          await pause(quietMs - idle + 1);
        }
      },
    };
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#process.on('exit', resolve));
    this.#process.kill('SIGKILL');
    await ended;
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Builds the server, as `make build` does. */
function build(dir: string): string {
  const root = repository();
  const binary = join(dir, 'tidemark');
  execFileSync('go', ['build', '-trimpath', '-o', binary, './cmd/tidemark'], {
    cwd: root, stdio: ['ignore', 'ignore', 'inherit'], env: { ...process.env, CGO_ENABLED: '0' },
  });
  return binary;
}

/** Returns the root of the repository. The compiled tests are in its .build/web/client/test. */
function repository(): string {
  return join(dirname(fileURLToPath(import.meta.url)), '../../../../..');
}
