// Who is online, on the fake server.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { codeOf, memoryStore, type Client, type Transport } from '../src/index.js';
import { presenceOf, type ChatPresence } from '../src/presence/index.js';
import { VirtualTabs } from '../src/testing/index.js';
import type { Event } from '../src/wire.gen.js';
import { Scene, type Tab } from './clients.js';

/** Who is online, such as `ann bob`, or what else the view says. */
function words(value: ChatPresence | undefined): string {
  if (!value) return 'nothing';
  if (!value.members) return `${String(value.online_count)} online`;
  return value.members.filter((one) => one.online).map((one) => one.user_id).sort().join(' ');
}

/** Follows a chat. `seen` has each value once. */
function follow(client: Client, chat = 'team') {
  const view = presenceOf(client).chat(chat);
  const seen: string[] = [];
  const end = view.subscribe(() => {
    const now = words(view.get());
    if (seen.at(-1) !== now) seen.push(now);
  });
  return { now: () => words(view.get()), seen, end, view };
}

/** Records the looks that reach the server: frames of WebSockets and calls. */
function looksOf({ client, place }: Tab): { all: readonly string[][]; place: Tab['place'] } {
  const all: string[][] = [];
  client.on('frame', ({ dir, text }) => {
    if (dir !== 'out' || !/"type":"look"|\/look /.test(text)) return;
    const { payload, chat_ids: chats } = JSON.parse(text.slice(text.indexOf('{'))) as
      { payload?: { chat_ids: string[] }; chat_ids?: string[] };
    all.push(payload?.chat_ids ?? chats ?? []);
  });
  return { all, place };
}

for (const transport of ['websocket', 'sse', 'longpoll'] satisfies Transport[]) {
  void test(`who comes and goes shows live over ${transport}`, async () => {
    const scene = new Scene('ann', 'bob');
    const tab = await scene.started('ann', { transports: [transport] });
    const looks = looksOf(tab);
    const team = follow(tab.client);
    assert.equal(team.now(), 'nothing');
    await scene.until(() => team.now() === 'ann');
    const { client: bob } = await scene.started('bob');
    await scene.until(() => team.now() === 'ann bob');
    await scene.within(6_000, bob.stop());
    await scene.pass(25_000);
    // A session outlives its connection by a minute, and its user by half a minute.
    assert.equal(team.now(), 'ann bob');
    await scene.until(() => team.now() === 'ann', 120_000);
    assert.deepEqual(team.seen, ['ann', 'ann bob', 'ann']);
    const { length } = looks.all;
    assert.ok(length >= 3 && length <= 5, `${length} looks, one each 30 s`);
  });

  void test(`a connection that is lost is looked over again, by ${transport}`, async () => {
    const scene = new Scene('ann', 'bob');
    const { client, place } = await scene.started('ann', { transports: [transport] });
    const team = follow(client);
    await scene.until(() => team.now() === 'ann');
    place.link.setOffline(true);
    await scene.started('bob');
    await scene.pass(3_000);
    assert.equal(team.now(), 'ann', 'what is known stays for a moment');
    place.link.setOffline(false);
    await scene.until(() => team.now() === 'ann bob', 15_000);
    assert.deepEqual(team.seen, ['ann', 'ann bob']);
  });
}

void test('what the lost answer of a poll had is told again', async () => {
  const scene = new Scene('ann', 'bob');
  const { client, place } = await scene.started('ann', { transports: ['longpoll'] });
  const team = follow(client);
  await scene.until(() => team.now() === 'ann');
  place.link.setOffline(true);
  await scene.started('bob');
  await scene.pass(3_000);
  let polls = 0;
  place.link.onRequest = ({ url }) =>
    url.pathname.endsWith('/poll') && polls++ === 0 ? 'lose' : undefined;
  place.link.setOffline(false);
  client.retryNow();
  await scene.until(() => team.now() === 'ann bob', 20_000);
  assert.ok(polls > 1);
});

void test('without a connection nothing is known for long', async () => {
  const scene = new Scene('ann', 'bob');
  const { client, place } = await scene.started('ann');
  const team = follow(client);
  await scene.until(() => team.now() === 'ann');
  place.link.setOffline(true);
  await scene.pass(15_000);
  assert.equal(team.now(), 'nothing');
  place.link.setOffline(false);
  client.retryNow();
  await scene.until(() => team.now() === 'ann');
  await scene.within(6_000, client.stop());
  assert.equal(team.now(), 'nothing');
  void client.start();
  await scene.until(() => team.now() === 'ann');
});

