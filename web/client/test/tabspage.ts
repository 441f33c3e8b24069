// What test/browser bundles into the pages that are tabs of one user.

import { codeOf } from '../src/errors.js';
import { indexedDBStore } from '../src/store/indexeddb.js';
import { browserTabs } from '../src/tabs/index.js';
import type { Channel } from '../src/types.js';
import { ME, SERVER } from './scene.js';

const tabs = browserTabs();
const store = indexedDBStore({ openMs: 120_000, stepMs: 120_000 });
const notices: object[] = [];
let release: (() => void) | undefined;
let wish = new AbortController();
let channel: Channel | undefined;
let term = 0;
/** How often this tab had the lead. */
let times = 0;

/** Resolves with how it ended: `leads`, or the name of an error. */
async function lead(name: string, steal: boolean): Promise<string> {
  wish = new AbortController();
  try {
    release = await tabs.lead(name, { signal: wish.signal, steal });
  } catch (error) {
    return error instanceof Error ? error.name : String(error);
  }
  times++;
  await store.open(ME, SERVER);
  term = await store.lead();
  return 'leads';
}

const page = {
  secure: () => globalThis.isSecureContext,
  locks: () => 'locks' in navigator,
  lead,
  /** Asks for the lead without waiting for it. */
  want: (name: string) => { void lead(name, false); },
  times: () => times,
  release: () => {
    release?.();
    release = undefined;
  },
  withdraw: () => { wish.abort(); },
  /** Returns a code if the commit throws. */
  commit: () => store.commit(term, {}).then(() => 'done', codeOf),
  listen: (name: string) => { channel = tabs.channel(name, (notice) => notices.push(notice)); },
  post: (notice: object) => { channel?.post(notice); },
  close: () => { channel?.close(); },
  notices: () => notices,
};

export type TabsPage = typeof page;
Object.assign(globalThis, { tidemark: page });
