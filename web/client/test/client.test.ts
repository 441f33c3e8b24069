// What a client does, in the sight of an application. The server is the fake one, in virtual time.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { codeOf, createClient, memoryStore, type Client, type Item, type Restored }
  from '../src/index.js';
import { MemoryData } from '../src/store/memory.js';
import { VirtualTabs } from '../src/testing/index.js';
import type { Message } from '../src/wire.gen.js';
import { Scene } from './clients.js';

const texts = (items: readonly Item[]): string[] =>
  items.map((item) => [item.content ?? item.kind, item.tick].filter(Boolean).join(' '));

void test('a message goes from the outbox to ✓✓, and its key stays', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: ann } = await scene.started('ann');
  const { client: bob } = await scene.started('bob');
  const told: string[] = [];
  bob.on('message', (m) => { told.push(m.content); });
  const { items } = ann.chat('team').timeline();
  const sent = await scene.within(1_000, ann.chat('team').send({ content: 'hello' }));
  await scene.until(() => items.get().length === 1);
  assert.deepEqual(texts(items.get()), ['hello sending']);
  const key = items.get()[0]?.key;
  const stored = await scene.within(1_000, sent.confirmed());
  assert.equal(stored.sequence, 1);
  await scene.until(() => texts(items.get())[0] === 'hello delivered');
  bob.chat('team').shown(1);
  await scene.until(() => texts(items.get())[0] === 'hello read');
  assert.equal(items.get()[0]?.key, key);
  assert.deepEqual(told, ['hello']);
});

void test('without a durable store only what was shown is acknowledged', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: bob } = await scene.started('bob', { store: memoryStore() });
  scene.says('ann', 'one');
  scene.says('ann', 'two');
  await scene.pass(20_000);
  assert.equal(bob.chats.get()[0]?.prefix, 2);
  assert.deepEqual(scene.state('bob'), { acked: 0, read: 0 });
  bob.chat('team').shown(1);
  await scene.pass(6_000);
  assert.deepEqual(scene.state('bob'), { acked: 1, read: 1 });
});

void test('what nobody looks at is stored, and not read', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: bob, place } = await scene.started('bob');
  place.page.focus(false);
  scene.says('ann', 'one');
  await scene.pass(6_000);
  bob.chat('team').shown(1);
  await scene.pass(6_000);
  assert.deepEqual(scene.state('bob'), { acked: 1, read: 0 });
  place.page.hide();
  place.page.focus(true);
  place.page.show();
  await scene.pass(1_000);
  assert.deepEqual(scene.state('bob'), { acked: 1, read: 1 });
  // A window that is visible all the time gets the focus. watchShown then says again what it shows.
  place.page.focus(false);
  scene.says('ann', 'two');
  await scene.pass(1_000);
  bob.chat('team').shown(2);
  await scene.pass(6_000);
  assert.deepEqual(scene.state('bob'), { acked: 2, read: 1 });
  place.page.focus(true);
  bob.chat('team').shown(2);
  await scene.pass(1_000);
  assert.deepEqual(scene.state('bob'), { acked: 2, read: 2 });
});

void test('ten messages are acknowledged at once, fewer within 5 s', async () => {
  const scene = new Scene('ann', 'bob');
  await scene.started('bob');
  for (let i = 0; i < 10; i++) scene.says('ann', `text ${i}`);
  await scene.pass(500);
  assert.equal(scene.state('bob').acked, 10);
  scene.says('ann', 'one more');
  await scene.pass(4_000);
  assert.equal(scene.state('bob').acked, 10);
  await scene.pass(1_500);
  assert.equal(scene.state('bob').acked, 11);
});

void test('a hidden page acknowledges at once', async () => {
  const scene = new Scene('ann', 'bob');
  const { place } = await scene.started('bob');
  scene.says('ann', 'one');
  await scene.pass(500);
  assert.equal(scene.state('bob').acked, 0);
  place.page.hide();
  await scene.pass(500);
  assert.equal(scene.state('bob').acked, 1);
});

void test('a page that goes acknowledges first', async () => {
  const scene = new Scene('ann', 'bob');
  const { place } = await scene.started('bob', { transports: ['longpoll'] });
  scene.says('ann', 'one');
  await scene.pass(500);
  place.page.emit('pagehide');
  await scene.pass(1_000);
  assert.equal(scene.state('bob').acked, 1);
});

