// What every store must do: one test for each sentence of the contract in types.ts. The tests run
// on each store, in Node and in a page.

import {
  check, chatOf, entriesOf, factsOf, leader, marksOf, ME, messageOf, pageOf, rowOf, same, SERVER,
  sendOf, throws, withTeam, type Scene, type StoreTest,
} from './scene.js';
import type { Store } from '../src/types.js';
import type { Message } from '../src/wire.gen.js';

const tests: StoreTest[] = [];
const test = (name: string, run: (scene: Scene) => Promise<void>) => tests.push({ name, run });

export const storeTests: readonly StoreTest[] = tests;

// ---- Identity -----------------------------------------------------------------------------------

test('open: new data are empty, with an id and a device', async (scene) => {
  const { id, device, rev, ...rest } = await scene.tab().open(ME, SERVER);
  check(/^[A-Za-z0-9_-]{8,128}$/.test(id), `id ${id}`);
  check(/^[A-Za-z0-9_-]{8,128}$/.test(device), `device ${device}`);
  check(id !== device, 'id and device are the same');
  check(Number.isSafeInteger(rev), `rev ${rev}`);
  same(rest, { chats: [], outbox: [] }, 'opened');
});

test('open: all tabs have the same data, also after they were closed', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2]);
  const position = { session_id: 'S', event_id: 7 };
  await store.commit(term, { position });
  await store.add(sendOf('a'));
  const first = await store.open(ME, SERVER);
  store.close();
  const second = await scene.tab().open(ME, SERVER);
  same(second, first, 'opened');
  same(second.position, position, 'position');
  same(second.outbox.map((item) => item.client_message_id), ['a'], 'outbox');
  same(second.chats.map(({ prefix }) => prefix), [2], 'prefix');
});

test('open: users and servers have data of their own', async (scene) => {
  const { store } = await withTeam(scene, [1]);
  const mine = await store.open(ME, SERVER);
  for (const [user, server] of [['bob', SERVER], [ME, 'https://other.example.com']] as const) {
    const other = await scene.tab().open(user, server);
    check(other.id !== mine.id && other.device !== mine.device, `${user} ${server}: same identity`);
    same(other.chats, [], `chats of ${user} ${server}`);
  }
});

test('open: a store may be opened again after close', async (scene) => {
  const { store } = await withTeam(scene, [1]);
  const { id } = await store.open(ME, SERVER);
  store.close();
  same((await store.open(ME, SERVER)).id, id, 'id');
  same((await marksOf(store)).prefix, 1, 'prefix');
});

test('close: no call works after it', async (scene) => {
  const { store, term } = await withTeam(scene);
  store.close();
  await throws('STORE_LOST', store.page('team', 9, 9));
  await throws('STORE_LOST', store.commit(term, {}));
  await throws('STORE_LOST', store.add(sendOf('a')));
});

// ---- Terms --------------------------------------------------------------------------------------

test('lead: raises the term, for all tabs', async (scene) => {
  const { store, term } = await leader(scene);
  const other = scene.tab();
  await other.open(ME, SERVER);
  check(await other.lead() > term, 'the term of another tab is not higher');
  check(await store.lead() > term + 1, 'the term is not higher');
});

test('commit: an older term is fenced, and changes nothing', async (scene) => {
  const { store, term } = await withTeam(scene, [1]);
  const other = scene.tab();
  await other.open(ME, SERVER);
  const newer = await other.lead();
  const before = await store.changes(-1);
  await throws('FENCED', store.commit(term, { entries: entriesOf('team', [2]) }));
  await throws('FENCED', store.commit(newer + 1, { entries: entriesOf('team', [2]) }));
  same(await store.changes(-1), before, 'changes');
  same(await pageOf(store), '1', 'page');
  await other.commit(newer, { entries: entriesOf('team', [2]) });
  same(await pageOf(store), '1 2', 'page');
});

test('a tab without the lead may do everything but commit', async (scene) => {
  const { store } = await withTeam(scene, [1, 2]);
  const other = scene.tab();
  await other.open(ME, SERVER);
  await throws('FENCED', other.commit(0, {}));
  await other.add(sendOf('a'));
  same(await other.markRead('team', 1), 1, 'read');
  same(await pageOf(other), '1 2', 'page');
  await other.edit('a', { to: 'discarded' });
  same((await store.changes(-1)).outbox, [], 'outbox');
});

