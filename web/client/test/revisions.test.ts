// Messages that are edited and redacted, in the sight of an application. The server is a fake.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { codeOf, memoryStore, type Item, type Refused } from '../src/index.js';
import { MemoryData } from '../src/store/memory.js';
import { VirtualTabs } from '../src/testing/index.js';
import type { Message } from '../src/wire.gen.js';
import { Scene, type Tab } from './clients.js';

const texts = (items: readonly Item[]): string[] =>
  items.map(({ content, message, revising }) =>
    [content || message?.revision?.kind, revising].join(' ').trim());

/** A text that is nowhere else. */
let canaries = 0;
const canary = (): string => `canary ${++canaries} ${Math.random()}`;

function change(
  scene: Scene, user: string, sequence: number, content?: string, more: object = {},
): Message {
  const kind = content === undefined ? 'redact' : 'edit';
  return scene.call(user, 'POST', '/chats/team/messages', {
    client_message_id: `change${++canaries}`, kind, relation: { sequence }, seen_sequence: 0,
    ...content !== undefined && { content }, ...more,
  }) as Message;
}

/** All that is stored, and all that the page has. */
async function everything({ client }: Tab, data: MemoryData): Promise<string> {
  const stored = [];
  for (const user of data.users.values()) {
    stored.push(await user.transact(async (t) =>
      [await t.chats(-1), await t.entries('team', 0, 999), await t.outbox()]));
  }
  return JSON.stringify([stored, client.chats.get()]);
}

void test('an edit is shown at once as one that waits, and to all once it is stored', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: ann, place } = await scene.started('ann');
  const { client: bob } = await scene.started('bob');
  const [mine, theirs] = [ann, bob].map((one) => one.chat('team').timeline().items);
  scene.says('ann', 'one');
  await scene.until(() => [mine, theirs].every((one) => one?.get().length === 1));
  const key = mine?.get()[0]?.key;
  place.link.setOffline(true);
  const sent = await scene.within(1_000, ann.chat('team').edit(1, { content: 'two' }));
  await scene.until(() => mine?.get()[0]?.revising === 'edit');
  assert.deepEqual(texts(mine?.get() ?? []), ['two edit']);
  assert.equal(ann.unsent.get(), 1);
  await scene.pass(5_000);
  assert.deepEqual(texts(theirs?.get() ?? []), ['one']);
  place.link.setOffline(false);
  const stored = await scene.within(60_000, sent.confirmed());
  assert.deepEqual([stored.kind, stored.content, stored.relation],
    ['edit', '', { sequence: 1, sequences: null, emoji: null, target: null }]);
  await scene.until(() => [mine, theirs].every((one) => texts(one?.get() ?? [])[0] === 'two'));
  assert.deepEqual(mine?.get().map((one) => [one.key, one.message?.revision?.by]), [[key, 'ann']]);
  assert.equal(ann.unsent.get(), 0);
  // It counts for nothing.
  assert.deepEqual(bob.chats.get().map((one) => [one.unread, one.prefix, one.last?.content]),
    [[1, 2, 'two']]);
});

void test('nothing is left of what was redacted', async () => {
  const scene = new Scene('ann', 'bob');
  const data = new MemoryData();
  const tab = await scene.started('bob', { store: memoryStore({ data, durable: true }) });
  const ann = await scene.started('ann');
  const { items } = tab.client.chat('team').timeline();
  const [first, second] = [canary(), canary()];
  await scene.within(1_000, ann.client.chat('team').send({ content: first }));
  await scene.until(() => items.get().length === 1);
  await scene.within(1_000, ann.client.chat('team').edit(1, { content: second }));
  await scene.until(() => items.get()[0]?.content === second);
  await scene.within(1_000, ann.client.chat('team').redact(1));
  await scene.until(() => items.get()[0]?.message?.revision?.kind === 'redact');
  await scene.pass(10_000);
  const left = JSON.stringify(items.get()) + await everything(tab, data);
  assert.ok(!left.includes(first) && !left.includes(second), left);
  assert.deepEqual(tab.client.chats.get().map((one) => [one.unread, one.last?.sequence]), [[1, 1]]);
});

