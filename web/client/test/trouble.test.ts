// What a client does when something fails under it. The server is the fake one, in virtual time.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { memoryStore } from '../src/index.js';
import { newSendId } from '../src/core/outbox.js';
import { storeFull } from '../src/errors.js';
import { MemoryData } from '../src/store/memory.js';
import { VirtualTabs } from '../src/testing/index.js';
import type { Chat } from '../src/wire.gen.js';
import { Scene, type Tab } from './clients.js';

void test('a bot that is far behind handles what is above its base', async () => {
  const scene = new Scene('ann', 'bob');
  const handled: string[] = [];
  const { client, place } = await scene.started('bob', {
    handle: (message) => {
      handled.push(message.content);
      return Promise.resolve();
    },
  });
  scene.says('ann', 'first');
  await scene.until(() => handled.length === 1);
  place.link.setOffline(true);
  for (let n = 2; n <= 700; n++) scene.says('ann', String(n));
  // Another bot of the same user was there meanwhile.
  scene.call('bob', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 700 }] });
  await scene.pass(60_000);
  place.link.setOffline(false);
  await scene.until(() => client.chats.get()[0]?.prefix === 700, 120_000);
  scene.says('ann', 'last');
  await scene.until(() => handled.at(-1) === 'last');
});

void test('a token that cannot be renewed is asked for twice a minute', async () => {
  const scene = new Scene('ann', 'bob');
  let asked = 0;
  const { client, place } = await scene.started('bob', {
    getToken: () => asked++ === 0 ? Promise.resolve(scene.server.token('bob', 3_600))
      : Promise.reject(new Error('the backend is down')),
  });
  let tickets = 0;
  place.link.onRequest = ({ url }) => {
    if (url.pathname.endsWith('/tickets')) tickets++;
    return undefined;
  };
  await scene.pass(3_500_000);
  assert.equal(client.state.get().phase, 'live');
  // 80 % of its life is over after 48 minutes.
  assert.ok(asked > 15 && asked < 25, String(asked));
  assert.ok(tickets < 25, String(tickets));
});

void test('a client that is stopped and started at once runs', async () => {
  const scene = new Scene('ann', 'bob');
  const { client } = await scene.started('bob', { transports: ['sse'] });
  scene.says('ann', 'owed');
  await scene.until(() => client.chats.get()[0]?.prefix === 1);
  const stopped = client.stop();
  const started = client.start();
  await scene.within(10_000, Promise.all([stopped, started]));
  await scene.until(() => client.state.get().phase === 'live');
  const again = client.stop();
  const late = client.start();
  await scene.within(10_000, Promise.all([again, client.stop(), late]));
  assert.equal(client.state.get().phase, 'stopped');
});

void test('what a tab wrote before it ended is sent by the one that leads', async () => {
  const scene = new Scene('ann', 'bob');
  const data = new MemoryData();
  const { client, place } = await scene.started('bob',
    { store: memoryStore({ data, durable: true }) }, new VirtualTabs(scene.server.clock));
  // The other tab ended before it could say anything.
  const other = memoryStore({ data, durable: true });
  await other.open('bob', `${scene.server.url}/api/v1`);
  await other.add({
    client_message_id: newSendId(place.platform.now(), new Uint8Array(16)), chat_id: 'team',
    content: 'hello', at: 0, seen: 0, after: 0,
  });
  await scene.until(() => client.chats.get()[0]?.prefix === 1, 20_000);
});

void test('a sign-out removes what the store kept, although memory is in use', async () => {
  const scene = new Scene('ann', 'bob');
  const tabs = new VirtualTabs(scene.server.clock);
  const data = new MemoryData();
  const store = memoryStore({ data, durable: true });
  const commit = store.commit.bind(store);
  let full = false;
  store.commit = (term, change) => full ? Promise.reject(storeFull('It is full.'))
    : commit(term, change);
  const { client } = await scene.started('bob', { store }, tabs);
  const other = await scene.started('bob', { store: memoryStore({ data, durable: true }) }, tabs);
  full = true;
  scene.says('ann', 'one');
  await scene.until(() => client.chats.get()[0]?.prefix === 1 && !client.state.get().durable);
  await scene.within(5_000, client.signOut());
  await scene.until(() => other.client.chats.get().length === 0
    && other.client.state.get().phase === 'signed-out', 5_000);
  const opened = await memoryStore({ data, durable: true }).open('bob',
    `${scene.server.url}/api/v1`);
  assert.equal(opened.chats.length, 0);
});