void test('a chat that nobody follows is given up, and comes back', async () => {
  const scene = new Scene('ann', 'bob');
  const tab = await scene.started('ann');
  const looks = looksOf(tab);
  const events: Event[] = [];
  scene.server.onEvent = (_, event) => { if (event.type === 'presence') events.push(event); };
  const first = follow(tab.client);
  const second = follow(tab.client);
  await scene.until(() => second.now() === 'ann');
  first.end();
  first.end();
  await scene.pass(2_000);
  assert.equal(second.now(), 'ann');
  second.end();
  assert.equal(second.now(), 'nothing');
  await scene.pass(2_000);
  assert.deepEqual(looks.all, [['team'], []]);
  await scene.started('bob');
  await scene.pass(90_000);
  assert.deepEqual(looks.all, [['team'], []]);
  assert.equal(events.length, 1, 'the server says no more');
  const third = follow(tab.client);
  await scene.until(() => third.now() === 'ann bob');
});

void test('a client that follows nobody gets the typing of all chats', async () => {
  const scene = new Scene('ann', 'bob');
  const tab = await scene.started('ann');
  const looks = looksOf(tab);
  presenceOf(tab.client).chat('team');
  const { typing } = tab.client.chat('team');
  const { client: bob } = await scene.started('bob');
  await scene.pass(5_000);
  bob.chat('team').type();
  await scene.until(() => typing.get().length > 0);
  assert.deepEqual(looks.all, []);
});

void test('a chat with a timeline keeps its typing while another is followed', async () => {
  const scene = new Scene('ann', 'bob');
  scene.call('ann', 'POST', '/chats', { type: 'direct', member_ids: ['bob'] });
  const tab = await scene.started('ann');
  const direct = tab.client.chats.get().find(({ chat }) => chat.type === 'direct')?.chat.chat_id;
  assert.ok(direct !== undefined);
  const timeline = tab.client.chat('team').timeline();
  const one = follow(tab.client, direct);
  await scene.until(() => one.now() === 'ann');
  const { client: bob } = await scene.started('bob');
  const { typing } = tab.client.chat('team');
  for (let i = 0; i < 3; i++) {
    bob.chat('team').type();
    await scene.until(() => typing.get().length > 0);
    // Longer than a look lasts, and without a follower, too.
    await scene.pass(80_000);
    one.end();
  }
  timeline.close();
});

void test('a chat that the user has left does not end the looks at others', async () => {
  const scene = new Scene('ann', 'bob');
  scene.call('bob', 'POST', '/chats', { type: 'group', chat_id: 'town', member_ids: ['ann'] });
  const tab = await scene.started('ann');
  const [team, town] = [follow(tab.client), follow(tab.client, 'town')];
  const stranger = follow(tab.client, 'not-mine');
  await scene.until(() => team.now() === 'ann' && town.now() === 'ann');
  scene.call('bob', 'DELETE', '/chats/town/members/ann');
  await scene.until(() => town.now() === 'nothing');
  await scene.started('bob');
  await scene.until(() => team.now() === 'ann bob');
  assert.equal(stranger.now(), 'nothing');
  scene.call('bob', 'POST', '/chats/town/members', { user_ids: ['ann'] });
  await scene.until(() => town.now() === 'ann bob');
});

void test('a member who leaves the chat is not shown any more', async () => {
  const scene = new Scene('ann', 'bob', 'cid');
  const tab = await scene.started('ann');
  const team = follow(tab.client);
  await scene.until(() => team.now() === 'ann');
  scene.call('ann', 'DELETE', '/chats/team/members/cid');
  const users = () => team.view.get()?.members?.map((one) => one.user_id);
  await scene.until(() => users()?.length === 2);
  assert.deepEqual(users(), ['ann', 'bob']);
});

void test('at most 20 chats are looked at, those with a follower first', async () => {
  const scene = new Scene('ann', 'bob');
  for (let i = 0; i < 25; i++) {
    scene.call('ann', 'POST', '/chats', { type: 'group', chat_id: `c${i}`, member_ids: ['bob'] });
  }
  const tab = await scene.started('ann');
  const looks = looksOf(tab);
  tab.client.chat('team').timeline();
  const all = Array.from({ length: 25 }, (_, i) => follow(tab.client, `c${i}`));
  await scene.until(() => all.filter((one) => one.now() === 'ann').length === 20);
  assert.ok(looks.all.every((chats) => chats.length <= 20));
  assert.ok(!looks.all.at(-1)?.includes('team'));
  assert.equal(looks.all.length, 1, 'what changes together is one look');
});