void test('a change that waits outlives a reload, and is stored once', async () => {
  const scene = new Scene('ann', 'bob');
  const data = new MemoryData();
  const store = () => memoryStore({ data, durable: true });
  scene.says('ann', 'one');
  const first = await scene.started('ann', { store: store() });
  await scene.until(() => first.client.chats.get()[0]?.prefix === 1);
  first.place.link.onRequest = ({ method, url }) =>
    method === 'POST' && url.pathname.endsWith('/messages') ? 'lose' : undefined;
  await scene.within(1_000, first.client.chat('team').edit(1, { content: 'two' }));
  await scene.pass(8_000);
  await scene.within(10_000, first.client.stop());
  const second = await scene.started('ann', { store: store() });
  await scene.until(() => second.client.unsent.get() === 0);
  const { messages } = scene.server.data.chat('team');
  assert.deepEqual(messages.map((one) => [one.kind, one.content]),
    [['message', 'two'], ['edit', '']]);
});

void test('a change that is refused leaves the outbox, and every tab is told', async () => {
  const scene = new Scene('ann', 'bob');
  const tabs = new VirtualTabs(scene.server.clock);
  const data = new MemoryData();
  const store = () => memoryStore({ data, durable: true });
  scene.says('ann', 'one');
  scene.says('bob', 'two');
  change(scene, 'bob', 2);
  const { client: leader } = await scene.started('bob', { store: store() }, tabs);
  const { client: other } = await scene.started('bob', { store: store() }, tabs);
  const told: [string, Refused][] = [];
  leader.on('refused', (event) => { told.push(['leader', event]); });
  other.on('refused', (event) => { told.push(['other', event]); });
  for (const [sequence, code] of [[1, 'DENIED'], [2, 'CONFLICT'], [9, 'NOT_FOUND']] as const) {
    const sent = await scene.within(1_000, other.chat('team').edit(sequence, { content: 'new' }));
    const why = await scene.within(20_000, sent.confirmed()).catch(codeOf);
    assert.equal(why, code);
  }
  await scene.until(() => told.length === 6);
  assert.deepEqual(new Set(told.map(([tab, { kind, relation, content, problem }]) =>
    `${tab} ${kind} ${relation?.sequence ?? 0} ${content ?? ''} ${problem.code}`)), new Set([
    'leader edit 1 new DENIED', 'leader edit 2 new CONFLICT', 'leader edit 9 new NOT_FOUND',
    'other edit 1 new DENIED', 'other edit 2 new CONFLICT', 'other edit 9 new NOT_FOUND',
  ]));
  await scene.until(() => leader.unsent.get() + other.unsent.get() === 0);
  assert.equal(scene.server.data.chat('team').messages.length, 3);
});

void test('a change is of a message, and an edit says something', async () => {
  const scene = new Scene('ann', 'bob');
  const chat = (await scene.started('ann')).client.chat('team');
  const none = undefined as unknown as number;
  for (const wrong of [
    chat.edit(1, {}), chat.edit(0, { content: 'a' }), chat.redact(NaN), chat.redact(none),
    chat.redact(1.5), chat.edit(none, { content: 'a' }),
  ]) {
    assert.equal(await wrong.catch(codeOf), 'INVALID');
  }
});

void test('a change that waits for a restored server changes no other message', async () => {
  const scene = new Scene('ann', 'bob');
  const backup = scene.server.backup();
  scene.says('ann', 'one');
  const { client, place } = await scene.started('ann');
  await scene.until(() => client.chats.get()[0]?.prefix === 1);
  place.link.setOffline(true);
  const sent = await scene.within(1_000, client.chat('team').edit(1, { content: 'two' }));
  scene.server.restore(backup);
  scene.says('ann', 'another');
  place.link.setOffline(false);
  assert.equal(await scene.within(60_000, sent.confirmed()).catch(codeOf), 'DISCARDED');
  await scene.pass(10_000);
  assert.deepEqual(scene.server.data.chat('team').messages.map((one) => one.content), ['another']);
});

void test('after a restore a message is what it was before its change', async () => {
  const scene = new Scene('ann', 'bob');
  scene.says('ann', 'one');
  scene.says('ann', 'two');
  const backup = scene.server.backup();
  change(scene, 'ann', 1, 'changed');
  const { client } = await scene.started('bob');
  const { items } = client.chat('team').timeline();
  await scene.until(() => texts(items.get()).join() === 'changed,two');
  scene.server.restore(backup);
  await scene.until(() => texts(items.get()).join() === 'one,two', 60_000);
});