void test('memory is kept while the store does not open', async () => {
  const scene = new Scene('ann', 'bob');
  const store = memoryStore({ durable: true });
  const open = store.open.bind(store);
  let broken = true;
  store.open = (user, server) => broken ? Promise.reject(new Error('broken')) : open(user, server);
  const { client } = await scene.started('bob', { store });
  scene.says('ann', 'one');
  await scene.until(() => client.chats.get()[0]?.prefix === 1);
  const { items } = client.chat('team').timeline();
  let least = Infinity;
  items.subscribe(() => { least = Math.min(least, items.get().length); });
  await scene.until(() => items.get().length === 1);
  least = 1;
  await scene.pass(900_000);
  assert.equal(least, 1);
  broken = false;
  await scene.until(() => client.state.get().durable, 400_000);
});

void test('a chat that the server does not tell holds up no other', async () => {
  const scene = new Scene('ann', 'bob');
  const { client, place } = await scene.started('bob');
  let hidden = true;
  place.link.onRequest = ({ url }) => hidden && url.pathname.includes('/chats/')
    ? 'hang' : undefined;
  const { chat_id: chat } = scene.call('ann', 'POST', '/chats',
    { type: 'direct', member_ids: ['bob'] }) as Chat;
  scene.call('ann', 'POST', `/chats/${chat}/messages`,
    { client_message_id: 'a', content: 'of a new chat', seen_sequence: 0 });
  scene.says('ann', 'of a chat that is known');
  const prefix = (id: string): number | undefined =>
    client.chats.get().find((one) => one.chat.chat_id === id)?.prefix;
  await scene.until(() => prefix('team') === 1, 40_000);
  assert.equal(prefix(chat), undefined);
  hidden = false;
  await scene.until(() => prefix(chat) === 1, 120_000);
});

void test('a send that is waited for ends with the sign-out', async () => {
  const scene = new Scene('ann', 'bob');
  const { client, place } = await scene.started('bob');
  place.link.setOffline(true);
  const sent = await scene.within(1_000, client.chat('team').send({ content: 'hi' }));
  const gone = new AbortController();
  gone.abort();
  await assert.rejects(sent.confirmed(gone.signal), { name: 'AbortError' });
  const confirmed = sent.confirmed();
  confirmed.catch(() => undefined);
  await scene.within(5_000, client.signOut({ unsent: 'discard' }));
  await assert.rejects(scene.within(1_000, confirmed), { code: 'SIGNED_OUT' });
});

/** A tab of bob's that knows of what it has not got yet, when the server loses all messages. */
async function behindARestore(scene: Scene, chat: string, lose: () => void): Promise<Tab> {
  let lost = false;
  const tab = scene.tab('bob', { transports: ['longpoll'] });
  tab.place.link.onRequest = ({ url, method }) => {
    if (lost || !url.pathname.endsWith('/sync') && !url.pathname.endsWith('/messages')) {
      return undefined;
    }
    if (method === 'GET' && url.pathname.endsWith('/messages')) return 'hang';
    if (!tab.client.chats.get().some((one) => one.chat.chat_id === chat)) return 'drop';
    lost = true;
    lose();
    return 'drop';
  };
  await scene.within(5_000, tab.client.start());
  await scene.until(() => lost);
  await scene.until(() => tab.client.state.get().phase === 'live', 60_000);
  return tab;
}

