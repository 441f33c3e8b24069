// The page while it is closed: the push service has told its service worker of a message. A stub
// subscribes, and what the push service has decrypted is delivered by the browser's own tools.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import {
  BASE, caughtUp, comeIn, newPair, openChat, openWindow, rest, rows, say, shows, until,
} from './browser.mjs';

const SUBSCRIPTION = JSON.parse(process.env.TIDEMARK_TEST_SUBSCRIPTION);

let alice, bob;

before(async () => {
  [alice, bob] = await Promise.all([openWindow(), openWindow()]);
  await bob.page.context().addInitScript((json) => {
    // It is there until the page ends it, as in the browser.
    const found = () => localStorage.getItem('stub') === null ? null : {
      toJSON: () => json,
      async unsubscribe() {
        localStorage.removeItem('stub');
        return true;
      },
    };
    PushManager.prototype.getSubscription = async () => found();
    PushManager.prototype.subscribe = async ({ userVisibleOnly, applicationServerKey }) => {
      if (!userVisibleOnly || Notification.permission !== 'granted') throw new Error('not allowed');
      localStorage.setItem('stub', applicationServerKey);
      return found();
    };
  }, SUBSCRIPTION);
});

after(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
});

const noErrors = () => assert.deepEqual([...alice.errors, ...bob.errors], []);
const devices = async (user) => (await rest(user, 'GET', '/push')).devices;

/** Denies the page to notify, until the tab is closed. */
async function deny() {
  const cdp = await bob.page.context().newCDPSession(bob.page);
  await cdp.send('Browser.setPermission', {
    permission: { name: 'notifications' }, setting: 'denied', origin: BASE,
  });
}

/** Signs Bob in, and opens the settings. */
async function settings(user, base = BASE) {
  await comeIn(bob.page, user, base);
  await bob.page.evaluate(() => navigator.serviceWorker.ready.then(() => true));
  await bob.page.getByTestId('menu').click();
}

async function switchOn(user) {
  await bob.page.context().grantPermissions(['notifications'], { origin: BASE });
  await settings(user);
  assert.deepEqual(await devices(user), []);
  // The page gives up a call that takes longer than five seconds, and the switch stays off.
  const on = bob.page.locator('[data-testid="push"][aria-checked="true"]');
  await until('the switch is on', async () => {
    await bob.page.locator('[data-testid="push"][aria-checked="false"]').click();
    return on.waitFor({ timeout: 10_000 }).then(() => true, () => false);
  });
}

/** Returns the next payload of the push service. */
async function received() {
  let all;
  await until('the push service is told', async () => {
    all = await (await fetch(`${process.env.TIDEMARK_TEST_DEVICE}/received`)).json();
    return all.length > 0;
  });
  return all.at(-1);
}

const worker = () => until('the service worker runs', () =>
  bob.page.context().serviceWorkers().find((one) => one.url().startsWith(BASE)));

/**
 * Lets banners stay: without a desktop, Chromium ends each one after 25 s. And lets a tab take
 * longer than 0.3 s to say that it shows the chat, since the machine may be busy.
 */
async function keepBanners() {
  await (await worker()).evaluate(() => {
    if (globalThis.kept) return;
    globalThis.kept = true;
    const wait = globalThis.setTimeout;
    globalThis.setTimeout = (then, ms, ...rest) => wait(then, ms === 300 ? 20_000 : ms, ...rest);
    const { showNotification } = ServiceWorkerRegistration.prototype;
    ServiceWorkerRegistration.prototype.showNotification = function show(title, options) {
      return showNotification.call(this, title, { ...options, requireInteraction: true });
    };
  });
}

/** Returns what delivers a payload to the service worker. No tab of the page is needed for it. */
async function pusher() {
  const blank = await bob.page.context().newPage();
  const cdp = await bob.page.context().newCDPSession(blank);
  let registrationId;
  cdp.on('ServiceWorker.workerRegistrationUpdated', ({ registrations }) => {
    const ours = registrations.find(({ scopeURL }) => scopeURL.startsWith(BASE));
    registrationId = ours?.registrationId ?? registrationId;
  });
  await cdp.send('ServiceWorker.enable');
  await until('the service worker is known', () => registrationId);
  return {
    async deliver(payload) {
      await keepBanners();
      await cdp.send('ServiceWorker.deliverPushMessage', {
        origin: BASE, registrationId, data: JSON.stringify(payload),
      });
    },
    close: () => blank.close(),
  };
}

