// The service worker caches the files of the page, so that it opens without a network. It also
// shows notifications (docs/push.md), and acknowledges them by their tokens. The client makes all
// other calls of the API.

interface WorkerScope {
  readonly location: Location;
  readonly navigator: { readonly locks: LockManager; setAppBadge?(count: number): Promise<void> };
  readonly registration: ServiceWorkerRegistration;
  readonly clients: {
    matchAll(options: {
      type: 'window'; includeUncontrolled: true;
    }): Promise<readonly WindowClient[]>;
    openWindow(url: string): Promise<unknown>;
  };
  addEventListener(type: 'install' | 'activate', listener: (event: Extendable) => void): void;
  addEventListener(type: 'fetch', listener: (event: Fetching) => void): void;
  addEventListener(type: 'notificationclick', listener: (event: Clicked) => void): void;
  addEventListener(type: 'push', listener: (event: Pushed) => void): void;
  addEventListener(type: 'pushsubscriptionchange', listener: (event: Changed) => void): void;
}
interface WindowClient {
  focus(): Promise<unknown>;
  postMessage(message: unknown, ports?: Transferable[]): void;
}
interface Extendable extends Event {
  waitUntil(work: Promise<unknown>): void;
}
interface Fetching extends Extendable {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}
interface Clicked extends Extendable {
  readonly notification: Notification;
}
interface Pushed extends Extendable {
  readonly data: { json(): unknown } | null;
}
interface Changed extends Extendable {
  readonly oldSubscription?: PushSubscription;
}
/** What the server pushes. */
interface Payload {
  readonly tag: string;
  readonly chat_id: string;
  readonly to_sequence: number;
  readonly title?: string;
  readonly body?: string;
  readonly badge: number;
  readonly ack_token?: string;
  /** Banners that were read elsewhere. A banner of a later message stays. */
  readonly clears?: readonly { readonly tag: string; readonly to_sequence: number }[];
}
/** The `data` of a notification. If a tab showed it, this also names the user. */
export interface Shown {
  readonly chat: string;
  readonly to: number;
  readonly user?: string;
}

// How long a tab may take to answer. A frozen tab never answers.
const ANSWER_MS = 300;
// How long a tab may keep the lock of the notifications. A frozen tab keeps it for ever.
const LOCK_MS = 1_000;

const worker = self as unknown as WorkerScope;
// vite.config.ts puts the version and the names in. '' is the page itself.
const CACHE = 'tidemark-__VERSION__';
const FILES = '__FILES__'.split(' ').map((name) => `/${name}`);

worker.addEventListener('install', (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
});

// An older version goes when no tab uses it any more.
worker.addEventListener('activate', (event) => {
  event.waitUntil(caches.keys().then((names) => Promise.all(
    names.filter((name) => name.startsWith('tidemark-') && name !== CACHE)
      .map((name) => caches.delete(name)),
  )));
});

worker.addEventListener('fetch', (event) => {
  const { request } = event;
  const { origin, pathname } = new URL(request.url);
  if (request.method !== 'GET' || origin !== worker.location.origin) return;
  if (!FILES.includes(pathname)) return;
  // The names of other files change with their content.
  event.respondWith(pathname === '/' ? pageFirst(request) : cacheFirst(request));
});

async function pageFirst(request: Request): Promise<Response> {
  try {
    return await fetch(request);
  } catch (error) {
    const kept = await caches.match('/', { cacheName: CACHE });
    if (kept) return kept;
    throw error;
  }
}

async function cacheFirst(request: Request): Promise<Response> {
  return await caches.match(request, { cacheName: CACHE }) ?? fetch(request);
}

worker.addEventListener('push', (event) => {
  event.waitUntil(show(event.data?.json() as Payload));
});

async function show(payload: Payload): Promise<void> {
  const { chat_id: chat, to_sequence: to, badge, ack_token } = payload;
  const { navigator } = worker;
  const seen = await tabWith({ chat, to }, 2);
  await alone(() => change(payload, !seen));
  await Promise.allSettled([
    navigator.setAppBadge?.(badge),
    ack_token !== undefined && fetch('/api/v1/push/acks', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ ack_token }),
    }),
  ]);
}

/** Shows the notification of a payload, unless its chat is on the screen, and closes others. */
async function change(payload: Payload, shows: boolean): Promise<void> {
  const { tag, chat_id: chat, to_sequence: to, clears } = payload;
  const { registration } = worker;
  const all = await registration.getNotifications();
  if (shows) {
    // If a later banner has overtaken this one, show the later one again: browsers demand a
    // notification.
    const later = all.find((one) => one.tag === tag && (one.data as Shown).to > to);
    const { title = 'Tidemark', body = 'New message' } = later ?? payload;
    await registration.showNotification(title, {
      body, tag, icon: '/icon.svg', data: later?.data as unknown ?? { chat, to }, renotify: !later,
    } as NotificationOptions);
  }
  for (const one of all) {
    const shown = one.data as Shown;
    const same = shown.chat === chat && one.tag !== tag;
    if (same || clears?.some((read) => read.tag === one.tag && shown.to <= read.to_sequence)) {
      one.close();
    }
  }
}

/**
 * Does work while nobody else shows or lists notifications. Chromium forgets one that is shown
 * during a list: it stays on the screen, and no later list has it, so nobody can close it.
 * push.ts takes the same lock.
 */
async function alone(work: () => Promise<void>): Promise<void> {
  const signal = AbortSignal.timeout(LOCK_MS);
  try {
    await worker.navigator.locks.request('banners', { signal }, work);
  } catch (error) {
    if (error !== signal.reason) throw error;
    await work();
  }
}

// The page registers the new subscription, now or at its next start: only the page has the user's
// token.
worker.addEventListener('pushsubscriptionchange', (event) => {
  event.waitUntil((async () => {
    await worker.registration.pushManager.subscribe(event.oldSubscription?.options);
    for (const tab of await tabs()) tab.postMessage({});
  })());
});

worker.addEventListener('notificationclick', (event) => {
  const { notification } = event;
  notification.close();
  event.waitUntil(open(notification.data as Shown));
});

async function open(shown: Shown): Promise<void> {
  const { chat } = shown;
  const tab = await tabWith(shown, 1);
  if (!tab) {
    await worker.clients.openWindow(`/#chat/${encodeURIComponent(chat)}`);
    return;
  }
  tab.postMessage({ chat });
  await tab.focus();
}

// The first load of the page is not controlled by this worker.
function tabs(): Promise<readonly WindowClient[]> {
  return worker.clients.matchAll({ type: 'window', includeUncontrolled: true });
}

/** Returns a tab of the user (1), or one that has the chat on the screen (2). */
async function tabWith({ chat, user }: Shown, wanted: 1 | 2): Promise<WindowClient | undefined> {
  const all = await tabs();
  const answers = await Promise.all(all.map((tab) => new Promise<number>((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }: MessageEvent<number>) => resolve(data);
    setTimeout(resolve, ANSWER_MS, 0);
    tab.postMessage({ chat, user }, [port2]);
  })));
  return all.find((_, i) => (answers[i] ?? 0) >= wanted);
}