void test('after a restore no status counts for messages that were never here', async () => {
  const scene = new Scene('ann', 'bob');
  const { chat_id: chat } = scene.call('ann', 'POST', '/chats',
    { type: 'direct', member_ids: ['bob'] }) as Chat;
  const backup = scene.server.backup();
  scene.call('bob', 'POST', `/chats/${chat}/messages`,
    { client_message_id: 'a', content: 'lost', seen_sequence: 0 });
  scene.call('ann', 'POST', '/acks', { chats: [{ chat_id: chat, last_acked_sequence: 1 }] });
  const { client } = await behindARestore(scene, chat, () => { scene.server.restore(backup); });
  const { items } = client.chat(chat).timeline();
  await scene.within(1_000, client.chat(chat).send({ content: 'new' }));
  await scene.until(() => items.get().some((item) => item.sequence === 1));
  await scene.pass(10_000);
  assert.deepEqual(items.get().filter(({ kind }) => kind === 'message').map((item) =>
    [item.message?.content, item.tick]), [['new', 'sent']]);
});

void test('after a restore nothing stays that was stored above a hole', async () => {
  const scene = new Scene('ann', 'bob');
  const backup = scene.server.backup();
  scene.says('ann', 'lost one');
  scene.call('bob', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 1 }] });
  scene.says('ann', 'lost two');
  const { client } = await behindARestore(scene, 'team', () => { scene.server.restore(backup); });
  scene.says('ann', 'new one');
  scene.says('ann', 'new two');
  const { items } = client.chat('team').timeline();
  await scene.until(() => client.chats.get()[0]?.prefix === 2);
  await scene.until(() => items.get().length === 2);
  assert.deepEqual(items.get().map(({ message }) => message?.content), ['new one', 'new two']);
});

for (const durable of [true, false]) {
  void test(`after a restore what was shown before says nothing, ${durable ? 'on a disk'
    : 'in memory'}`, async () => {
    const scene = new Scene('ann', 'bob');
    const { client } = await scene.started('bob', { store: memoryStore({ durable }) });
    const chat = client.chat('team');
    const prefix = (): number | undefined => client.chats.get()[0]?.prefix;
    scene.says('ann', 'kept');
    await scene.until(() => prefix() === 1);
    chat.shown(1);
    await scene.until(() => scene.state('bob').read === 1);
    const backup = scene.server.backup();
    for (let n = 2; n <= 9; n++) scene.says('ann', `lost ${n}`);
    await scene.until(() => prefix() === 9);
    chat.shown(9);
    await scene.until(() => scene.state('bob').read === 9);
    scene.server.restore(backup);
    await scene.until(() => prefix() === 1, 60_000);
    for (let n = 2; n <= 5; n++) scene.says('ann', `new ${n}`);
    await scene.until(() => prefix() === 5);
    const sent = await scene.within(1_000, chat.send({ content: 'mine' }));
    await scene.within(10_000, sent.confirmed());
    await scene.pass(10_000);
    assert.equal(scene.state('bob').read, 1);
    if (!durable) assert.ok(scene.state('bob').acked <= 1, String(scene.state('bob').acked));
    chat.shown(3);
    await scene.until(() => scene.state('bob').read === 3);
  });
}

void test('who comes back to a chat gets what was sent before they were gone', async () => {
  const scene = new Scene('ann', 'bob');
  scene.says('ann', 'one');
  const tab = scene.tab('bob');
  let listed = false;
  tab.place.link.onRequest = ({ url }) => {
    if (!listed && url.pathname.endsWith('/chats')) {
      listed = true;
      scene.call('ann', 'DELETE', '/chats/team/members/bob');
    }
    return undefined;
  };
  await scene.within(5_000, tab.client.start());
  await scene.until(() => tab.client.state.get().phase === 'live');
  await scene.pass(10_000);
  assert.equal(tab.client.chats.get().length, 0);
  scene.call('ann', 'POST', '/chats/team/members', { user_ids: ['bob'] });
  await scene.until(() => tab.client.chats.get()[0]?.prefix === 1, 10_000);
});

