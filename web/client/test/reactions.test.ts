// Reactions and pins, in the sight of an application. The server is a fake.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { codeOf, memoryStore, type Item, type Refused } from '../src/index.js';
import { MemoryData } from '../src/store/memory.js';
import type { Fault } from '../src/testing/index.js';
import { Dice } from '../src/testing/random.js';
import { reactionsTo } from '../src/testing/server/annotations.js';
import type { Message } from '../src/wire.gen.js';
import { Scene } from './clients.js';

/** What a timeline shows: `hello 👍2*` is a message with two thumbs, one of which is the user's. */
const shown = (items: readonly Item[]): string[] => items.map(({ content, kind, reactions = [] }) =>
  [content ?? kind, ...reactions.map(({ emoji, count, mine }) =>
    `${emoji}${count}${mine ? '*' : ''}`)].join(' '));

let requests = 0;

/** Lets a user react to a message, or undo what they did, from another device. */
function relates(
  scene: Scene, user: string, kind: string, sequence: number, emoji?: string,
): Message {
  return scene.call(user, 'POST', '/chats/team/messages', {
    client_message_id: `elsewhere${++requests}`, kind,
    relation: { sequence, ...emoji !== undefined && { emoji } },
  }) as Message;
}

void test('a reaction is shown at once, counts for all, and is taken back', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: ann, place } = await scene.started('ann');
  const { client: bob } = await scene.started('bob');
  const [mine, theirs] = [ann, bob].map((one) => one.chat('team').timeline().items);
  assert.ok(mine && theirs);
  scene.says('bob', 'hello');
  await scene.until(() => [mine, theirs].every((one) => one.get().length === 1));
  place.link.setOffline(true);
  const sent = await scene.within(1_000, ann.chat('team').react(1, '👍'));
  await scene.until(() => shown(mine.get())[0] === 'hello 👍1*');
  assert.equal(mine.get()[0]?.reactions?.[0]?.own, null);
  place.link.setOffline(false);
  const stored = await scene.within(60_000, sent.confirmed());
  assert.deepEqual([stored.kind, stored.content, stored.relation],
    ['react', '', { sequence: 1, sequences: null, emoji: '👍', target: null }]);
  await scene.until(() => shown(theirs.get())[0] === 'hello 👍1');
  await scene.until(() => mine.get()[0]?.reactions?.[0]?.own === stored.sequence);
  // It counts for nothing else.
  assert.deepEqual(bob.chats.get().map(({ unread, prefix, last }) =>
    [unread, prefix, last?.content]), [[0, 2, 'hello']]);
  await scene.within(1_000, ann.chat('team').unreact(stored.sequence));
  await scene.until(() => [mine, theirs].every((one) => shown(one.get())[0] === 'hello'));
  assert.deepEqual(scene.server.data.chat('team').messages.map(({ kind }) => kind),
    ['message', 'react', 'redact']);
});

void test('a reaction that is refused leaves the outbox, and the page is told', async () => {
  const scene = new Scene('ann', 'bob');
  const { client } = await scene.started('ann');
  const { items } = client.chat('team').timeline();
  scene.says('bob', 'hello');
  await scene.until(() => items.get().length === 1);
  const told: Refused[] = [];
  client.on('refused', (event) => { told.push(event); });
  relates(scene, 'ann', 'react', 1, '👍');
  const sent = await scene.within(1_000, client.chat('team').react(1, '👍'));
  assert.equal(await scene.within(20_000, sent.confirmed()).catch(codeOf), 'CONFLICT');
  await scene.until(() => client.unsent.get() === 0 && told.length === 1);
  assert.deepEqual(told.map(({ kind, relation, problem }) => [kind, relation, problem.code]),
    [['react', { sequence: 1, emoji: '👍' }, 'CONFLICT']]);
  await scene.until(() => shown(items.get()).join() === 'hello 👍1*');
});

void test('what is no emoji, and no message, is not sent', async () => {
  const scene = new Scene('ann', 'bob');
  const chat = (await scene.started('ann')).client.chat('team');
  const none = undefined as unknown as string;
  for (const emoji of ['', ' ', '👍 ', '\n', 'a\u0000', '\ud83d', '👍'.repeat(17), none, '\u200b',
    '\u202e', '\u200d', '\ufe0f\ufe0e', '\u3164', '\u2800']) {
    assert.equal(await chat.react(1, emoji).then(() => 'sent', codeOf), 'INVALID', emoji);
  }
  for (const wrong of [chat.react(0, '👍'), chat.unreact(NaN), chat.pin(-1), chat.unpin(1.5)]) {
    assert.equal(await wrong.catch(codeOf), 'INVALID');
  }
  for (const emoji of [
    '👍', '👩‍👩‍👧‍👦', '❤️', ':+1:', '👍'.repeat(16), '+1', '1\ufe0f\u20e3', '🇺🇦', '👍🏽',
  ]) {
    await scene.within(1_000, chat.react(1, emoji));
  }
});