/** Lists the banners, with the lock of web/app/src/sw.ts, so that the list loses none. */
const banners = async () => (await worker()).evaluate(async () =>
  (await navigator.locks.request('banners', () => registration.getNotifications()))
    .map(({ title, body }) => [title, body]));

const showsBanners = (want) => until(`banners ${JSON.stringify(want)}`, async () =>
  JSON.stringify((await banners()).sort()) === JSON.stringify(want), banners);

/** Clicks the banner. Only a person may open a window, so the address is returned instead. */
async function click() {
  await keepBanners();
  return (await worker()).evaluate(async () => {
    let opened;
    clients.openWindow = async (url) => { opened = url; };
    WindowClient.prototype.focus = async () => { opened = 'focused'; };
    const [notification] = await registration.getNotifications();
    dispatchEvent(new NotificationEvent('notificationclick', { notification }));
    const end = Date.now() + 60_000;
    while (!opened && Date.now() < end) await new Promise((done) => setTimeout(done, 50));
    return opened;
  });
}

const isOpen = (page, chat) => page.waitForURL((url) =>
  url.hash === `#chat/${encodeURIComponent(chat)}`);

test('a message to a closed page: banner, ✓✓, and a click opens the chat', async () => {
  const [a, b, chat] = await newPair(alice, bob);
  await switchOn(b);
  const { vapid_public_key: key } = await rest(b, 'GET', '/push');
  assert.equal(await bob.page.evaluate(() => localStorage.getItem('stub')), key);
  const [{ device_id: device, platform }] = await devices(b);
  const { sessions } = await rest(b, 'GET', '/sessions');
  assert.deepEqual([platform, device], ['webpush', sessions[0].device_id]);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  const push = await pusher();
  await bob.page.close();

  await say(a, chat, ['Lunch at one?']);
  await shows(alice.page, rows(['Lunch at one?'], 'sent'));
  const first = await received();
  assert.deepEqual(await banners(), []);
  await push.deliver(first);
  await showsBanners([[a, 'Lunch at one?']]);
  await shows(alice.page, rows(['Lunch at one?'], 'delivered'));

  await say(a, chat, ['Or at two?']);
  const second = await received();
  await push.deliver(second);
  await showsBanners([[a, 'Or at two?']]);
  await shows(alice.page, rows(['Lunch at one?', 'Or at two?'], 'delivered'));
  // The first one comes once more, and late.
  await push.deliver(first);
  await new Promise((done) => setTimeout(done, 1_000));
  await showsBanners([[a, 'Or at two?']]);

  const opened = await click();
  assert.equal(opened, `/#chat/${encodeURIComponent(chat)}`);
  await showsBanners([]);
  bob.page = await bob.page.context().newPage();
  await comeIn(bob.page, b, BASE + opened);
  await shows(bob.page, rows(['Lunch at one?', 'Or at two?'], null));

  // While the chat is on the screen, there is no banner.
  await push.deliver(second);
  await new Promise((done) => setTimeout(done, 1_000));
  await showsBanners([]);
  /** Lets a banner tell of a further message, while the tab shows the list of chats. */
  let to = second.to_sequence;
  const tell = async (text) => {
    await bob.page.goBack();
    // The address changes first. A message that comes before the chat has gone is read.
    await bob.page.getByTestId('log').waitFor({ state: 'detached' });
    await say(a, chat, [text]);
    await bob.page.getByTestId('unread').waitFor();
    await push.deliver({ ...second, to_sequence: ++to, body: text, ack_token: undefined });
    await showsBanners([[a, text]]);
  };
  await tell('At three.');
  assert.equal(await click(), 'focused');
  await isOpen(bob.page, chat);
  await bob.page.getByTestId('unread').waitFor({ state: 'detached' });

  // What is read closes its banner.
  await tell('At four.');
  await openChat(bob.page, a);
  await showsBanners([]);

  // A banner of one chat closes that of another, which was read elsewhere, unless that is newer.
  await tell('At five.');
  const carol = (body, sequence) => push.deliver({
    ...second, tag: 'other', chat_id: 'other', title: 'Carol', body, ack_token: undefined,
    clears: [{ tag: second.tag, to_sequence: sequence }],
  });
  await carol('Hello', to - 1);
  await until('both are shown', async () => (await banners()).length === 2, banners);
  await carol('Hello?', to);
  await showsBanners([['Carol', 'Hello?']]);
  await push.close();
  noErrors();
});