void test('a chat that changes while it is asked for is asked for again', async () => {
  const scene = new Scene('ann', 'bob');
  const { client } = await scene.started('bob');
  const renamed = new Set<string>();
  scene.server.refuse = ({ method, url }) => {
    const path = /\/chats\/new\d+$/.exec(url.pathname)?.[0];
    if (method === 'GET' && path && !renamed.has(path)) {
      renamed.add(path);
      // The answer is on its way then.
      scene.server.clock.timer(0, () => { scene.call('ann', 'PATCH', path, { name: 'later' }); });
    }
    return undefined;
  };
  for (let i = 0; i < 20; i++) {
    scene.call('ann', 'POST', '/chats',
      { type: 'group', chat_id: `new${i}`, name: 'at first', member_ids: ['bob'] });
    await scene.pass(100);
  }
  await scene.until(() => renamed.size === 20
    && client.chats.get().filter(({ chat }) => chat.name === 'later').length === 20, 5_000);
});

void test('an answer about restored data waits until the stream is one of them, too', async () => {
  const scene = new Scene('ann', 'bob');
  const backup = scene.server.backup();
  scene.says('ann', 'lost');
  const { client, place } = await scene.started('bob');
  await scene.until(() => client.chats.get()[0]?.prefix === 1);
  const chat = client.chat('team');
  const { items } = chat.timeline();
  const shown = (): unknown[] => items.get().map((item) => [item.content, item.tick]);
  // The server's machine dies without a word, and another one answers in its place.
  place.link.vanish();
  place.link.cut = () => undefined;
  scene.server.restore(backup);
  const sent = await scene.within(1_000, chat.send({ content: 'new' }));
  const confirmed = sent.confirmed();
  confirmed.catch(() => undefined);
  await scene.until(() => scene.server.data.chat('team').messages.length === 1);
  await scene.pass(2_000);
  assert.deepEqual(shown(), [['lost', undefined], ['new', 'sending']]);
  assert.equal((await scene.within(120_000, confirmed)).content, 'new');
  await scene.until(() => client.state.get().phase === 'live');
  assert.deepEqual(shown(), [['new', 'sent']]);
});

void test('a page that comes back queues nothing that another tab has sent', async () => {
  const scene = new Scene('ann', 'bob');
  const [data, tabs] = [new MemoryData(), new VirtualTabs(scene.server.clock)];
  const started = () => scene.started('bob', { store: memoryStore({ data, durable: true }) }, tabs);
  const [one, other] = [await started(), await started()];
  for (const { place } of [one, other]) place.link.setOffline(true);
  await scene.within(1_000, one.client.chat('team').send({ content: 'hello' }));
  one.place.page.emit('pagehide');
  other.place.link.setOffline(false);
  await scene.until(() => scene.server.data.chat('team').messages.length === 1, 60_000);
  await scene.until(() => other.client.unsent.get() === 0);
  const unsent = new Set<number>();
  other.client.unsent.subscribe(() => unsent.add(other.client.unsent.get()));
  one.place.page.emit('pageshow');
  await scene.until(() => one.client.unsent.get() === 0);
  await scene.pass(10_000);
  assert.deepEqual([...unsent], []);
});

void test('a message that did not come by the stream gets its tick', async () => {
  const scene = new Scene('ann', 'bob');
  const { chat_id: chat } = scene.call('ann', 'POST', '/chats',
    { type: 'direct', member_ids: ['bob'] }) as Chat;
  const { client, place } = await scene.started('bob', { transports: ['longpoll'] });
  const { items } = client.chat(chat).timeline();
  // The stream brings nothing more before the tick.
  place.link.onRequest = ({ url }) => url.pathname.endsWith('/poll') ? 'hang' : undefined;
  await scene.pass(1_000);
  const sent = await scene.within(1_000, client.chat(chat).send({ content: 'hello' }));
  await scene.within(10_000, sent.confirmed());
  assert.equal(client.chats.get()[0]?.chat.head_sequence, 1);
  scene.call('ann', 'POST', '/acks', { chats: [{ chat_id: chat, last_acked_sequence: 1 }] });
  place.link.onRequest = () => undefined;
  await scene.until(() => items.get()[0]?.tick === 'delivered', 120_000);
});