void test('a bot acknowledges what it has handled, in order, and repeats what failed', async () => {
  const scene = new Scene('ann', 'bob');
  const handled: string[] = [];
  let failures = 2;
  await scene.started('bob', {
    handle: ({ content }) => {
      handled.push(content);
      return content === 'two' && failures-- > 0
        ? Promise.reject(new Error('not now')) : Promise.resolve();
    },
  });
  for (const content of ['one', 'two', 'three']) scene.says('ann', content);
  scene.says('bob', 'mine');
  await scene.pass(1_500);
  assert.deepEqual(handled, ['one', 'two', 'two']);
  await scene.pass(6_000);
  assert.deepEqual(handled, ['one', 'two', 'two', 'two', 'three']);
  assert.equal(scene.state('bob').acked, 4);
});

void test('a bot that starts again handles what it had not acknowledged', async () => {
  const scene = new Scene('ann', 'bob');
  const data = new MemoryData();
  const handled: string[] = [];
  const handle = ({ content }: Message): Promise<void> => {
    handled.push(content);
    return handled.length === 1 ? Promise.resolve() : new Promise(() => undefined);
  };
  const store = () => memoryStore({ data, durable: true });
  const first = await scene.started('bob', { handle, store: store() });
  scene.says('ann', 'one');
  await scene.pass(6_000);
  scene.says('ann', 'two');
  await scene.pass(6_000);
  await scene.within(10_000, first.client.stop());
  assert.deepEqual([handled, scene.state('bob').acked], [['one', 'two'], 1]);
  await scene.started('bob', { handle, store: store() });
  await scene.pass(1_000);
  assert.deepEqual(handled, ['one', 'two', 'two']);
});

void test('typing is shown for a while', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: ann } = await scene.started('ann');
  const { client: bob } = await scene.started('bob');
  const { typing } = ann.chat('team');
  bob.chat('team').type();
  await scene.until(() => typing.get().length > 0);
  assert.deepEqual(typing.get(), ['bob']);
  await scene.pass(10_000);
  assert.deepEqual(typing.get(), []);
});

void test('a message ends the typing of its sender, and of nobody else', async () => {
  const scene = new Scene('ann', 'bob', 'cat');
  const { client: ann } = await scene.started('ann');
  const { client: bob } = await scene.started('bob');
  const { client: cat } = await scene.started('cat');
  const { typing } = ann.chat('team');
  bob.chat('team').type();
  cat.chat('team').type();
  await scene.until(() => typing.get().length === 2);
  await bob.chat('team').send({ content: 'hello' });
  await scene.until(() => typing.get().length === 1);
  assert.deepEqual(typing.get(), ['cat']);
  // The first notice of the user who types again ends nothing.
  await scene.pass(3_000);
  bob.chat('team').type();
  await scene.until(() => typing.get().length === 2);
  await scene.pass(3_500);
  assert.deepEqual(typing.get(), ['bob']);
});

void test('unread is exact, also with a mark', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: bob } = await scene.started('bob');
  for (let i = 0; i < 5; i++) scene.says('ann', `text ${i}`);
  await scene.until(() => bob.unread.get().total === 5);
  bob.chat('team').shown(3);
  await scene.until(() => bob.unread.get().total === 2);
  bob.chat('team').shown(5);
  await scene.until(() => bob.unread.get().total === 0 && scene.state('bob').read === 5);
  await scene.within(5_000, bob.chat('team').markUnread(4));
  await scene.until(() => bob.unread.get().total === 2);
  assert.equal(bob.chats.get()[0]?.chat.unread_from_sequence, 4);
  await scene.within(5_000, bob.chat('team').markUnread(null));
  await scene.until(() => bob.unread.get().total === 0);
});