test('of many payloads at once, each shows its banner', async () => {
  const [, b] = await newPair(alice, bob);
  await switchOn(b);
  const push = await pusher();
  await bob.page.close();
  let shown = ['other'];
  for (let round = 1; round <= 5; round++) {
    const clears = shown.map((tag) => ({ tag, to_sequence: 10 }));
    shown = Array.from({ length: 10 }, (_, i) => `${round}.${i}`);
    await Promise.all(shown.map((name) => push.deliver({
      tag: name, chat_id: name, to_sequence: 10, title: name, body: 'Hello', badge: 1, clears,
    })));
    await showsBanners(shown.map((name) => [name, 'Hello']));
  }
  bob.page = await bob.page.context().newPage();
  await push.close();
  noErrors();
});

test('each start registers again, and the sign-out ends it', async () => {
  const [, b] = await newPair(alice, bob);
  await switchOn(b);
  const [{ device_id: device }] = await devices(b);
  await rest(b, 'DELETE', `/push/devices/${device}`);
  await bob.page.reload();
  await caughtUp(bob.page);
  await until('it is registered again', async () => (await devices(b)).length === 1);

  // A tab that is frozen while it has the lock of the banners stops no sign-out.
  await (await worker()).evaluate(() => {
    void navigator.locks.request('banners', () => new Promise(() => undefined));
  });
  await bob.page.getByTestId('menu').click();
  await bob.page.locator('[data-testid="push"][aria-checked="true"]').waitFor();
  await bob.page.getByTestId('logout').click();
  await bob.page.getByTestId('login').waitFor();
  assert.deepEqual(await devices(b), []);
  assert.equal(await bob.page.evaluate(() => localStorage.getItem('stub')), null);
  const left = await (await worker()).evaluate(async () =>
    (await registration.getNotifications()).length);
  assert.equal(left, 0, 'banners stay of a user who has signed out');
  noErrors();
});

test('the switch ends it, and the next start leaves it so', async () => {
  const [, b] = await newPair(alice, bob);
  await switchOn(b);
  await until('it is registered', async () => (await devices(b)).length === 1);
  await bob.page.getByTestId('push').click();
  await bob.page.locator('[data-testid="push"][aria-checked="false"]').waitFor();
  assert.deepEqual(await devices(b), []);
  await bob.page.reload();
  await caughtUp(bob.page);
  assert.deepEqual(await devices(b), []);
  noErrors();
});

test('without permission the page says so', async () => {
  const [, b] = await newPair(alice, bob);
  await deny();
  await settings(b);
  await bob.page.getByTestId('push').click();
  await bob.page.getByRole('alert').filter({ hasText: 'blocks notifications' }).waitFor();
  assert.equal(await bob.page.getByTestId('push').getAttribute('aria-checked'), 'false');
  assert.deepEqual(await devices(b), []);
  noErrors();
});

test('no switch where the server or the browser cannot push', async () => {
  const [, b] = await newPair(alice, bob);
  const asked = () => bob.page.waitForResponse(
    (answer) => answer.url().endsWith('/api/v1/push'), { timeout: 0 });
  const silent = asked();
  await settings(b, process.env.TIDEMARK_TEST_SILENT);
  await silent;
  await bob.page.getByTestId('notify').waitFor();
  assert.equal(await bob.page.getByTestId('push').count(), 0);

  await bob.page.addInitScript(() => { delete globalThis.PushManager; });
  await settings(b);
  await bob.page.getByTestId('notify').waitFor();
  assert.equal(await bob.page.getByTestId('push').count(), 0);
  noErrors();
});