void test('a confirmation of data that are lost before the stream is back is none', async () => {
  const scene = new Scene('ann', 'bob');
  const backup = scene.server.backup();
  const { client, place } = await scene.started('bob');
  place.link.onRequest = ({ url }) => /\/(ws|events|poll|tickets)$/.test(url.pathname)
    ? 'drop' : undefined;
  place.link.cut();
  const sent = await scene.within(1_000, client.chat('team').send({ content: 'mine' }));
  await scene.until(() => scene.server.data.chat('team').messages.length === 1);
  await scene.pass(2_000);
  scene.server.restore(backup);
  place.link.onRequest = () => undefined;
  await scene.within(120_000, sent.confirmed());
  assert.equal(scene.server.data.chat('team').messages.length, 1);
});

void test('a status of restored data is none of a lost message', async () => {
  const scene = new Scene('ann', 'bob');
  const backup = scene.server.backup();
  const { client, place } = await scene.started('bob');
  const chat = client.chat('team');
  const sent = await scene.within(1_000, chat.send({ content: 'lost' }));
  await scene.within(10_000, sent.confirmed());
  // The stream is half-open, and another server answers with the data of the backup.
  place.link.vanish();
  place.link.cut = () => undefined;
  scene.server.restore(backup);
  scene.says('bob', 'new');
  scene.call('ann', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 1 }] });
  const { items } = chat.timeline();
  await scene.pass(3_000);
  assert.deepEqual(items.get().map((item) => [item.content, item.tick]), [['lost', 'sent']]);
  await scene.until(() => items.get()[0]?.content === 'new', 120_000);
  await scene.until(() => items.get()[0]?.tick === 'delivered');
});

void test('a chat of restored data says nothing of a lost message', async () => {
  const scene = new Scene('ann', 'bob');
  const { chat_id: id } = scene.call('bob', 'POST', '/chats',
    { type: 'direct', member_ids: ['ann'] }) as Chat;
  const backup = scene.server.backup();
  const { client, place } = await scene.started('bob');
  const chat = client.chat(id);
  const sent = await scene.within(1_000, chat.send({ content: 'lost' }));
  await scene.within(10_000, sent.confirmed());
  place.link.vanish();
  place.link.cut = () => undefined;
  scene.server.restore(backup);
  // Who sends has received it.
  for (const content of ['new', 'newer']) {
    scene.call('ann', 'POST', `/chats/${id}/messages`, { client_message_id: content, content });
  }
  const again = client.createChat({ type: 'direct', member_ids: ['ann'] });
  assert.equal((await scene.within(3_000, again)).id, id);
  await scene.within(3_000, chat.markUnread(1));
  const { items } = chat.timeline();
  await scene.pass(3_000);
  assert.deepEqual(items.get().map((item) => [item.content, item.tick]), [['lost', 'sent']]);
  assert.equal(chat.row.get()?.chat.head_sequence, 1);
  await scene.until(() => items.get()[0]?.content === 'new', 120_000);
});

void test('history of restored data waits until the rest is of the same data', async () => {
  const scene = new Scene('ann', 'bob');
  const backup = scene.server.backup();
  for (let n = 1; n <= 80; n++) scene.says('ann', `lost ${n}`);
  scene.call('bob', 'POST', '/acks',
    { chats: [{ chat_id: 'team', last_acked_sequence: 80, last_read_sequence: 80 }] });
  const { client, place } = await scene.started('bob');
  const timeline = client.chat('team').timeline({ page: 10 });
  await scene.until(() => timeline.items.get().length === 10);
  place.link.vanish();
  place.link.cut = () => undefined;
  scene.server.restore(backup);
  for (let n = 1; n <= 80; n++) scene.says('ann', `new ${n}`);
  assert.equal(await scene.within(3_000, timeline.older()), true);
  assert.ok(timeline.items.get().every(({ content }) => content?.startsWith('lost')));
  await scene.until(() => timeline.items.get().some(({ content }) => content === 'new 80'),
    120_000);
  assert.ok(timeline.items.get().every(({ content }) => content?.startsWith('new')));
});

