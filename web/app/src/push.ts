// Web Push notifies the service worker of messages while no tab is open. docs/push.md has the API.

import { call } from './call';
import type { Session } from './session';

// The user who is notified on this device. All tabs share one subscription of the browser.
const WHO = 'tidemark.push';
const CALL_MS = 5_000;
const LOCK_MS = 1_000;

/** Returns whether this browser notifies a user while no tab is open. */
export function pushes(user: string): boolean {
  return localStorage.getItem(WHO) === user;
}

/**
 * Does work while nobody else shows or lists notifications. sw.ts says why, and has the same: it
 * may import nothing. A frozen tab keeps the lock, so this waits for a second at most.
 */
export async function alone(work: () => Promise<void>): Promise<void> {
  const signal = AbortSignal.timeout(LOCK_MS);
  try {
    await navigator.locks.request('banners', { signal }, work);
  } catch (error) {
    if (error !== signal.reason) throw error;
    await work();
  }
}

/** Asks the server for its settings, or changes the registration of this browser. */
function push(
  session: Session, method: 'GET' | 'PUT' | 'DELETE', body?: object,
): Promise<Response> {
  return call(session, `push${method === 'GET' ? '' : `/devices/${session.client.device}`}`, {
    method, signal: AbortSignal.timeout(CALL_MS), ...body && { body: JSON.stringify(body) },
  });
}

/** Returns the key for subscriptions, or undefined if server or browser do not push. */
export async function pushKey(session: Session): Promise<string | undefined> {
  if (!('PushManager' in window)) return undefined;
  const { platforms, vapid_public_key: key } =
    await (await push(session, 'GET')).json() as Server;
  return platforms.includes('webpush') ? key : undefined;
}

interface Server {
  readonly platforms: readonly string[];
  readonly vapid_public_key: string;
}

/** Registers this browser. Call it at each start. Rejects if the browser is not registered. */
export async function startPush(session: Session): Promise<void> {
  const applicationServerKey = await pushKey(session);
  if (!applicationServerKey) throw new Error();
  const { pushManager } = await navigator.serviceWorker.ready;
  const subscribe = () => pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
  // A subscription with an earlier key of the server ends first.
  const subscription = await subscribe().catch(async () => {
    await (await pushManager.getSubscription())?.unsubscribe();
    return subscribe();
  });
  const { endpoint, keys } = subscription.toJSON();
  await push(session, 'PUT', { platform: 'webpush', address: endpoint, keys });
  localStorage.setItem(WHO, session.user);
}

/**
 * Ends the registration of this user, if there is one, and closes the notifications. Without a
 * network, the server learns it from the push service, at the next notification.
 */
export async function stopPush(session: Session): Promise<void> {
  if (!pushes(session.user)) return;
  localStorage.removeItem(WHO);
  const worker = await navigator.serviceWorker.ready;
  await alone(async () => {
    for (const shown of await worker.getNotifications()) shown.close();
  });
  const subscription = await worker.pushManager.getSubscription();
  await Promise.allSettled([push(session, 'DELETE'), subscription?.unsubscribe()]);
}

/** Signs the user out. This browser then no longer notifies them. */
export async function signOut(session: Session, unsent: 'refuse' | 'discard'): Promise<void> {
  const { client, user } = session;
  const told = pushes(user);
  await stopPush(session);
  try {
    await client.signOut({ unsent });
  } catch (error) {
    if (told) {
      localStorage.setItem(WHO, user); // For the next start, if it fails now.
      startPush(session).catch(() => undefined);
    }
    throw error;
  }
}