// ---- Entries and prefix -------------------------------------------------------------------------

test('prefix: covers all of base + 1 … p, whatever the order of entries', async (scene) => {
  const { store, term } = await withTeam(scene, [3], { base: 0 });
  same((await marksOf(store)).prefix, 0, 'prefix before a hole');
  for (const [what, prefix] of [[[5], 0], [[1], 1], [[[2, 2]], 3], [[[4, 4]], 5]] as const) {
    const { chats } = await store.commit(term, { entries: entriesOf('team', what) });
    same(chats.map((row) => row.prefix), [prefix], `prefix after ${JSON.stringify(what)}`);
  }
});

test('prefix: one commit may close a hole over which much is stored', async (scene) => {
  const { store, term } = await withTeam(scene);
  const many = Array.from({ length: 700 }, (_, i) => i + 2);
  await store.commit(term, { entries: entriesOf('team', many) });
  same((await marksOf(store)).prefix, 0, 'prefix');
  await store.commit(term, { entries: entriesOf('team', [1]) });
  same(await marksOf(store), { base: 0, prefix: 701, read: 0, unread: 701, last: 701 }, 'marks');
});

test('prefix: is never below base, and follows it', async (scene) => {
  const { store, term } = await withTeam(scene, [11, 12, 14], { base: 10 });
  same((await marksOf(store)).prefix, 12, 'prefix');
  await store.commit(term, { chats: [{ chat_id: 'team', base: 11 }] });
  same((await marksOf(store)).prefix, 12, 'base within the prefix');
  await store.commit(term, { chats: [{ chat_id: 'team', base: 13 }] });
  same((await marksOf(store)).prefix, 14, 'base above the prefix');
  await store.commit(term, { chats: [{ chat_id: 'team', base: 10 }] });
  // What was below the base before is gone.
  same((await marksOf(store)).prefix, 10, 'a lower base');
  await store.commit(term, { chats: [{ chat_id: 'team', base: 20 }] });
  same((await marksOf(store)).prefix, 20, 'a base above everything');
});

test('prefix: a gap that begins below the base counts', async (scene) => {
  const { store } = await withTeam(scene, [[5, 20], 21], { base: 10 });
  same((await marksOf(store)).prefix, 21, 'prefix');
});

test('entries: those below the base are kept', async (scene) => {
  const { store } = await withTeam(scene, [3, 4, 11], { base: 10 });
  same(await pageOf(store), '3 4 11', 'page');
});

test('entries: what is there stays as it is', async (scene) => {
  const { store, term } = await withTeam(scene, [1, [4, 6]]);
  const foreign = { ...messageOf('team', 1), message_id: 'other' };
  await store.commit(term, { entries: entriesOf('team', [foreign, 5, [1, 9]]) });
  const page = await store.page('team', 99, 99);
  same(page[0]?.message?.message_id, 'm1', 'message 1');
  same(await pageOf(store), '1 2-3 4-6 7-9', 'page');
  same((await marksOf(store)).prefix, 9, 'prefix');
});

test('entries: the first of two in one commit stays', async (scene) => {
  const { store } = await withTeam(scene, [[2, 4], 3, [3, 6], 1]);
  same(await pageOf(store), '1 2-4 5-6', 'page');
});

test('entries: a gap goes around messages that are stored', async (scene) => {
  const { store, term } = await withTeam(scene, [3, 5, 6, 9]);
  await store.commit(term, { entries: entriesOf('team', [[1, 12]]) });
  same(await pageOf(store), '1-2 3 4 5 6 7-8 9 10-12', 'page');
});

test('entries: a commit may be repeated', async (scene) => {
  const { store, term } = await withTeam(scene);
  const change = { entries: entriesOf('team', [1, 2, [3, 5], 6]), sent: ['a'] };
  const first = await store.commit(term, change);
  const second = await store.commit(term, change);
  const plain = (row: object) => ({ ...row, rev: 0 });
  same(second.chats.map(plain), first.chats.map(plain), 'rows');
  same(await pageOf(store), '1 2 3-5 6', 'page');
});