void test('a message that came before those below it raises the head of its chat', async () => {
  const scene = new Scene('ann', 'bob');
  const { client, place } = await scene.started('bob');
  place.link.setOffline(true);
  scene.says('ann', 'one');
  scene.call('bob', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 1 }] });
  scene.server.endSessions('bob');
  // These answers are older than the second message, which the stream brings first.
  const stale = new Map(['/chats', '/chats/team/messages'].map((path) =>
    [`/api/v1${path}`, JSON.stringify(scene.call('bob', 'GET', path))]));
  scene.says('ann', 'two');
  const row = () => client.chats.get()[0];
  place.link.onRequest = ({ method, url: { pathname } }) => {
    const body = stale.get(pathname);
    if (method !== 'GET' || body === undefined) return undefined;
    return pathname.endsWith('/chats') && row()?.prefix !== 2 ? 'drop' : { status: 200, body };
  };
  place.link.setOffline(false);
  await scene.until(() => row()?.prefix === 2, 60_000);
  await scene.until(() => row()?.chat.head_sequence === 2);
  assert.equal(row()?.unread, 2);
});

void test('a session that begins while chats are listed is synced, not the old one', async () => {
  const scene = new Scene('ann', 'bob');
  scene.says('ann', 'one');
  scene.call('bob', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 1 }] });
  const { client, place } = scene.tab('bob', { store: memoryStore() });
  let sessions = 0;
  client.on('frame', ({ dir, text }) => {
    // The stream brings this message, and its chat is asked for and filled beside the list.
    if (dir === 'in' && text.includes('session_id') && ++sessions === 2) scene.says('ann', 'two');
  });
  place.link.onRequest = ({ url }) => url.pathname.endsWith('/chats') && sessions < 2
    ? 'drop' : undefined;
  await scene.within(1_000, client.start());
  await scene.until(() => sessions === 1);
  scene.server.endSessions('bob');
  place.link.cut();
  await scene.until(() => client.state.get().phase === 'live', 60_000);
});

void test('what a timeline shows stays after a stop, and goes with a sign-out', async () => {
  const scene = new Scene('ann', 'bob');
  const store = memoryStore({ durable: true });
  const page = store.page.bind(store);
  let held = Promise.resolve();
  store.page = async (...of) => { await held; return page(...of); };
  const { client } = await scene.started('bob', { store });
  const chat = client.chat('team');
  const { items } = chat.timeline();
  const sent = await scene.within(1_000, chat.send({ content: 'one' }));
  await scene.within(10_000, sent.confirmed());
  scene.call('ann', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 1 }] });
  await scene.until(() => items.get()[0]?.tick === 'delivered');
  const shown = () => items.get().map(({ content, tick }) => [content, tick]);
  // The timeline reads what has come, and the client stops meanwhile.
  let go = (): void => undefined;
  held = new Promise((resolve) => { go = resolve; });
  for (const [i, text] of ['two', 'three'].entries()) {
    scene.says('ann', text);
    await scene.until(() => client.chats.get()[0]?.prefix === i + 2);
  }
  await scene.within(10_000, client.stop());
  go();
  await scene.pass(1_000);
  assert.deepEqual(shown()[0], ['one', 'delivered']);
  await scene.within(10_000, client.start());
  await scene.until(() => shown().length === 3);
  await scene.within(10_000, client.signOut());
  await scene.until(() => shown().length === 0);
});

void test('a page that is read while the server is restored is not told twice', async () => {
  const scene = new Scene('ann', 'bob');
  const store = memoryStore({ durable: true });
  const page = store.page.bind(store);
  let held = Promise.resolve();
  store.page = async (...of) => { await held; return page(...of); };
  const { client } = await scene.started('bob', { store });
  const told: string[] = [];
  let restored = false;
  client.on('message', ({ content }) => told.push(content));
  client.on('restored', () => { restored = true; });
  const backup = scene.server.backup();
  let go = (): void => undefined;
  held = new Promise((resolve) => { go = resolve; });
  scene.says('ann', 'lost');
  await scene.until(() => client.chats.get()[0]?.prefix === 1);
  scene.server.restore(backup);
  for (const content of ['one', 'two']) scene.says('ann', content);
  await scene.until(() => restored && client.chats.get()[0]?.prefix === 2, 60_000);
  go();
  await scene.until(() => told.length >= 2);
  await scene.pass(10_000);
  assert.deepEqual(told, ['one', 'two']);
});