void test('reactions outlive a reload, without a connection', async () => {
  const scene = new Scene('ann', 'bob');
  const data = new MemoryData();
  const first = await scene.started('bob', { store: memoryStore({ data, durable: true }) });
  scene.says('ann', 'hello');
  relates(scene, 'ann', 'react', 1, '🎉');
  const undone = relates(scene, 'ann', 'react', 1, '👍');
  relates(scene, 'ann', 'redact', undone.sequence);
  relates(scene, 'bob', 'react', 1, '🎉');
  await scene.until(() => first.client.chats.get()[0]?.prefix === 5);
  await scene.within(10_000, first.client.stop());
  const second = scene.tab('bob', { store: memoryStore({ data, durable: true }) });
  second.place.link.setOffline(true);
  await scene.within(5_000, second.client.start());
  const { items } = second.client.chat('team').timeline();
  await scene.until(() => shown(items.get()).join() === 'hello 🎉2*');
});

void test('the server counts below the base, and the stream goes on from there', async () => {
  const scene = new Scene('ann', 'bob', 'cid');
  for (let i = 1; i <= 3; i++) scene.says('ann', `text ${i}`);
  const old = relates(scene, 'ann', 'react', 1, '👍');
  const own = relates(scene, 'bob', 'react', 1, '👍');
  scene.call('bob', 'PATCH', '/chats/team/delivery-state', { last_read_sequence: 5 });
  scene.call('bob', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: 5 }] });
  const { client } = await scene.started('bob');
  const { items } = client.chat('team').timeline();
  await scene.until(() => shown(items.get()).join() === 'text 1 👍2*,text 2,text 3');
  assert.equal(items.get()[0]?.reactions?.[0]?.own, own.sequence);
  relates(scene, 'cid', 'react', 1, '👍');
  relates(scene, 'cid', 'react', 2, '🎉');
  await scene.until(() => shown(items.get()).join() === 'text 1 👍3*,text 2 🎉1,text 3');
  relates(scene, 'ann', 'redact', old.sequence);
  await scene.within(1_000, client.chat('team').unreact(own.sequence));
  await scene.until(() => shown(items.get()).join() === 'text 1 👍1,text 2 🎉1,text 3');
});

void test('what happened while the user was no member is asked for', async () => {
  const scene = new Scene('ann', 'bob');
  const tab = await scene.started('bob');
  const timeline = tab.client.chat('team').timeline();
  const { items } = timeline;
  scene.says('ann', 'hello');
  await scene.until(() => items.get().length === 1);
  scene.call('ann', 'DELETE', '/chats/team/members/bob');
  const hidden = relates(scene, 'ann', 'react', 1, '👍');
  scene.call('ann', 'POST', '/chats/team/members', { user_ids: ['bob'] });
  scene.says('ann', 'again');
  // The timeline begins anew, and loads what the store has no more.
  await scene.until(() => shown(items.get()).join() === 'hello 👍1,gap,again');
  // Bob does not see which reaction this takes back.
  relates(scene, 'ann', 'redact', hidden.sequence);
  await scene.until(() => shown(items.get()).join() === 'hello,gap,again', 60_000);
});

/** A scene in which Bob has received and read all, and has nothing of it on disk. */
async function withHistory(scene: Scene) {
  const read = scene.server.data.chat('team').messages.length;
  scene.call('bob', 'PATCH', '/chats/team/delivery-state', { last_read_sequence: read });
  scene.call('bob', 'POST', '/acks', { chats: [{ chat_id: 'team', last_acked_sequence: read }] });
  const { client, place } = await scene.started('bob');
  const pages = { asked: 0, fault: undefined as Fault | undefined };
  place.link.onRequest = ({ method, url }) => {
    if (method !== 'GET' || !url.pathname.endsWith('/messages')) return undefined;
    pages.asked++;
    return pages.fault;
  };
  return { chat: client.chat('team'), pages };
}

