// Lets one tab of a browser hold the connection. Tabs find each other by the name that they give.

import type { Channel, Tabs } from '../types.js';

/** How long a lease lasts, and how often it is renewed or tried for, in milliseconds. */
const LEASE_MS = 8_000;
const RENEW_MS = 2_000;
const TRY_MS = 1_000;

type Release = () => void;
interface Wish { signal: AbortSignal; steal?: boolean }
interface Lease { owner: string; until: number }

/**
 * Returns tabs that take turns by Web Locks. Without these, as on an origin that is not secure, a
 * row with a time decides. Where tabs share nothing, each leads.
 *
 * A tab from which the lead was stolen is not told. Its next commit is fenced.
 */
export function browserTabs(): Tabs {
  return {
    async lead(name, wish) {
      wish.signal.throwIfAborted();
      const { locks } = (globalThis as { navigator?: { locks?: LockManager } }).navigator ?? {};
      if (locks) {
        try {
          return await lock(locks, `tidemark ${name}`, wish);
        } catch {
          // Either the wish was withdrawn, or the page may not use locks.
          wish.signal.throwIfAborted();
        }
      }
      return lease(name, wish);
    },
    channel,
  };
}

function lock(locks: LockManager, name: string, { signal, steal }: Wish): Promise<Release> {
  return new Promise((resolve, reject) => {
    // The two options exclude each other. Who steals does not wait.
    locks.request(name, steal ? { steal } : { signal }, () => new Promise<void>((release) => {
      if (signal.aborted) release();
      else resolve(release);
    })).then(() => { signal.throwIfAborted(); }).catch(reject);
  });
}

async function lease(name: string, { signal, steal }: Wish): Promise<Release> {
  const owner = String(Math.random());
  const set = (ms: number) => change(name, (row) =>
    row?.owner === owner ? { owner, until: Date.now() + ms } : row);
  try {
    while (!await change(name, (row) => {
      const ms = row ? row.until - Date.now() : 0;
      // A time too far ahead is from before the clock went back.
      return steal || ms <= 0 || ms > LEASE_MS ? { owner, until: Date.now() + LEASE_MS } : row;
    }).then((row) => row?.owner === owner)) {
      await new Promise((resolve) => setTimeout(resolve, TRY_MS));
      signal.throwIfAborted();
    }
  } catch {
    // There is no database, so there is nothing to share.
    signal.throwIfAborted();
    return () => undefined;
  }
  const timer = setInterval(() => {
    set(LEASE_MS).then((row) => {
      if (row?.owner !== owner) clearInterval(timer);
    }, () => undefined);
  }, RENEW_MS);
  const release = () => {
    clearInterval(timer);
    set(0).catch(() => undefined);
  };
  if (signal.aborted) release();
  signal.throwIfAborted();
  return release;
}

/** Changes the row of a name, in one step for all tabs. Returns it as it is then. */
function change(
  name: string, by: (row: Lease | undefined) => Lease | undefined,
): Promise<Lease | undefined> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open('tidemark tabs', 1);
    opening.onupgradeneeded = () => { opening.result.createObjectStore('leases'); };
    opening.onerror = () => { reject(opening.error ?? new Error('not opened')); };
    opening.onsuccess = () => {
      const db = opening.result;
      const tx = db.transaction('leases', 'readwrite');
      const leases = tx.objectStore('leases');
      let row: Lease | undefined;
      leases.get(name).onsuccess = function () {
        row = by(this.result as Lease | undefined);
        if (row) leases.put(row, name);
      };
      tx.oncomplete = () => {
        db.close();
        resolve(row);
      };
      tx.onabort = () => {
        db.close();
        reject(tx.error ?? new Error('aborted'));
      };
    };
  });
}

function channel(name: string, notice: (notice: object) => void): Channel {
  const broadcast = new BroadcastChannel(`tidemark ${name}`);
  let open = true;
  broadcast.onmessage = ({ data }: { data: unknown }) => {
    if (open && typeof data === 'object' && data !== null) notice(data);
  };
  return {
    post(what) {
      if (open) broadcast.postMessage(what);
    },
    close() {
      open = false;
      broadcast.close();
    },
  };
}