void test('a bot that handles a message while the server is restored skips none', async () => {
  const scene = new Scene('ann', 'bob');
  const handled: string[] = [];
  let go = (): void => undefined;
  const { client } = await scene.started('bob', {
    handle: (message) => {
      handled.push(message.content);
      return message.content === 'lost' ? new Promise((resolve) => { go = resolve; })
        : Promise.resolve();
    },
  });
  const backup = scene.server.backup();
  scene.says('ann', 'lost');
  await scene.until(() => handled.length === 1);
  scene.server.restore(backup);
  for (const content of ['one', 'two']) scene.says('ann', content);
  const team = () => client.chats.get()[0];
  await scene.until(() => team()?.prefix === 2 && team()?.last?.content === 'two', 60_000);
  go();
  await scene.until(() => handled.length >= 3);
  assert.deepEqual(handled, ['lost', 'one', 'two']);
});

void test('sends that a store takes while another takes its place are sent in order', async () => {
  const scene = new Scene('ann', 'bob');
  const store = memoryStore({ durable: true });
  const add = store.add.bind(store);
  let adds = 0;
  store.add = (send) => ++adds === 1 ? Promise.reject(storeFull('It is full.')) : add(send);
  const { client } = await scene.started('bob', { store });
  const changes = store.changes.bind(store);
  store.changes = async (since) => {
    await scene.server.clock.sleep(500);
    return changes(since);
  };
  const chat = client.chat('team');
  // The first one fails, and memory takes the place of the store.
  const first = chat.send({ content: '1' });
  const others = ['2', '3'].map((content) => chat.send({ content }));
  await assert.rejects(scene.within(5_000, first), { code: 'STORE_FULL' });
  const last = chat.send({ content: '4' });
  await scene.within(5_000, Promise.all([...others, last]));
  const stored = () => scene.server.data.chat('team').messages.map(({ content }) => content);
  await scene.until(() => stored().length === 3, 30_000);
  assert.deepEqual(stored(), ['2', '3', '4']);
  assert.equal(client.state.get().durable, false);
});

void test('a send that is being stored when the data vanish is in the next ones', async () => {
  const scene = new Scene('ann', 'bob');
  const store = memoryStore({ durable: true });
  const add = store.add.bind(store);
  let fails = false;
  store.add = async (send) => {
    const ordinal = await add(send);
    // The step has its effect, and the store is replaced before the client has seen that.
    if (fails) {
      store.open = () => Promise.reject(storeFull('It is full.'));
      store.onlost?.('evicted');
    }
    return ordinal;
  };
  const { client } = await scene.started('bob', { store });
  fails = true;
  const sent = await scene.within(5_000, client.chat('team').send({ content: 'hello' }));
  assert.equal(sent.durable, false);
  await scene.within(30_000, sent.confirmed());
  assert.equal(scene.server.data.chat('team').messages.length, 1);
});

void test('a session that is gone with its data is not asked for again and again', async () => {
  const scene = new Scene('ann', 'bob');
  scene.says('ann', 'one');
  const backup = scene.server.backup();
  const { client, place } = await scene.started('bob', { transports: ['sse'] });
  scene.server.endSessions('bob');
  let syncs = 0;
  place.link.onRequest = ({ url }) => {
    if (!url.pathname.endsWith('/sync') || ++syncs > 1) return undefined;
    // The stream is half-open, and another server answers with the data of the backup.
    place.link.vanish();
    place.link.cut = () => undefined;
    scene.server.restore(backup);
    return 'drop';
  };
  await scene.until(() => syncs > 0, 60_000);
  await scene.until(() => client.state.get().phase === 'live', 15_000);
  assert.equal(client.chats.get()[0]?.prefix, 1);
});