test('commit: is whole or nothing', async (scene) => {
  const { store, term } = await withTeam(scene, [1]);
  await store.add(sendOf('a'));
  const before = await store.changes(-1);
  let failed = false;
  await store.commit(term, {
    chats: [{ chat_id: 'team', left: true }],
    entries: [...entriesOf('team', [2]), ...entriesOf('unknown', [1])],
    sent: ['a'], position: { session_id: 'S', event_id: 1 },
  }).catch(() => { failed = true; });
  check(failed, 'entries of an unknown chat were taken');
  same(await store.changes(-1), before, 'changes');
  same(await pageOf(store), '1', 'page');
  check(!('position' in await store.open(ME, SERVER)), 'there is a position');
});

test('commit: takes several chats at once, and returns those it touched', async (scene) => {
  const { store, term } = await withTeam(scene, [1]);
  const { chats, rev } = await store.commit(term, {
    chats: [factsOf('one'), factsOf('two', { base: 4 })],
    entries: [...entriesOf('one', [1, 2]), ...entriesOf('two', [5])],
  });
  const seen = chats.map((row) => [row.chat.chat_id, row.prefix, row.rev]).sort();
  same(seen, [['one', 2, rev], ['two', 5, rev]], 'touched');
  for (const row of chats) same(await rowOf(store, row.chat.chat_id), row, 'the stored row');
});

test('commit: facts that a change does not name stay', async (scene) => {
  const latch = { delivered: 3, read: 2 };
  const { store, term } = await withTeam(scene, [], { latch, membersVersion: 7 });
  const chat = { ...chatOf('team'), name: 'Crew' };
  await store.commit(term, { chats: [{ chat_id: 'team', chat, acknowledged: 5 }] });
  const row = await rowOf(store);
  same([row.chat.name, row.acknowledged, row.membersVersion], ['Crew', 5, 7], 'facts');
  same(row.latch, latch, 'latch');
});

test('commit: facts of a chat may come in two parts', async (scene) => {
  const { store, term } = await withTeam(scene);
  await store.commit(term, { chats: [
    { chat_id: 'team', acknowledged: 5, readConfirmed: 3 }, { chat_id: 'team', acknowledged: 6 },
  ] });
  const { acknowledged, readConfirmed } = await rowOf(store);
  same([acknowledged, readConfirmed], [6, 3], 'facts');
});

test('commit: the parts apply in the order of their fields', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2, 3, 4]);
  await store.markRead('team', 4);
  const { chats } = await store.commit(term, {
    rebase: [{ chat_id: 'team', through: 2, incarnation: 'two' }],
    chats: [{ chat_id: 'team', acknowledged: 2 }],
    entries: entriesOf('team', [3]),
    read: [{ chat_id: 'team', through: 9 }],
  });
  same(chats.map(({ prefix, read, acknowledged }) => [prefix, read, acknowledged]), [[3, 3, 2]],
    'prefix, read, acknowledged');
});

// ---- Reads --------------------------------------------------------------------------------------

test('markRead: raises, at most to the prefix, and never lowers', async (scene) => {
  const { store } = await withTeam(scene, [1, 2, 3, 5]);
  same(await store.markRead('team', 2), 2, 'raised');
  same(await store.markRead('team', 1), 2, 'a lower one');
  same(await store.markRead('team', 9), 3, 'one beyond the prefix');
  same(await store.markRead('unknown', 9), 0, 'an unknown chat');
});

test('read of a commit: raises, at most to the prefix, and never lowers', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2, 3, 5]);
  const read = async (through: number) => {
    await store.commit(term, { read: [{ chat_id: 'team', through }] });
    return (await marksOf(store)).read;
  };
  same([await read(2), await read(1), await read(9)], [2, 2, 3], 'read');
});