void test('who hides what they read is not seen to read, and sees no reads', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: bob } = await scene.started('bob');
  const { client: ann } = await scene.started('ann');
  const of = async <T>(promise: Promise<T>): Promise<T> => scene.within(5_000, promise);
  for (let i = 0; i < 5; i++) scene.says('ann', `text ${i}`);
  await scene.until(() => bob.unread.get().total === 5);
  bob.chat('team').shown(2);
  await scene.until(() => scene.state('bob').read === 2);
  const all = await of(bob.setReadReceipts('off'));
  assert.deepEqual(all,
    { chat_id: null, read_receipts: 'off', chat_read_receipts: null, hidden: true });
  bob.chat('team').shown(4);
  await scene.until(() => scene.state('bob').read === 4);
  const readBy = async (client: typeof ann, user: string) => {
    const { members } = await of(client.chat('team').status());
    return members.find((m) => m.user_id === user)?.last_read_sequence;
  };
  assert.equal(await readBy(ann, 'bob'), 2);
  ann.chat('team').shown(5);
  await scene.until(() => scene.state('ann').read === 5);
  assert.equal(await readBy(bob, 'ann'), 0);
  await of(bob.setReadReceipts('on', 'team'));
  const { read_receipts, hidden } = await of(bob.readReceipts('team'));
  assert.deepEqual([read_receipts, hidden], ['on', false]);
  assert.equal(await readBy(ann, 'bob'), 2);
  bob.chat('team').shown(5);
  await scene.until(() => scene.state('bob').read === 5);
  assert.equal(await readBy(ann, 'bob'), 5);
  assert.equal(await readBy(bob, 'ann'), 5);
});

void test('the policy of a chat comes before what its members have set', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: bob } = await scene.started('bob');
  const { client: ann } = await scene.started('ann');
  const { server } = scene;
  const { platform } = server.place();
  const of = async <T>(promise: Promise<T>): Promise<T> => scene.within(5_000, promise);
  const policy = async (read_receipts: string) => {
    const { status } = await of(platform.fetch(`${server.url}/api/v1/chats/team`, {
      method: 'PATCH', body: JSON.stringify({ read_receipts }),
      headers: { authorization: `Bearer ${server.apiKey}`, 'content-type': 'application/json' },
    }));
    assert.equal(status, 200);
    await scene.until(() => ann.chat('team').row.get()?.chat.read_receipts === read_receipts);
  };
  const readBy = async (client: typeof ann, user: string) => {
    const { members } = await of(client.chat('team').status());
    return members.find((m) => m.user_id === user)?.last_read_sequence;
  };
  for (let i = 0; i < 4; i++) scene.says('ann', `text ${i}`);
  await scene.until(() => bob.unread.get().total === 4);
  await of(bob.setReadReceipts('off'));
  await policy('required');
  bob.chat('team').shown(2);
  await scene.until(() => scene.state('bob').read === 2);
  assert.equal(await readBy(ann, 'bob'), 2);
  const { chat_read_receipts, hidden } = await of(bob.readReceipts('team'));
  assert.deepEqual([chat_read_receipts, hidden], ['required', false]);
  await policy('off');
  assert.equal(await readBy(ann, 'bob'), 0);
  bob.chat('team').shown(3);
  await scene.until(() => scene.state('bob').read === 3);
  await policy('required');
  assert.equal(await readBy(ann, 'bob'), 2);
  bob.chat('team').shown(4);
  await scene.until(() => scene.state('bob').read === 4);
  assert.equal(await readBy(ann, 'bob'), 4);
  assert.equal(server.call('ann', 'PATCH', '/chats/team', { read_receipts: 'off' }).status, 403);
});

void test('a block closes the direct chat, until it is lifted', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: bob } = await scene.started('bob');
  const of = async <T>(promise: Promise<T>): Promise<T> => scene.within(5_000, promise);
  const chat = await of(bob.createChat({ type: 'direct', member_ids: ['ann'] }));
  await of(bob.block('ann'));
  await of(bob.block('ann'));
  await scene.until(() => chat.row.get()?.chat.closed === true);
  const sent = await of(chat.send({ content: 'hello' }));
  await assert.rejects(of(sent.confirmed()), { code: 'DENIED' });
  assert.deepEqual((await of(bob.blocks())).map(({ user_id }) => user_id), ['ann']);
  await of(bob.unblock('ann'));
  await scene.until(() => chat.row.get()?.chat.closed === false);
  assert.deepEqual(await of(bob.blocks()), []);
  const again = await of(chat.send({ content: 'hello again' }));
  assert.equal((await of(again.confirmed())).content, 'hello again');
  await assert.rejects(of(bob.block('bob')), { code: 'INVALID' });
});