void test('a large chat shows how many are online', async () => {
  const scene = new Scene('ann', 'bob', ...Array.from({ length: 60 }, (_, i) => `u${i}`));
  const { client } = await scene.started('ann');
  const team = follow(client);
  await scene.until(() => team.now() === '1 online');
  await scene.started('bob');
  await scene.until(() => team.now() === '2 online');
});

void test('who hides is offline to others, and sees nobody', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: ann } = await scene.started('ann');
  const { client: bob } = await scene.started('bob');
  const [one, two] = [follow(ann), follow(bob)];
  await scene.until(() => one.now() === 'ann bob' && two.now() === 'ann bob');
  assert.equal(await scene.within(5_000, presenceOf(bob).visible()), true);
  await scene.within(5_000, presenceOf(bob).setVisible(false));
  assert.equal(await scene.within(5_000, presenceOf(bob).visible()), false);
  await scene.until(() => one.now() === 'ann' && two.now() === '');
  await scene.within(5_000, presenceOf(bob).setVisible(true));
  await scene.until(() => one.now() === 'ann bob' && two.now() === 'ann bob');
});

void test('a server without presence shows nothing, and says why it has no settings', async () => {
  const scene = new Scene('ann', 'bob');
  const { Refusal } = await import('../src/testing/index.js');
  scene.server.refuse = ({ url }) => /presence|look/.test(url.pathname)
    ? new Refusal('NOT_FOUND', 'there is no such path') : undefined;
  const { client } = await scene.started('ann', { transports: ['sse'] });
  const team = follow(client);
  await scene.pass(90_000);
  assert.deepEqual([team.now(), team.seen], ['nothing', []]);
  const failed = await scene.within(5_000, presenceOf(client).visible().catch(codeOf));
  assert.equal(failed, 'NOT_FOUND');
});

void test('when a member was last seen is shown, if the server keeps it', async () => {
  for (const lastSeen of [false, true]) {
    const scene = new Scene({ lastSeen }, 'ann', 'bob');
    const { client } = await scene.started('ann');
    const team = follow(client);
    const { client: bob } = await scene.started('bob');
    await scene.until(() => team.now() === 'ann bob');
    await scene.within(6_000, bob.stop());
    const left = scene.server.clock.now();
    await scene.until(() => team.now() === 'ann', 120_000);
    const seen = team.view.get()?.members?.find((one) => one.user_id === 'bob')?.last_seen_at;
    if (lastSeen) assert.ok(Math.abs(Date.parse(seen ?? '') - left) < 61_000, seen ?? 'never');
    else assert.equal(seen, null);
  }
});

// ---- Tabs ----

async function twoTabs() {
  const scene = new Scene('ann', 'bob');
  const tabs = new VirtualTabs(scene.server.clock);
  const store = memoryStore({ durable: true });
  const leader = await scene.started('ann', { store }, tabs);
  const other = await scene.started('ann', { store: memoryStore({ durable: true }) }, tabs);
  assert.deepEqual([leader.client.state.get().leader, other.client.state.get().leader],
    [true, false]);
  return { scene, leader, other, tabs };
}

void test('a tab that does not lead is told by the one that does', async () => {
  const { scene, leader, other } = await twoTabs();
  presenceOf(leader.client);
  const looks = looksOf(leader);
  const team = follow(other.client);
  await scene.until(() => team.now() === 'ann');
  await scene.started('bob');
  await scene.until(() => team.now() === 'ann bob');
  assert.deepEqual(looks.all, [['team']]);
  await scene.pass(90_000);
  assert.equal(team.now(), 'ann bob');
  team.end();
  await scene.pass(3_000);
  assert.deepEqual(looks.all.at(-1), []);
});

void test('the next leader looks at what the others follow', async () => {
  const { scene, leader, other } = await twoTabs();
  presenceOf(leader.client);
  const team = follow(other.client);
  await scene.until(() => team.now() === 'ann');
  leader.end();
  await scene.within(6_000, leader.client.stop());
  await scene.until(() => other.client.state.get().leader);
  await scene.started('bob');
  await scene.until(() => team.now() === 'ann bob');
  assert.deepEqual(team.seen, ['ann', 'ann bob']);
});

void test('a tab that ends is forgotten after a minute', async () => {
  const { scene, leader, other } = await twoTabs();
  presenceOf(leader.client);
  const looks = looksOf(leader);
  const team = follow(other.client);
  await scene.until(() => team.now() === 'ann');
  other.end();
  await scene.pass(95_000);
  assert.deepEqual(looks.all.at(-1), []);
});