test('unread: messages of others above read, up to the prefix', async (scene) => {
  const mine = messageOf('team', 2, ME);
  const system = messageOf('team', 3, 'bob', 'system');
  const { store, term } = await withTeam(scene, [1, mine, system, [4, 5], 6, 7, 9]);
  same((await marksOf(store)).unread, 3, 'unread');
  await store.markRead('team', 6);
  same((await marksOf(store)).unread, 1, 'after a read');
  await store.commit(term, { entries: entriesOf('team', [8]) });
  same((await marksOf(store)).unread, 3, 'after the hole was closed');
  await store.markRead('team', 9);
  same((await marksOf(store)).unread, 0, 'after all was read');
});

test('unread: counts older messages that come later', async (scene) => {
  const { store, term } = await withTeam(scene, [11], { base: 10 });
  await store.commit(term, { entries: entriesOf('team', [8, messageOf('team', 9, ME), 10]) });
  same(await marksOf(store), { base: 10, prefix: 11, read: 0, unread: 3, last: 11 }, 'marks');
});

// ---- Rebase -------------------------------------------------------------------------------------

test('rebase: drops and lowers everything above through', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2, 3, messageOf('team', 4, ME), 5, 6, [7, 9]], {
    acknowledged: 9, readConfirmed: 8, latch: { delivered: 9, read: 3 },
    boundaries: [{
      chat_id: 'team', scope: 'member', user_id: 'bob', last_acked_sequence: 9,
      last_read_sequence: 2, acked_at: null, read_at: null,
    }, { chat_id: 'team', scope: 'chat', all_acked_sequence: 8, all_read_sequence: 7 }],
  });
  await store.markRead('team', 7);
  await store.add(sendOf('a', 'team', { seen: 8, after: 9 }));
  await store.add(sendOf('b', 'team', { seen: 3, after: 4 }));
  await store.add(sendOf('c', 'other', { seen: 8, after: 9 }));
  const { chats } = await store.commit(term, {
    rebase: [{ chat_id: 'team', through: 5, incarnation: 'two' }],
  });
  const row = await rowOf(store);
  same(chats, [row], 'touched');
  const { incarnation, acknowledged, readConfirmed, latch } = row;
  same(await marksOf(store), { base: 0, prefix: 5, read: 5, unread: 0, last: 5 }, 'marks');
  same({ incarnation, acknowledged, readConfirmed, latch }, {
    incarnation: 'two', acknowledged: 5, readConfirmed: 5, latch: { delivered: 5, read: 3 },
  }, 'facts');
  same(row.boundaries, [{
    chat_id: 'team', scope: 'member', user_id: 'bob', last_acked_sequence: 5,
    last_read_sequence: 2, acked_at: null, read_at: null,
  }, {
    chat_id: 'team', scope: 'chat', all_acked_sequence: 5, all_read_sequence: 5,
  }], 'boundaries');
  const sends = (await store.changes(-1)).outbox.map(({ seen, after }) => [seen, after]);
  same(sends, [[5, 5], [3, 4], [8, 9]], 'seen and after of the sends');
  same(await pageOf(store), '1 2 3 4 5', 'page');
});

test('rebase: cuts a gap, and lowers the base', async (scene) => {
  const { store, term } = await withTeam(scene, [5, [6, 20], 21], { base: 10 });
  const rebase = (through: number) => store.commit(term, {
    rebase: [{ chat_id: 'team', through, incarnation: 'two' }],
  });
  await rebase(12);
  same(await pageOf(store), '5 6-12', 'page');
  same(await marksOf(store), { base: 10, prefix: 12, read: 0, unread: 1, last: 5 }, 'marks');
  await rebase(8);
  same(await marksOf(store), { base: 8, prefix: 8, read: 0, unread: 1, last: 5 }, 'marks');
  await rebase(0);
  same(await marksOf(store), { base: 0, prefix: 0, read: 0, unread: 0, last: undefined }, 'marks');
  same(await pageOf(store), '', 'page');
});

test('rebase: unread counts anew', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2, 3, 4, 5]);
  await store.markRead('team', 1);
  await store.commit(term, {
    rebase: [{ chat_id: 'team', through: 3, incarnation: 'two' }],
    entries: entriesOf('team', [messageOf('team', 4, ME), 5]),
  });
  same(await marksOf(store), { base: 0, prefix: 5, read: 1, unread: 3, last: 5 }, 'marks');
});