void test('a message of a kind of tomorrow is acknowledged and read, and not counted', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: bob } = await scene.started('bob', { store: memoryStore() });
  scene.says('ann', 'one');
  const hidden = scene.says('ann', 'two');
  // The server of today has no such kind.
  Object.assign(hidden, { kind: 'poll' });
  const { messages } = scene.server.data.chat('team');
  Object.assign(messages[1] ?? {}, { kind: 'poll' });
  await scene.until(() => bob.chats.get()[0]?.prefix === 2);
  const { items } = bob.chat('team').timeline();
  await scene.until(() => items.get().length > 0);
  assert.deepEqual(texts(items.get()), ['one']);
  bob.chat('team').shown(1);
  await scene.pass(6_000);
  assert.deepEqual(scene.state('bob'), { acked: 2, read: 2 });
});

void test('what another device reads is read here', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: bob } = await scene.started('bob');
  scene.says('ann', 'one');
  await scene.until(() => bob.unread.get().total === 1);
  scene.call('bob', 'PATCH', '/chats/team/delivery-state', { last_read_sequence: 1 });
  await scene.until(() => bob.unread.get().total === 0);
});

void test('a new name is fetched, and a chat that the user leaves stays', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: bob } = await scene.started('bob');
  scene.call('ann', 'PATCH', '/chats/team', { name: 'Crew' });
  await scene.until(() => bob.chats.get()[0]?.chat.name === 'Crew');
  scene.says('ann', 'one');
  await scene.until(() => bob.chats.get()[0]?.prefix === 1);
  scene.call('ann', 'DELETE', '/chats/team/members/bob');
  await scene.until(() => bob.chats.get()[0]?.left === true);
  scene.call('ann', 'POST', '/chats/team/members', { user_ids: ['bob'] });
  await scene.until(() => bob.chats.get()[0]?.left === false);
});

void test('what a leader could not look up any more is looked up by the next one', async () => {
  const scene = new Scene('ann', 'bob');
  const data = new MemoryData();
  const store = () => ({ store: memoryStore({ data, durable: true }) });
  let alive = true;
  const { platform, link } = scene.server.place({ gate: (run) => { if (alive) run(); } });
  const first = await scene.started('bob', { ...store(), platform });
  link.onRequest = ({ url }) => url.pathname.endsWith('/chats/team') ? 'hang' : undefined;
  scene.call('ann', 'DELETE', '/chats/team/members/bob');
  await scene.pass(2_000);
  assert.equal(first.client.chats.get()[0]?.left, false);
  alive = false;
  link.cut();
  const { client: bob } = await scene.started('bob', store());
  await scene.until(() => bob.chats.get()[0]?.left === true);
});

void test('a message that the stream leaves out is fetched at once', async () => {
  const scene = new Scene('ann', 'bob');
  const { platform } = scene.server.place();
  const { WebSocket } = platform;
  assert.ok(WebSocket);
  const leaky = new Proxy(WebSocket, {
    construct(target, args: ConstructorParameters<typeof WebSocket>) {
      const socket = new target(...args);
      let hear: typeof socket.onmessage = null;
      Object.defineProperty(socket, 'onmessage', {
        get: () => (event: MessageEvent<string>) => {
          if (!event.data.includes('"content":"two"')) hear?.call(socket, event);
        },
        set: (listener: typeof hear) => { hear = listener; },
      });
      return socket;
    },
  });
  const { client: bob } = await scene.started('bob',
    { platform: { ...platform, WebSocket: leaky } });
  for (const content of ['one', 'two', 'three']) scene.says('ann', content);
  await scene.until(() => bob.chats.get()[0]?.prefix === 3, 2_000);
});

void test('older messages come from the server, page by page', async () => {
  const scene = new Scene('ann', 'bob');
  for (let i = 1; i <= 30; i++) scene.says('ann', `text ${i}`);
  scene.call('bob', 'PATCH', '/chats/team/delivery-state', { last_read_sequence: 30 });
  const { client: bob } = await scene.started('bob');
  assert.equal(bob.chats.get()[0]?.prefix, 30);
  const timeline = bob.chat('team').timeline({ page: 10 });
  await scene.until(() => timeline.items.get().length === 10);
  assert.equal(timeline.items.get()[0]?.content, 'text 21');
  assert.equal(await scene.within(5_000, timeline.older()), true);
  assert.equal(timeline.items.get().length, 20);
  assert.equal(await scene.within(5_000, timeline.older()), false);
  assert.deepEqual(texts(timeline.items.get()),
    Array.from({ length: 30 }, (_, i) => `text ${i + 1}`));
  assert.equal(await scene.within(5_000, timeline.older()), false);
});