void test('without an answer, the client does not ask for all that a gap hides', async () => {
  const scene = new Scene('ann', 'bob');
  for (let i = 1; i <= 9; i++) scene.says('ann', `text ${i}`);
  const { chat, pages } = await withHistory(scene);
  const timeline = chat.timeline({ page: 4 });
  const { items } = timeline;
  await scene.until(() => items.get().length === 4);
  for (let i = 0; i < 2; i++) await scene.within(5_000, timeline.older());
  assert.equal(items.get().length, 9);
  pages.fault = 'drop';
  scene.call('ann', 'DELETE', '/chats/team/members/bob');
  relates(scene, 'ann', 'react', 1, '👍');
  scene.call('ann', 'POST', '/chats/team/members', { user_ids: ['bob'] });
  scene.says('ann', 'again');
  await scene.until(() => items.get().at(-1)?.content === 'again');
  pages.asked = 0;
  await scene.pass(60_000);
  assert.ok(pages.asked >= 2 && pages.asked <= 13, `it asks ${pages.asked} times in a minute`);
  Object.assign(pages, { asked: 0, fault: undefined });
  await scene.until(() => shown(items.get())[0] === 'text 1 👍1', 60_000);
  // Each answer has four messages.
  assert.ok(pages.asked <= 3, `it asks ${pages.asked} times`);
});

void test('what is new is shown while older messages are looked for', async () => {
  const scene = new Scene('ann', 'bob');
  scene.says('ann', 'first');
  for (let i = 0; i < 12; i++) scene.says('ann', 'data', { kind: 'control' });
  const { chat, pages } = await withHistory(scene);
  pages.fault = 'slow';
  const { items } = chat.timeline({ page: 2 });
  await scene.until(() => pages.asked > 0);
  scene.says('ann', 'now');
  await scene.until(() => items.get().length > 0);
  assert.deepEqual(shown(items.get()), ['now']);
  await scene.until(() => shown(items.get()).join() === 'first,now', 90_000);
});

void test('a closed timeline asks for nothing', async () => {
  const scene = new Scene('ann', 'bob');
  scene.says('ann', 'first');
  for (let i = 0; i < 12; i++) scene.says('ann', 'data', { kind: 'control' });
  const { chat, pages } = await withHistory(scene);
  const timeline = chat.timeline({ page: 2 });
  await scene.until(() => pages.asked > 1);
  timeline.close();
  const { asked } = pages;
  await scene.pass(60_000);
  assert.equal(pages.asked, asked);
});

void test('more reactions than a page has hide no older message', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: ann } = await scene.started('ann');
  scene.says('ann', 'first');
  scene.says('ann', 'second');
  for (let i = 0; i < 19; i++) relates(scene, 'bob', 'react', 2, `:${i}:`);
  await scene.until(() => ann.chats.get()[0]?.prefix === 21);
  const timeline = ann.chat('team').timeline({ page: 4 });
  await scene.until(() => timeline.items.get().length > 0);
  assert.equal(timeline.items.get().at(-1)?.reactions?.length, 19);
  await scene.within(5_000, timeline.older());
  assert.deepEqual(timeline.items.get().map(({ content }) => content), ['first', 'second']);
});

void test('owners pin messages, and everybody has the list', async () => {
  const scene = new Scene('ann', 'bob');
  const [ann, bob] = [await scene.started('ann'), await scene.started('bob')]
    .map(({ client }) => client.chat('team'));
  assert.ok(ann && bob);
  scene.says('bob', 'one');
  scene.says('ann', 'two');
  for (const sequence of [1, 2]) {
    const sent = await scene.within(1_000, ann.pin(sequence));
    await scene.within(20_000, sent.confirmed());
  }
  const pins = await scene.within(5_000, bob.pins());
  assert.deepEqual(pins.map((pin) => [pin.pin_sequence, pin.pinned_by, pin.message?.content]),
    [[4, 'ann', 'two'], [3, 'ann', 'one']]);
  for (const wrong of [bob.pin(1), bob.unpin(4)]) {
    const sent = await scene.within(1_000, wrong);
    assert.equal(await scene.within(20_000, sent.confirmed()).catch(codeOf), 'DENIED');
  }
  const again = await scene.within(1_000, ann.pin(1));
  assert.equal(await scene.within(20_000, again.confirmed()).catch(codeOf), 'CONFLICT');
  const undone = await scene.within(1_000, ann.unpin(4));
  await scene.within(20_000, undone.confirmed());
  assert.deepEqual((await scene.within(5_000, bob.pins())).map(({ message }) => message?.content),
    ['one']);
  assert.deepEqual(scene.server.data.chat('team').messages.at(0)?.revision, null);
});