test('rebase: does nothing for a chat that is not known', async (scene) => {
  const { store, term } = await withTeam(scene);
  const { chats } = await store.commit(term, {
    rebase: [{ chat_id: 'unknown', through: 3, incarnation: 'two' }],
    read: [{ chat_id: 'unknown', through: 3 }],
  });
  same(chats, [], 'touched');
});

// ---- Changes of messages ------------------------------------------------------------------------

const revised = (sequence: number, by: number, kind = 'edit'): Message => ({
  ...messageOf('team', sequence), content: kind === 'edit' ? `edit ${by}` : '',
  revision: { sequence: by, kind, by: 'bob', revised_at: '2026-01-31T10:00:09.000Z' },
});
const relation = (at: number, target: Message): Message => ({
  ...messageOf('team', at, 'bob', target.revision?.kind), content: '',
  relation: { sequence: target.sequence, sequences: null, emoji: null, target },
});
const textsOf = async (store: Store) => (await store.page('team', 99, 99)).map(({ message }) =>
  message?.relation ? message.relation : message?.content);

test('commit: a relation changes its target, and is stored without it', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2]);
  await store.commit(term, { entries: entriesOf('team', [relation(3, revised(2, 3))]) });
  const bare = { sequence: 2, sequences: null, emoji: null, target: null };
  same(await textsOf(store), ['text 1', 'edit 3', bare], 'texts');
  same(await marksOf(store), { base: 0, prefix: 3, read: 0, unread: 2, last: 2 }, 'marks');
  same((await rowOf(store)).last?.content, 'edit 3', 'the last message');
});

test('commit: the greater revision stays, whatever comes first', async (scene) => {
  const { store, term } = await withTeam(scene, [revised(1, 4), 2]);
  const one = [relation(3, revised(1, 3)), relation(5, revised(2, 6, 'redact'))];
  await store.commit(term, { entries: entriesOf('team', one) });
  await store.commit(term, { entries: entriesOf('team', [relation(4, revised(2, 4)), 1]) });
  const bare = (sequence: number) => ({ sequence, sequences: null, emoji: null, target: null });
  same(await textsOf(store), ['edit 4', '', bare(1), bare(2), bare(2)], 'texts');
  // It may come as a message of a page.
  await store.commit(term, { entries: entriesOf('team', [revised(1, 7)]) });
  same((await textsOf(store))[0], 'edit 7', 'text');
});

test('commit: a redaction of several wipes those that are stored', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2, 3, revised(4, 5, 'redact')]);
  const list = { sequence: 1, sequences: [1, 3, 4, 9], emoji: null, target: null };
  const change = { ...messageOf('team', 10, 'bob', 'redact'), content: '', relation: list };
  await store.commit(term, { entries: entriesOf('team', [change]) });
  same(await textsOf(store), ['', 'text 2', '', '', list], 'texts');
  const revisions = (await store.page('team', 9, 9)).map(({ message }) =>
    message?.revision?.sequence);
  same(revisions, [10, undefined, 10, 5], 'revisions');
});

test('commit: a target that is not stored is not stored then', async (scene) => {
  const { store, term } = await withTeam(scene, [], { base: 2 });
  const change = relation(3, revised(1, 3));
  await store.commit(term, { entries: entriesOf('team', [change]) });
  same(await pageOf(store), '3', 'page');
  check(!JSON.stringify(await store.changes(-1)).includes('edit 3'), 'the text is there');
});

test('commit: the list of chats has no text that was changed', async (scene) => {
  const last_message = messageOf('team', 2);
  const { store, term } = await withTeam(scene, [], {
    base: 2, chat: { ...chatOf('team'), last_message },
  });
  const change = relation(3, revised(2, 3, 'redact'));
  await store.commit(term, { entries: entriesOf('team', [change]) });
  same((await rowOf(store)).chat.last_message?.content, '', 'text');
});

test('commit: what a higher base is above goes', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2, [3, 6], 7]);
  await store.commit(term, { chats: [{ chat_id: 'team', base: 4 }] });
  same(await pageOf(store), '5-6 7', 'page');
  same(await marksOf(store), { base: 4, prefix: 7, read: 0, unread: 1, last: 7 }, 'marks');
  await store.commit(term, { chats: [{ chat_id: 'team', base: 9 }] });
  same(await marksOf(store), { base: 9, prefix: 9, read: 0, unread: 0, last: undefined }, 'marks');
});