void test('a send that the server refuses fails, and the next one goes', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: ann } = await scene.started('ann');
  const chat = ann.chat('team');
  const { items } = chat.timeline();
  scene.call('ann', 'POST', '/chats/team/messages', { client_message_id: 'x', content: 'old' });
  const bad = { content: 'one', mentions: { user_ids: ['?'] } };
  const one = await scene.within(1_000, chat.send(bad));
  const two = await scene.within(1_000, chat.send({ content: 'two' }));
  await assert.rejects(scene.within(5_000, one.confirmed()), (e) => codeOf(e) === 'INVALID');
  await scene.within(5_000, two.confirmed());
  await scene.pass(100);
  const failed = items.get().find((item) => item.tick === 'failed');
  assert.equal(failed?.problem?.code, 'INVALID');
  failed.discard?.();
  await scene.until(() => !items.get().some((item) => item.tick === 'failed'));
});

void test('a draft that the server would refuse is not queued', async () => {
  const { client } = await new Scene('ann').started('ann');
  const chat = client.chat('team');
  for (const [draft, code] of [
    [{}, 'INVALID'], [{ content: '\0' }, 'INVALID'], [{ content: 'x'.repeat(65_537) }, 'TOO_LARGE'],
    [{ content: 'ü'.repeat(40_000) }, 'TOO_LARGE'],
    [{ attachments: Array(11).fill({}) }, 'INVALID'],
    [null as unknown as object, 'INVALID'], [{ content: 1 as unknown as string }, 'INVALID'],
    [{ content: 'a', metadata: { n: 1n } }, 'INVALID'],
    [{ content: 'a', client_message_id: 'mine' }, 'INVALID'],
  ] as const) {
    await assert.rejects(chat.send(draft), (error) => codeOf(error) === code);
  }
});

void test('the transport that works is found, and a better one later', async () => {
  const scene = new Scene('ann', 'bob');
  const tab = scene.tab('bob');
  tab.place.link.blocksWebSocket = true;
  await scene.within(1_000, tab.client.start());
  const state = () => tab.client.state.get();
  await scene.until(() => state().phase === 'live' && state().transport === 'sse');
  tab.place.link.blocksWebSocket = false;
  await scene.until(() => state().transport === 'websocket', 70_000);
  scene.says('ann', 'one');
  await scene.until(() => tab.client.chats.get()[0]?.prefix === 1);
});

void test('streams that a proxy holds back give way to long-poll', async () => {
  const scene = new Scene('ann', 'bob');
  const tab = scene.tab('bob');
  tab.place.link.blocksWebSocket = true;
  tab.place.link.buffersStreams = true;
  await scene.within(1_000, tab.client.start());
  await scene.until(() => tab.client.state.get().phase === 'live');
  assert.equal(tab.client.state.get().transport, 'longpoll');
});

void test('a new device gets every message once, also if the stream is ahead', async () => {
  const scene = new Scene('ann', 'bob');
  for (let n = 1; n <= 300; n++) scene.says('ann', `text ${n}`);
  const { client, place: { link } } = scene.tab('bob');
  const got = new Map<string, number>();
  client.on('frame', (frame) => {
    for (const [text] of frame.text.matchAll(/"text \d+"/g)) {
      got.set(text, (got.get(text) ?? 0) + 1);
    }
  });
  link.onRequest = ({ url }) => url.pathname.endsWith('/team') ? 'slow' : undefined;
  await scene.within(5_000, client.start());
  await scene.until(() => client.state.get().phase === 'live');
  assert.equal(client.chats.get()[0]?.prefix, 300);
  // The list of chats has the last message too.
  assert.ok(got.delete('"text 300"'));
  assert.equal(got.size, 299);
  assert.deepEqual([...got].filter(([, times]) => times !== 1), []);
});

void test('a token is renewed in time, and the stream never stops', async () => {
  const scene = new Scene('ann', 'bob');
  const whys: string[] = [];
  const { client } = await scene.started('bob', {
    getToken: (why) => {
      whys.push(why);
      return Promise.resolve(scene.server.token('bob', 900));
    },
  });
  const phases = new Set<string>();
  client.state.subscribe(() => phases.add(client.state.get().phase));
  await scene.pass(3_600_000);
  assert.deepEqual(new Set(whys), new Set(['start', 'renew']));
  assert.ok(whys.length >= 5 && whys.length <= 7, String(whys.length));
  assert.ok(!phases.has('connecting'), [...phases].join());
});