void test('a cursor of lost data says nothing of what is acknowledged now', async () => {
  const scene = new Scene('ann', 'bob');
  const backup = scene.server.backup();
  const { client, place } = await scene.started('bob', { store: memoryStore() });
  scene.says('ann', 'lost');
  await scene.until(() => client.chats.get()[0]?.prefix === 1);
  const cursors: unknown[] = [];
  place.link.onRequest = ({ url, body }) => {
    if (url.pathname.endsWith('/sync')) {
      const { chats } = JSON.parse(body) as { chats: { last_acked_sequence: number }[] };
      cursors.push(...chats.map((one) => one.last_acked_sequence));
    }
    return undefined;
  };
  scene.server.restore(backup);
  // Another device of Bob sends, so 1 is acknowledged. Nobody was shown the message that is lost.
  scene.says('bob', 'mine');
  await scene.until(() => client.chats.get()[0]?.last?.content === 'mine', 60_000);
  assert.equal(cursors[0], 0);
});

void test('each page of the list of chats is of the data that it names', async () => {
  const scene = new Scene('ann', 'bob');
  for (let n = 0; n < 205; n++) {
    scene.call('ann', 'POST', '/chats',
      { type: 'group', chat_id: `z${String(n)}`, member_ids: ['ann', 'bob'] });
  }
  const backup = scene.server.backup();
  for (let n = 1; n <= 5; n++) scene.says('ann', `lost ${n}`);
  scene.call('bob', 'POST', '/acks',
    { chats: [{ chat_id: 'team', last_acked_sequence: 5, last_read_sequence: 5 }] });
  const { client, place } = scene.tab('bob');
  const known = () => client.chats.get().find(({ chat }) => chat.chat_id === 'team');
  let restored = false;
  place.link.onRequest = ({ url }) => {
    if (restored || !url.searchParams.has('cursor')) return undefined;
    // The chat is on the first page, and the server is restored before the second one.
    restored = true;
    scene.server.restore(backup);
    for (const content of ['one', 'two']) scene.says('ann', content);
    return 'drop';
  };
  await scene.within(1_000, client.start());
  await scene.until(() => restored && client.state.get().phase === 'live', 60_000);
  await scene.until(() => known()?.prefix === 2);
  const { items } = client.chat('team').timeline();
  await scene.until(() => items.get().length === 2);
  assert.deepEqual(items.get().map(({ content }) => content), ['one', 'two']);
});

void test('a store that fails while it is filled loses no send of the one before', async () => {
  const scene = new Scene('ann', 'bob');
  const store = memoryStore({ durable: true });
  const [open, add] = [store.open.bind(store), store.add.bind(store)];
  let broken = true;
  let adds = 0;
  store.open = (user, server) => broken ? Promise.reject(new Error('broken')) : open(user, server);
  store.add = (send) => ++adds === 2 ? Promise.reject(storeFull('It is full.')) : add(send);
  const { client, place } = await scene.started('bob', { store });
  place.link.setOffline(true);
  for (const content of ['1', '2', '3']) {
    await scene.within(1_000, client.chat('team').send({ content }));
  }
  // The store opens, and is full after the first send.
  broken = false;
  await scene.until(() => adds === 2, 400_000);
  await scene.pass(5_000);
  assert.equal(client.unsent.get(), 3);
  place.link.setOffline(false);
  const stored = () => scene.server.data.chat('team').messages.map(({ content }) => content);
  await scene.until(() => stored().length === 3, 60_000);
  assert.deepEqual(stored(), ['1', '2', '3']);
});

void test('a sign-out looks once more before it refuses', async () => {
  const scene = new Scene('ann', 'bob');
  const [data, tabs] = [new MemoryData(), new VirtualTabs(scene.server.clock)];
  const started = () => scene.started('bob', { store: memoryStore({ data, durable: true }) }, tabs);
  const [leader, other] = [await started(), await started()];
  leader.place.link.setOffline(true);
  await scene.within(1_000, other.client.chat('team').send({ content: 'hello' }));
  await scene.until(() => leader.client.unsent.get() === 1);
  await assert.rejects(scene.within(5_000, other.client.signOut()), { code: 'UNSENT' });
  // The leader sends it, and its notice of that is lost.
  tabs.loses = () => scene.server.data.chat('team').messages.length > 0;
  leader.place.link.setOffline(false);
  await scene.until(() => leader.client.unsent.get() === 0, 60_000);
  assert.equal(other.client.unsent.get(), 1);
  await scene.within(5_000, other.client.signOut());
  assert.equal(other.client.state.get().phase, 'signed-out');
});