test('rebase: drops what was changed above, and sends that change it', async (scene) => {
  const two = revised(2, 5);
  const { store, term } = await withTeam(scene, [1, two, 3, 4, relation(5, two)]);
  const change = { kind: 'edit' as const, seen: 5 };
  await store.add(sendOf('a', 'team', { ...change, relation: { sequence: 4 } }));
  await store.add(sendOf('b', 'team', { ...change, relation: { sequence: 3 } }));
  await store.commit(term, { rebase: [{ chat_id: 'team', through: 3, incarnation: 'two' }] });
  same(await pageOf(store), '1 3', 'page');
  same(await marksOf(store), { base: 0, prefix: 1, read: 0, unread: 1, last: 3 }, 'marks');
  same((await store.changes(-1)).outbox.map((one) => one.client_message_id), ['b'], 'outbox');
});

// ---- Pages --------------------------------------------------------------------------------------

test('page: the last entries that begin below a sequence, oldest first', async (scene) => {
  const { store } = await withTeam(scene, [1, 2, [3, 8], 9, 10]);
  same(await pageOf(store, 10, 2), '3-8 9', 'page');
  same(await pageOf(store, 5, 2), '2 3-8', 'a page that begins within a gap');
  same(await pageOf(store, 3, 9), '1 2', 'fewer than the limit');
  same(await pageOf(store, 1, 9), '', 'nothing is below');
  same(await store.page('unknown', 9, 9), [], 'an unknown chat');
});

test('page: chats do not mix', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2]);
  await store.commit(term, {
    chats: [factsOf('tea'), factsOf('team2')],
    entries: [...entriesOf('tea', [5]), ...entriesOf('team2', [1])],
  });
  same(await pageOf(store), '1 2', 'page');
});

test('page: gives messages as they came', async (scene) => {
  const message = {
    ...messageOf('team', 1), metadata: { deep: [1, { a: null }] },
    mentions: { all: true, user_ids: ['bob'] }, attachments: [{ name: 'a.png', size: 3 }],
  };
  const { store } = await withTeam(scene, [message]);
  same(await store.page('team', 9, 9), [{ chat_id: 'team', from: 1, to: 1, message }], 'page');
});

// ---- Outbox -------------------------------------------------------------------------------------

test('add: ordinals grow in the order of writing, and are not used again', async (scene) => {
  const { store, term } = await withTeam(scene);
  const other = scene.tab();
  await other.open(ME, SERVER);
  const a = await store.add(sendOf('a'));
  const b = await other.add(sendOf('b'));
  await store.commit(term, { sent: ['b'] });
  const c = await store.add(sendOf('c'));
  check(a < b && b < c, `ordinals ${a} ${b} ${c}`);
  same((await other.changes(-1)).outbox, [
    { ...sendOf('a'), ordinal: a, state: 'due' }, { ...sendOf('c'), ordinal: c, state: 'due' },
  ], 'outbox');
});

test('add: keeps every part of a draft', async (scene) => {
  const { store } = await withTeam(scene);
  const send = sendOf('a', 'team', {
    content_type: 'text/markdown', attachments: [{ name: 'a' }], mentions: { all: true },
    metadata: { x: [1, 2] }, seen: 4, after: 5,
  });
  const ordinal = await store.add(send);
  same((await store.changes(-1)).outbox, [{ ...send, ordinal, state: 'due' }], 'outbox');
});

test('add: a second one of the same id changes nothing', async (scene) => {
  const { store } = await withTeam(scene);
  const first = await store.add(sendOf('a'));
  same(await store.add(sendOf('a', 'team', { content: 'other' })), first, 'ordinal');
  same((await store.changes(-1)).outbox.map(({ content }) => content), ['draft a'], 'outbox');
});