void test('an acknowledgement that gets no answer is sent again', async () => {
  const scene = new Scene('ann', 'bob');
  const { place } = await scene.started('bob', { transports: ['longpoll'] });
  let lost = 0;
  place.link.onRequest = ({ url }) => url.pathname.endsWith('/acks') && lost++ < 2
    ? 'drop' : undefined;
  scene.says('ann', 'one');
  await scene.until(() => scene.state('bob').acked === 1);
  assert.equal(lost, 3);
});

void test('a token of another user opens nothing', async () => {
  const scene = new Scene('ann', 'bob');
  scene.call('ann', 'POST', '/chats', { type: 'group', chat_id: 'own', member_ids: ['ann'] });
  const { client } = scene.tab('bob', { getToken: scene.server.getToken('ann') });
  void client.start();
  await scene.pass(10_000);
  assert.deepEqual(client.chats.get(), []);
  const { sessions } = scene.call('ann', 'GET', '/sessions') as { sessions: unknown[] };
  assert.deepEqual(sessions, []);
});

void test('a token that is none, and one that is refused, are named as such', async () => {
  const scene = new Scene('ann');
  const tokens = [undefined, '', { token: 'x' }, new Error('the backend is down')];
  for (const token of tokens) {
    const { client } = scene.tab('ann', {
      getToken: () => token instanceof Error ? Promise.reject(token)
        : Promise.resolve(token as unknown as string),
    });
    const problems: string[] = [];
    client.on('problem', ({ code, detail }) => problems.push(`${code} ${detail}`));
    void client.start();
    await scene.pass(1_000);
    const { phase, problem } = client.state.get();
    assert.deepEqual([phase, problem?.code], ['connecting', 'NO_TOKEN']);
    assert.match(problems[0] ?? '', /^NO_TOKEN getToken: Error: (that is no token|the backend is)/);
    await client.stop();
  }
  const { client } = scene.tab('ann', { getToken: () => Promise.resolve('nope') });
  void client.start();
  await scene.pass(1_000);
  const { phase, problem } = client.state.get();
  assert.deepEqual([phase, problem?.code], ['refused', 'UNAUTHENTICATED']);
});

void test('an address that is none is said at the start', async () => {
  const scene = new Scene('ann');
  for (const url of ['', '/chat', 'localhost:8080', 'ftp://chat.example.com']) {
    const { client } = scene.tab('ann', { url });
    await assert.rejects(client.start(), { code: 'INVALID' }, url);
    const { phase, problem } = client.state.get();
    assert.deepEqual([phase, problem?.code], ['refused', 'INVALID']);
    await client.stop();
  }
});

void test('who sends again under the same id has sent once', async () => {
  const scene = new Scene('ann', 'bob');
  const { client } = await scene.started('bob');
  const one = { content: 'once', client_message_id: client.newMessageId() };
  const chat = client.chat('team');
  const { items } = chat.timeline();
  await scene.within(1_000, Promise.all([chat.send(one), chat.send(one)]));
  await scene.until(() => items.get()[0]?.sequence === 1);
  const sent = await scene.within(1_000, chat.send(one));
  assert.equal((await scene.within(10_000, sent.confirmed())).sequence, 1);
  await scene.pass(10_000);
  assert.equal(items.get().length, 1);
  const { client: stopped } = scene.tab('bob');
  await assert.rejects(stopped.chat('team').send(one), (e) => codeOf(e) === 'STOPPED');
});

void test('the server knows all tabs of a browser as one device', async () => {
  const scene = new Scene('ann', 'bob');
  const tabs = new VirtualTabs(scene.server.clock);
  const data = new MemoryData();
  const store = () => memoryStore({ data, durable: true });
  const one = await scene.started('bob', { store: store() }, tabs);
  const two = await scene.started('bob', { store: store() }, tabs);
  const { sessions } = scene.call('bob', 'GET', '/sessions') as {
    sessions: { device_id: string }[];
  };
  assert.deepEqual(sessions.map((session) => session.device_id), [one.client.device]);
  assert.equal(two.client.device, one.client.device);
  assert.equal(scene.tab('bob').client.device, undefined);
});