void test('who may pin undoes the pins of messages that they do not see, too', async () => {
  const scene = new Scene('ann', 'cid');
  const ann = (path: string, body: object, method = 'POST'): unknown =>
    scene.call('ann', method, `/chats${path}`, body);
  ann('', { type: 'group', chat_id: 'later', member_ids: ['ann'], history: 'since_join' });
  ann('/later/messages', { client_message_id: 'one', content: 'before' });
  ann('/later/messages', { client_message_id: 'pin', kind: 'pin', relation: { sequence: 1 } });
  ann('/later/members', { user_ids: ['cid'] });
  const cid = (await scene.started('cid')).client.chat('later');
  assert.deepEqual(await scene.within(5_000, cid.pins()), []);
  const early = await scene.within(1_000, cid.unpin(2));
  assert.equal(await scene.within(20_000, early.confirmed()).catch(codeOf), 'NOT_FOUND');
  ann('/later/members/cid', { role: 'admin' }, 'PATCH');
  const pins = await scene.within(5_000, cid.pins());
  assert.deepEqual(pins.map((pin) => [pin.pin_sequence, pin.message]), [[2, null]]);
  const undone = await scene.within(1_000, cid.unpin(2));
  const { relation } = await scene.within(20_000, undone.confirmed());
  assert.deepEqual(relation, { sequence: 2, sequences: null, emoji: null, target: null });
  assert.deepEqual(await scene.within(5_000, cid.pins()), []);
});

/**
 * One random history, in which Bob and Cid follow a chat, and Bob comes and goes. Returns how many
 * messages have reactions in the end.
 */
async function history(seed: number): Promise<number> {
  const dice = new Dice(seed, 3);
  const scene = new Scene({ seed }, 'ann', 'bob', 'cid');
  const { server } = scene;
  const data = new MemoryData();
  const open = (user: string) => scene.started(user, {
    ...user === 'bob' && { store: memoryStore({ data, durable: true }) },
  });
  let [bob, cid] = [await open('bob'), await open('cid')];
  const look = () => [bob, cid].map(({ client }) => client.chat('team').timeline({ page: 5 }));
  let timelines = look();
  const { messages } = server.data.chat('team');
  for (let step = 0; step < 60; step++) {
    const user = dice.pick(['ann', 'bob', 'cid']);
    const any = 1 + dice.roll(messages.length + 1);
    const send = (kind: string, more: object) => server.call(user, 'POST', '/chats/team/messages', {
      client_message_id: `r${step}`, kind, seen_sequence: 0, ...more,
    });
    const roll = dice.roll(20);
    if (roll < 4) send('message', { content: `text ${step}` });
    else if (roll < 12) {
      send('react', { relation: { sequence: any, emoji: dice.pick(['👍', '🎉']) } });
    } else if (roll < 15) send('redact', { relation: { sequence: any } });
    else if (roll < 17) {
      const own = timelines[0]?.items.get().flatMap(({ reactions = [] }) =>
        reactions.flatMap((one) => one.own ?? [])) ?? [];
      const chat = bob.client.chat('team');
      await scene.within(5_000, own.length > 0 ? chat.unreact(dice.pick(own))
        : chat.react(any, '👍'));
    } else if (roll === 17) {
      if (dice.oneIn(2)) server.call('ann', 'DELETE', '/chats/team/members/bob');
      else server.call('ann', 'POST', '/chats/team/members', { user_ids: ['bob'] });
    } else if (roll === 18) {
      for (const timeline of timelines) await scene.within(5_000, timeline.older());
    } else {
      await scene.within(10_000, bob.client.stop());
      if (dice.oneIn(2)) await scene.within(5_000, cid.client.stop());
      [bob, cid] = [await open('bob'), await open('cid')];
      timelines = look();
    }
    if (dice.oneIn(2)) await scene.pass(dice.roll(3_000));
  }
  server.call('ann', 'POST', '/chats/team/members', { user_ids: ['bob'] });
  scene.says('ann', 'the end');
  const chat = server.data.chat('team');
  const text = (all: { emoji: string; count: number; own: number | null }[]): string =>
    all.map(({ emoji, count, own }) => `${emoji} ${count} ${own ?? '-'}`).sort().join();
  const wrong = (): string[] => timelines.flatMap((timeline, i) => {
    const user = ['bob', 'cid'][i] ?? '';
    const items = timeline.items.get();
    if (items.at(-1)?.content !== 'the end') return [`${user} is not at the end`];
    return items.flatMap(({ message, reactions = [], sequence = 0 }) => {
      const there = chat.messages[sequence - 1];
      if (!message || !there) return [];
      const want = text(reactionsTo(chat, there, user).map((one) =>
        ({ ...one, own: one.own_sequence })));
      const got = text([...reactions]);
      return got === want ? [] : [`seed ${seed}: ${user} sees ${got} on ${sequence}, not ${want}`];
    });
  });
  await server.clock.runUntil(() => wrong().length === 0, 120_000);
  assert.deepEqual(wrong(), []);
  for (const { client } of [bob, cid]) await scene.within(10_000, client.stop());
  return timelines.flatMap(({ items }) => items.get()).filter(({ reactions }) => reactions).length;
}

void test('whatever happens, a timeline shows what the server counts', async () => {
  let seen = 0;
  for (let seed = 1; seed <= 10; seed++) seen += await history(seed);
  assert.ok(seen > 10, `there are reactions to ${seen} messages`);
});