test('sent and failed: a commit ends sends', async (scene) => {
  const { store, term } = await withTeam(scene);
  for (const id of ['a', 'b', 'c']) await store.add(sendOf(id));
  const problem = { code: 'CONFLICT', detail: 'this id was used' };
  await store.commit(term, {
    sent: ['a', 'unknown'],
    failed: [{ client_message_id: 'c', problem }, { client_message_id: 'unknown', problem }],
  });
  const { outbox } = await store.changes(-1);
  const short = outbox.map(({ client_message_id, state, problem }) =>
    [client_message_id, state, problem?.code]);
  same(short, [['b', 'due', undefined], ['c', 'failed', 'CONFLICT']], 'outbox');
});

test('edit: a failed send is due again, under a new id if one is given', async (scene) => {
  const { store, term } = await withTeam(scene);
  const problem = { code: 'CONFLICT', detail: 'this id was used' };
  const a = await store.add(sendOf('a'));
  const b = await store.add(sendOf('b'));
  await store.commit(term, {
    failed: ['a', 'b'].map((client_message_id) => ({ client_message_id, problem })),
  });
  await store.edit('a', { to: 'due', newId: 'a2' });
  await store.edit('b', { to: 'due' });
  same((await store.changes(-1)).outbox, [
    { ...sendOf('a'), client_message_id: 'a2', ordinal: a, state: 'due' },
    { ...sendOf('b'), ordinal: b, state: 'due' },
  ], 'outbox');
});

test('edit: leaves a due send and an unknown one as they are', async (scene) => {
  const { store } = await withTeam(scene);
  await store.add(sendOf('a'));
  const before = (await store.changes(-1)).outbox;
  await store.edit('a', { to: 'due', newId: 'a2' });
  await store.edit('unknown', { to: 'due' });
  await store.edit('unknown', { to: 'discarded' });
  same((await store.changes(-1)).outbox, before, 'outbox');
});

// ---- Position and changes -----------------------------------------------------------------------

test('position: stays until another one or null', async (scene) => {
  const { store, term } = await withTeam(scene);
  const get = async () => (await scene.tab().open(ME, SERVER)).position;
  await store.commit(term, { position: { session_id: 'S', event_id: 7 } });
  await store.commit(term, { entries: entriesOf('team', [1]) });
  same(await get(), { session_id: 'S', event_id: 7 }, 'position');
  await store.commit(term, { position: null });
  same(await get(), undefined, 'forgotten position');
});

test('changes: the chats after a revision, and the whole outbox', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2]);
  await store.add(sendOf('a'));
  const { rev } = await store.commit(term, { chats: [factsOf('other')] });
  const after = async () => {
    const { chats, outbox } = await store.changes(rev);
    return [chats.map(({ chat }) => chat.chat_id).sort(), outbox.length];
  };
  same(await after(), [[], 1], 'nothing has changed');
  await store.markRead('team', 1);
  same(await after(), [['team'], 1], 'a read');
  await store.commit(term, { entries: entriesOf('other', [1]) });
  same(await after(), [['other', 'team'], 1], 'an entry');
});

test('rev: every step that others may see raises it', async (scene) => {
  const { store, term } = await withTeam(scene, [1, 2]);
  let last = (await store.changes(-1)).rev;
  const problem = { code: 'CONFLICT', detail: '' };
  const steps: [string, () => Promise<unknown>][] = [
    ['commit', () => store.commit(term, { entries: entriesOf('team', [3]) })],
    ['add', () => store.add(sendOf('a'))],
    ['failed', () => store.commit(term, { failed: [{ client_message_id: 'a', problem }] })],
    ['edit', () => store.edit('a', { to: 'due' })],
    ['discard', () => store.edit('a', { to: 'discarded' })],
    ['markRead', () => store.markRead('team', 2)],
  ];
  for (const [name, step] of steps) {
    await step();
    const { rev } = await store.changes(-1);
    check(rev > last, `${name} did not raise the revision`);
    last = rev;
  }
});

// ---- Wipe ---------------------------------------------------------------------------------------

test('wipe: refuses unsent messages, unless told to discard them', async (scene) => {
  const { store } = await withTeam(scene, [1]);
  await store.add(sendOf('a'));
  await throws('UNSENT', store.wipe({ unsent: 'refuse' }));
  same((await store.changes(-1)).outbox.length, 1, 'outbox');
  same(await pageOf(store), '1', 'page');
  await store.wipe({ unsent: 'discard' });
  await throws('STORE_LOST', store.changes(-1));
});