void test('a user who is signed out is refused, and not asked again', async () => {
  const scene = new Scene('ann');
  let asked = 0;
  const tab = scene.tab('ann', {
    getToken: () => {
      asked++;
      const gone = Object.assign(new Error('no'), { code: 'SIGNED_OUT' });
      return Promise.reject(gone);
    },
  });
  await scene.within(1_000, tab.client.start());
  await scene.pass(3_600_000);
  assert.equal(tab.client.state.get().phase, 'refused');
  assert.equal(asked, 1);
});

void test('one tab leads; the others see, send and read through it', async () => {
  const scene = new Scene('ann', 'bob');
  const tabs = new VirtualTabs(scene.server.clock);
  const data = new MemoryData();
  const store = () => memoryStore({ data, durable: true });
  const one = await scene.started('bob', { store: store() }, tabs);
  const two = await scene.started('bob', { store: store() }, tabs);
  assert.deepEqual([one, two].map((tab) => tab.client.state.get().leader), [true, false]);
  scene.says('ann', 'hello');
  await scene.until(() => two.client.chats.get()[0]?.prefix === 1);
  const { items } = two.client.chat('team').timeline();
  const sent = await scene.within(1_000, two.client.chat('team').send({ content: 'hi' }));
  assert.equal((await scene.within(5_000, sent.confirmed())).sequence, 2);
  two.client.chat('team').shown(1);
  await scene.until(() => scene.state('bob').read >= 1 && one.client.unread.get().total === 0);
  await scene.until(() => texts(items.get()).join() === 'hello,hi sent');
  one.end();
  one.place.link.cut();
  await scene.until(() => two.client.state.get().leader && two.client.state.get().phase === 'live');
});

void test('a leader that is frozen is replaced within ten seconds', async () => {
  const scene = new Scene('ann', 'bob');
  const tabs = new VirtualTabs(scene.server.clock);
  const data = new MemoryData();
  const store = () => memoryStore({ data, durable: true });
  let frozen = false;
  const gate = (run: () => void) => { if (!frozen) run(); };
  const place = scene.server.place({ gate });
  const first = createClient({
    url: scene.server.url, user: 'bob', getToken: scene.server.getToken('bob'), store: store(),
    platform: place.platform, tabs: tabs.tab(gate).tabs,
  });
  await scene.within(5_000, first.start());
  await scene.until(() => first.state.get().phase === 'live');
  const { client: other } = await scene.started('bob', { store: store() }, tabs);
  assert.equal(first.state.get().leader, true);
  frozen = true;
  await scene.until(() => other.state.get().leader, 10_000);
  scene.says('ann', 'hello');
  await scene.until(() => other.chats.get()[0]?.prefix === 1);
});

void test('a new leader that is slow to begin is not taken for a frozen one', async () => {
  const scene = new Scene('ann', 'bob');
  const tabs = new VirtualTabs(scene.server.clock);
  const data = new MemoryData();
  let terms = 0;
  const slow = () => {
    const store = memoryStore({ data, durable: true });
    const lead = store.lead.bind(store);
    return Object.assign(store, { async lead() {
      terms++;
      await scene.server.clock.sleep(5_000);
      return lead();
    } });
  };
  let frozen = false;
  const gate = (run: () => void) => { if (!frozen) run(); };
  const first = createClient({
    url: scene.server.url, user: 'bob', getToken: scene.server.getToken('bob'),
    store: memoryStore({ data, durable: true }), platform: scene.server.place({ gate }).platform,
    tabs: tabs.tab(gate).tabs,
  });
  await scene.within(5_000, first.start());
  const others: Client[] = [];
  for (let i = 0; i < 5; i++) {
    others.push((await scene.started('bob', { store: slow() }, tabs)).client);
    await scene.pass(100);
  }
  frozen = true;
  await scene.until(() => others.some((client) => client.state.get().leader), 20_000);
  await scene.pass(20_000);
  assert.equal(terms, 1);
});

void test('a restored server: every tab is told how much is lost, once', async () => {
  const scene = new Scene('ann', 'bob');
  const tabs = new VirtualTabs(scene.server.clock);
  const data = new MemoryData();
  const store = () => memoryStore({ data, durable: true });
  scene.says('ann', 'kept');
  const backup = scene.server.backup();
  for (const text of ['two', 'three', 'four']) scene.says('ann', text);
  const all = [await scene.started('bob', { store: store() }, tabs),
    await scene.started('bob', { store: store() }, tabs)].map(({ client }) => client);
  const told: Restored[][] = all.map(() => []);
  all.forEach((client, i) => { client.on('restored', (event) => told[i]?.push(event)); });
  scene.server.restore(backup);
  scene.says('ann', 'another two');
  await scene.until(() => told.every(({ length }) => length > 0));
  await scene.pass(30_000);
  const lost = [{ chat_id: 'team', lost: 3 }];
  assert.deepEqual(told, [lost, lost]);
  await scene.until(() => all.every(({ chats }) => chats.get()[0]?.prefix === 2));
});

