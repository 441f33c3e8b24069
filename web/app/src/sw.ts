// The service worker keeps the files of the page, so that it opens without a network. It never
// touches the API: what is stored and what is sent is the client's matter.

interface WorkerScope {
  readonly location: Location;
  readonly clients: {
    matchAll(options: { type: 'window' }): Promise<readonly WindowClient[]>;
    openWindow(url: string): Promise<unknown>;
  };
  addEventListener(type: 'install' | 'activate', listener: (event: Extendable) => void): void;
  addEventListener(type: 'fetch', listener: (event: Fetching) => void): void;
  addEventListener(type: 'notificationclick', listener: (event: Clicked) => void): void;
}
interface WindowClient {
  focus(): Promise<unknown>;
  postMessage(message: unknown): void;
}
interface Extendable extends Event {
  waitUntil(work: Promise<unknown>): void;
}
interface Fetching extends Extendable {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}
interface Clicked extends Extendable {
  readonly notification: { readonly data: { readonly chat: string }; close(): void };
}

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

worker.addEventListener('notificationclick', (event) => {
  const { notification } = event;
  notification.close();
  event.waitUntil(open(notification.data.chat));
});

async function open(chat: string): Promise<void> {
  const [page] = await worker.clients.matchAll({ type: 'window' });
  if (!page) {
    await worker.clients.openWindow(`/#chat/${encodeURIComponent(chat)}`);
    return;
  }
  page.postMessage({ chat });
  await page.focus();
}