void test('messages that only the page has are changed, too', async () => {
  const scene = new Scene('ann', 'bob');
  for (let i = 1; i <= 5; i++) scene.says('ann', `text ${i}`);
  scene.call('bob', 'PATCH', '/chats/team/delivery-state', { last_read_sequence: 5 });
  scene.call('bob', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 5 }] });
  const data = new MemoryData();
  const tab = await scene.started('bob', { store: memoryStore({ data, durable: true }) });
  const { items } = tab.client.chat('team').timeline();
  await scene.until(() => items.get().length === 5);
  assert.ok(!(await everything(tab, data)).includes('text 1'));
  // The first answer is lost.
  let lost = 0;
  tab.place.link.onRequest = ({ method, url }) => {
    const page = method === 'GET' && url.pathname.endsWith('/messages');
    return page && lost++ === 0 ? 'drop' : undefined;
  };
  change(scene, 'ann', 1, 'new');
  change(scene, 'ann', 2);
  await scene.until(() => texts(items.get()).join() === 'new,redact,text 3,text 4,text 5');
  assert.ok(lost > 2);
});

void test('without an answer a redacted text is hidden, and asked for in turn', async () => {
  const scene = new Scene('ann', 'bob');
  for (let i = 1; i <= 5; i++) scene.says('ann', `text ${i}`);
  scene.call('bob', 'PATCH', '/chats/team/delivery-state', { last_read_sequence: 5 });
  scene.call('bob', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 5 }] });
  const store = memoryStore({ data: new MemoryData(), durable: true });
  const tab = await scene.started('bob', { store });
  const { items } = tab.client.chat('team').timeline();
  await scene.until(() => items.get().length === 5);
  let asked = 0;
  tab.place.link.onRequest = ({ method, url }) => {
    if (method !== 'GET' || !url.pathname.endsWith('/messages')) return undefined;
    asked++;
    return 'drop';
  };
  for (const sequence of [1, 2, 3]) change(scene, 'ann', sequence);
  await scene.until(() => texts(items.get()).join() === ',,,text 4,text 5');
  await scene.pass(120_000);
  assert.ok(asked >= 3 && asked <= 3 * 24, `it asks ${asked} times in two minutes`);
  scene.says('ann', 'text 9');
  await scene.until(() => items.get().at(-1)?.content === 'text 9');
  tab.place.link.onRequest = () => undefined;
  await scene.until(() => texts(items.get()).join() === 'redact,redact,redact,text 4,text 5,text 9',
    60_000);
});

void test('a message that only the page has is asked for after a gap', async () => {
  const scene = new Scene('ann', 'bob');
  for (let i = 1; i <= 3; i++) scene.says('ann', `text ${i}`);
  scene.call('bob', 'PATCH', '/chats/team/delivery-state', { last_read_sequence: 3 });
  scene.call('bob', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 3 }] });
  const { items } = (await scene.started('bob')).client.chat('team').timeline();
  await scene.until(() => items.get().length === 3);
  scene.call('ann', 'DELETE', '/chats/team/members/bob');
  change(scene, 'ann', 1, 'new');
  change(scene, 'ann', 2);
  scene.call('ann', 'POST', '/chats/team/members', { user_ids: ['bob'] });
  scene.says('ann', 'again');
  await scene.until(() => texts(items.get()).join() === 'new,redact,text 3,,again');
});

void test('who comes back to a chat keeps no text that was redacted meanwhile', async () => {
  const scene = new Scene('ann', 'bob');
  const data = new MemoryData();
  const tab = await scene.started('bob', { store: memoryStore({ data, durable: true }) });
  const text = canary();
  scene.says('ann', text);
  const { items } = tab.client.chat('team').timeline();
  await scene.until(() => items.get()[0]?.content === text);
  await scene.pass(6_000);
  tab.place.link.setOffline(true);
  scene.call('ann', 'DELETE', '/chats/team/members/bob');
  change(scene, 'ann', 1);
  scene.call('ann', 'POST', '/chats/team/members', { user_ids: ['bob'] });
  scene.says('ann', 'again');
  tab.place.link.setOffline(false);
  await scene.until(() => items.get().at(-1)?.content === 'again', 60_000);
  await scene.pass(10_000);
  const left = JSON.stringify(items.get()) + await everything(tab, data);
  assert.ok(!left.includes(text), left);
});