void test('a sign-out empties all tabs', async () => {
  const scene = new Scene('ann', 'bob');
  const tabs = new VirtualTabs(scene.server.clock);
  const data = new MemoryData();
  const store = () => memoryStore({ data, durable: true });
  const one = await scene.started('bob', { store: store() }, tabs);
  const two = await scene.started('bob', { store: store() }, tabs);
  two.place.link.setOffline(true);
  one.place.link.setOffline(true);
  await scene.within(1_000, two.client.chat('team').send({ content: 'hi' }));
  await assert.rejects(scene.within(5_000, two.client.signOut()), (e) => codeOf(e) === 'UNSENT');
  await scene.pass(1_000);
  assert.equal(two.client.chats.get().length, 1);
  await scene.within(5_000, two.client.signOut({ unsent: 'discard' }));
  await scene.until(() => [one, two].every((tab) => tab.client.state.get().phase === 'signed-out'));
  assert.deepEqual([one, two].map((tab) => tab.client.chats.get().length), [0, 0]);
});

void test('a sign-out notices a send that waits for its turn', async () => {
  const scene = new Scene('ann', 'bob');
  const store = memoryStore({ durable: true });
  scene.says('ann', 'one');
  const { client, place } = await scene.started('bob', { store });
  await scene.until(() => client.chats.get()[0]?.prefix === 1);
  place.link.setOffline(true);
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => { open = resolve; });
  const markRead = store.markRead.bind(store);
  store.markRead = async (chat, through) => {
    await gate;
    return markRead(chat, through);
  };
  client.chat('team').shown(1);
  const sent = client.chat('team').send({ content: 'hi' });
  const refused = assert.rejects(scene.within(5_000, client.signOut()), { code: 'UNSENT' });
  await scene.pass(1_000);
  open();
  await refused;
  await scene.within(1_000, sent);
  await scene.within(5_000, client.signOut({ unsent: 'discard' }));
});

void test('the same objects until something changes', async () => {
  const scene = new Scene('ann', 'bob');
  const { client } = await scene.started('bob');
  scene.says('ann', 'one');
  scene.says('ann', 'two');
  const { items } = client.chat('team').timeline();
  await scene.until(() => items.get().length === 2);
  await scene.pass(10_000);
  const [before, first, chats] = [items.get(), items.get()[0], client.chats.get()];
  await scene.pass(60_000);
  assert.equal(items.get(), before);
  assert.equal(client.chats.get(), chats);
  scene.says('ann', 'three');
  await scene.until(() => items.get().length === 3);
  assert.equal(items.get()[0], first);
});

void test('a timeline that begins anew has a page, and older messages', async () => {
  const scene = new Scene('ann', 'bob');
  for (const text of ['one', 'two', 'three']) scene.says('ann', text);
  const { client, place } = await scene.started('bob');
  const timeline = client.chat('team').timeline();
  const { items } = timeline;
  await scene.until(() => items.get().length === 3);
  assert.equal(await scene.within(5_000, timeline.older()), false);
  place.link.setOffline(true);
  for (let n = 4; n <= 700; n++) scene.says('ann', String(n));
  // Another device has them. So this one skips them, when its session has ended.
  scene.call('bob', 'POST', '/acks', {
    chats: [{ chat_id: 'team', last_acked_sequence: 700, last_read_sequence: 700 }],
  });
  await scene.pass(90_000);
  place.link.setOffline(false);
  await scene.until(() => items.get().at(-1)?.content === '700', 120_000);
  assert.ok(items.get().length < 700, 'it has only a page');
  let more = true;
  for (let page = 0; more && page < 50; page++) more = await scene.within(5_000, timeline.older());
  assert.equal(more, false);
  assert.deepEqual(items.get().map(({ sequence }) => sequence),
    Array.from({ length: 700 }, (_, n) => n + 1));
});