test('wipe: removes everything, and what comes next begins anew', async (scene) => {
  const { store, term } = await withTeam(scene, [1]);
  await store.commit(term, { position: { session_id: 'S', event_id: 7 } });
  const before = await store.open(ME, SERVER);
  await store.wipe({ unsent: 'refuse' });
  const { id, device, chats, outbox, position } = await store.open(ME, SERVER);
  check(id !== before.id && device !== before.device, 'the identity is the same');
  same([chats, outbox, position], [[], [], undefined], 'opened');
  same(await pageOf(store), '', 'page');
  check(await store.lead() > term, 'the term has fallen');
});

test('wipe: every call of another tab throws, and its open says once why', async (scene) => {
  const { store } = await withTeam(scene, [1]);
  const other = scene.tab();
  await other.open(ME, SERVER);
  const term = await other.lead();
  await store.wipe({ unsent: 'refuse' });
  for (const call of [
    () => other.lead(), () => other.commit(term, {}), () => other.add(sendOf('a')),
    () => other.edit('a', { to: 'discarded' }), () => other.markRead('team', 1),
    () => other.page('team', 9, 9), () => other.changes(-1),
    () => other.wipe({ unsent: 'discard' }),
  ]) await throws('STORE_LOST', call());
  other.close();
  await throws('SIGNED_OUT', other.open(ME, SERVER));
  same((await other.open(ME, SERVER)).chats, [], 'chats');
});

test('wipe: who comes back after a new sign-in gets the new data', async (scene) => {
  const { store } = await withTeam(scene, [1]);
  const other = scene.tab();
  const old = await other.open(ME, SERVER);
  await store.wipe({ unsent: 'refuse' });
  const fresh = await scene.tab().open(ME, SERVER);
  await throws('STORE_LOST', other.add(sendOf('a')));
  const again = await other.open(ME, SERVER);
  check(again.id === fresh.id && again.id !== old.id, 'not the new data');
});

// ---- Side by side -------------------------------------------------------------------------------

test('steps of several tabs at once happen one after the other', async (scene) => {
  const { store, term } = await withTeam(scene, Array.from({ length: 40 }, (_, i) => i + 1));
  const others = await Promise.all([1, 2, 3].map(async () => {
    const tab = scene.tab();
    await tab.open(ME, SERVER);
    return tab;
  }));
  const all: Promise<unknown>[] = [];
  const ordinals: Promise<number>[] = [];
  for (let i = 1; i <= 20; i++) {
    all.push(store.commit(term, { entries: entriesOf('team', [40 + i]) }));
    others.forEach((tab, t) => {
      ordinals.push(tab.add(sendOf(`${t}-${i}`)));
      all.push(tab.markRead('team', 2 * i));
    });
  }
  await Promise.all([...all, ...ordinals]);
  const got = await Promise.all(ordinals);
  same(new Set(got).size, 60, 'different ordinals');
  const { outbox } = await store.changes(-1);
  for (const t of [0, 1, 2]) {
    const mine = outbox.map((item) => item.client_message_id).filter((id) => id[0] === String(t));
    same(mine, Array.from({ length: 20 }, (_, i) => `${t}-${i + 1}`), `the order of tab ${t}`);
  }
  same(await marksOf(store), { base: 0, prefix: 60, read: 40, unread: 20, last: 60 }, 'marks');
});

test('lead of one tab fences commits of another that are under way', async (scene) => {
  const { store, term } = await withTeam(scene);
  const other = scene.tab();
  await other.open(ME, SERVER);
  const results: string[] = [];
  const commits = [1, 2, 3, 4, 5, 6].map((n) =>
    store.commit(term, { entries: entriesOf('team', [n]) })
      .then(() => results.push('done'), () => results.push('fenced')));
  const newer = await other.lead();
  const seen = await pageOf(other);
  await Promise.all(commits);
  same(await pageOf(other), seen, 'stored after the lead has changed');
  await other.commit(newer, { entries: entriesOf('team', [7]) });
  check(results.join().match(/^(done,?)*(fenced,?)*$/) !== null, `order ${results.join()}`);
});
