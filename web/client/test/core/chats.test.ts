// What is kept of a chat, and what the list shows.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { byActivity, carriedTo, factsOf, rowOf, unreadOf } from '../../src/core/chats.js';
import { latchOf, merged, tickOf } from '../../src/core/ticks.js';
import { chat, message, row } from './scene.js';

const peer = { user_id: 'bob', last_acked_sequence: 3, last_read_sequence: 2 };

const bases: [acked: number, read: number, base: number][] = [
  [10, 10, 10], [10, 12, 10], [10, 4, 4], [1_000, 0, 500], [1_000, 800, 800], [0, 0, 0],
];
for (const [acked, read, base] of bases) {
  void test(`a new chat, acknowledged ${acked}, read ${read}, begins above ${base}`, () => {
    const { facts } = factsOf(chat({ last_acked_sequence: acked, last_read_sequence: read }),
      undefined, 'one');
    assert.equal(facts.base, base);
    assert.ok(base <= acked);
  });
}

void test('a device that is far behind skips what others have received', () => {
  const n = 1_000;
  const answer = chat({ last_acked_sequence: n, last_read_sequence: n, head_sequence: n });
  assert.equal(factsOf(answer, row({ prefix: 499 }), 'one').facts.base, 1_000);
  assert.equal(factsOf(answer, row({ prefix: 500 }), 'one').facts.base, undefined);
  assert.equal(factsOf(answer, row({ prefix: 100 }), 'two').facts.base, undefined);
});

void test('what has expired is forgotten', () => {
  const baseOf = (floor: number, old: Parameters<typeof row>[0], rest = {}): number | undefined =>
    factsOf(chat({ floor_sequence: floor, ...rest }), row(old), 'one').facts.base;
  assert.equal(baseOf(8, { prefix: 20, base: 3 }), 7);
  assert.equal(baseOf(8, { prefix: 7, base: 3 }), 7);
  assert.equal(baseOf(8, { prefix: 6, base: 3 }), 7);
  assert.equal(baseOf(3, { prefix: 20, base: 3 }), undefined);
  const far = { last_acked_sequence: 5_500, last_read_sequence: 5_500, head_sequence: 6_000 };
  assert.equal(baseOf(501, { prefix: 1_000, base: 3 }, far), 5_500);
  const older = { ...chat(), floor_sequence: undefined } as never; // from an older node
  assert.equal(factsOf(older, row({ prefix: 9 }), 'one').facts.base, undefined);
});

void test('marks only grow, unless the data are others', () => {
  const answer = chat({ last_acked_sequence: 3, last_read_sequence: 2 });
  const old = row({ acknowledged: 8, readConfirmed: 7, membersVersion: 4 });
  const { acknowledged, readConfirmed } = factsOf(answer, old, 'one').facts;
  assert.deepEqual([acknowledged, readConfirmed], [8, 7]);
  const other = factsOf(answer, old, 'two').facts;
  assert.deepEqual([other.acknowledged, other.readConfirmed, other.members, other.membersVersion],
    [3, 2, null, 0]);
});

void test('an answer may be older than the stream', () => {
  const old = row({ chat: chat({ head_sequence: 5, unread_count: 5 }) });
  const { facts } = factsOf(chat({ head_sequence: 3, unread_count: 3, name: 'New' }), old, 'one');
  assert.deepEqual([facts.chat?.head_sequence, facts.chat?.unread_count, facts.chat?.name],
    [5, 5, 'New']);
});

void test('a direct chat needs no list of members for its ticks', () => {
  const { facts } = factsOf(chat({ type: 'direct', peer, head_sequence: 4 }), undefined, 'one');
  assert.deepEqual([facts.members, facts.latch], [['bob'], { delivered: 3, read: 2 }]);
});

void test('the peer of other data says nothing of what is stored', () => {
  const old = row({ chat: chat({ type: 'direct', head_sequence: 4 }), members: ['bob'] });
  const answer = chat({ type: 'direct', peer, head_sequence: 4 });
  assert.equal(factsOf(answer, old, 'one').facts.latch?.delivered, 3);
  const { boundaries, latch } = factsOf(answer, old, 'two').facts;
  assert.deepEqual([boundaries, latch], [[], { delivered: 0, read: 0 }]);
});

void test('a message of later members makes the list of members old', () => {
  const old = row({ members: ['bob'], membersVersion: 4 });
  const facts = (version: number) => factsOf(
    chat({ head_sequence: 1, last_message: message(1, { members_version: version }) }), old, 'one',
  ).facts;
  assert.deepEqual([facts(5).members, facts(5).membersVersion], [null, 5]);
  assert.ok(!('members' in facts(4)));
});

void test('without a role the user has left', () => {
  assert.equal(factsOf(chat({ role: null }), undefined, 'one').facts.left, true);
});

const server = { unread_count: 7, head_sequence: 9, last_read_sequence: 4 };
const counts: [string, Parameters<typeof row>[0], number, boolean][] = [
  ['the store knows all', { base: 2, read: 4, prefix: 9, unread: 5 }, 5, false],
  ['the store begins above', { base: 6, read: 4, prefix: 9, unread: 3 }, 7, false],
  ['messages are still coming', { base: 0, read: 4, prefix: 6, unread: 2 }, 7, false],
  ['read further here', { base: 2, read: 6, prefix: 9, unread: 3 }, 3, false],
  ['read further here, and more is coming', { base: 2, read: 6, prefix: 8, unread: 2 }, 2, true],
  ['read further here, below the base', { base: 8, read: 6, prefix: 9, unread: 1 }, 1, true],
];
for (const [when, over, unread, atLeast] of counts) {
  void test(`unread, ${when}: ${unread}${atLeast ? ' at least' : ''}`, () => {
    assert.deepEqual(unreadOf(row({ chat: chat(server), ...over })), { unread, atLeast });
  });
}

void test('a mark makes the server count', () => {
  const marked = chat({ ...server, unread_from_sequence: 3, unread_count: 7 });
  assert.deepEqual(unreadOf(row({ chat: marked, read: 4, prefix: 9, unread: 5 })),
    { unread: 7, atLeast: false });
});

void test('the list shows the newest message of a known kind, latest activity first', () => {
  const at = (created_at: string) => message(1, { created_at });
  assert.equal(rowOf(row({ last: message(4, { kind: 'poll' }) })).last, undefined);
  assert.equal(rowOf(row({ last: message(4), chat: chat({ last_message: message(9) }) }))
    .last?.sequence, 9);
  const rows = [
    rowOf(row({ chat: chat({ chat_id: 'a' }), last: at('2026-01-31T11:00:00.000Z') })),
    rowOf(row({ chat: chat({ chat_id: 'b' }), last: at('2026-01-31T12:00:00.000Z') })),
    rowOf(row({ chat: chat({ chat_id: 'c', created_at: '2026-01-31T13:00:00.000Z' }) })),
  ];
  assert.deepEqual(rows.sort(byActivity).map((one) => one.chat.chat_id), ['c', 'b', 'a']);
});

void test('a store that takes another one\'s place keeps its ticks', () => {
  const old = row({ prefix: 9, acknowledged: 9, read: 5, latch: { delivered: 8, read: 6 } });
  const [fresh] = carriedTo(new Map(), [old]);
  assert.deepEqual([fresh?.base, fresh?.latch], [5, { delivered: 8, read: 6 }]);
  const known = row({ latch: { delivered: 9, read: 2 } });
  assert.deepEqual(carriedTo(new Map([['team', known]]), [old]),
    [{ chat_id: 'team', latch: { delivered: 9, read: 6 } }]);
  assert.deepEqual(carriedTo(new Map([['team', row({ incarnation: 'two' })]]), [old]), []);
});

const member = (user_id: string, acked: number, read: number) => ({
  chat_id: 'team', scope: 'member' as const, user_id, last_acked_sequence: acked,
  last_read_sequence: read, acked_at: null, read_at: null,
});
const latches: [string, Partial<Parameters<typeof latchOf>[0]>, [number, number]][] = [
  ['the least of all others', { boundaries: [member('bob', 5, 3), member('cid', 4, 4)] }, [4, 3]],
  ['nothing of a member', { boundaries: [member('bob', 5, 3)] }, [0, 0]],
  ['who they are is not known', { boundaries: [member('bob', 5, 3)], members: null }, [0, 0]],
  ['a former member does not count',
    { boundaries: [member('bob', 5, 3), member('cid', 4, 4), member('dan', 0, 0)] }, [4, 3]],
  ['read is delivered', { boundaries: [member('bob', 0, 3), member('cid', 4, 4)] }, [3, 3]],
  ['a large chat has one status', { members: null, boundaries: [
    { chat_id: 'team', scope: 'chat', all_acked_sequence: 6, all_read_sequence: 5 }] }, [6, 5]],
  ['nothing above the head: its members are not known',
    { chat: chat({ head_sequence: 3 }), boundaries: [member('bob', 5, 2), member('cid', 4, 4)] },
    [3, 2]],
  ['nobody else', { members: [], chat: chat({ head_sequence: 4 }) }, [4, 4]],
  ['it never falls',
    { latch: { delivered: 9, read: 8 }, boundaries: [member('bob', 1, 1)] }, [9, 8]],
];
for (const [when, over, [delivered, read]] of latches) {
  void test(`the latch, ${when}: ${delivered}, ${read}`, () => {
    const team = row({ chat: chat({ head_sequence: 9 }) });
    assert.deepEqual(latchOf({ ...team, ...over }), { delivered, read });
  });
}

void test('a status that comes late lowers nothing, and keeps the time of the mark', () => {
  const late = { ...member('bob', 4, 4), acked_at: 'early', read_at: 'late' };
  const [one] = merged([{ ...member('bob', 5, 3), acked_at: 'late', read_at: 'early' }], [late]);
  assert.deepEqual(one,
    { ...member('bob', 5, 4), acked_at: 'late', read_at: 'late' });
  const whole = (acked: number, read: number) => ({
    chat_id: 'team', scope: 'chat' as const, all_acked_sequence: acked, all_read_sequence: read,
  });
  assert.deepEqual(merged([whole(6, 2)], [whole(5, 3)]), [whole(6, 3)]);
  assert.equal(merged([member('bob', 1, 1)], [member('cid', 2, 2)]).length, 2);
});

void test('a tick follows from the latch', () => {
  const latch = { delivered: 5, read: 3 };
  assert.deepEqual([3, 4, 5, 6].map((n) => tickOf(n, latch)),
    ['read', 'delivered', 'delivered', 'sent']);
});

void test('an answer does not bring back the text of a message that was changed', () => {
  const revision = {
    sequence: 6, kind: 'redact', by: 'bob', revised_at: '2026-01-31T10:00:09.000Z',
  };
  const last = message(5, { content: '', revision });
  const answer = (head_sequence: number, sequence: number) =>
    chat({ head_sequence, last_message: message(sequence) });
  const told = (old: Parameters<typeof row>[0], news: ReturnType<typeof answer>) =>
    factsOf(news, row(old), 'one').facts.chat?.last_message;
  // It is older than what the stream has brought, or the message is stored.
  assert.equal(told({ chat: chat({ head_sequence: 6 }) }, answer(5, 5)), null);
  assert.equal(told({ chat: chat({ head_sequence: 4 }), last }, answer(5, 5)), last);
  assert.equal(told({ chat: chat({ head_sequence: 4 }), last }, answer(5, 3)), last);
  const newer = answer(7, 7);
  assert.equal(told({ chat: chat({ head_sequence: 4 }), last }, newer), newer.last_message);
});

void test('the list shows the newest message that is shown', () => {
  const relation = message(6, {
    kind: 'edit', relation: { sequence: 5, sequences: null, emoji: null, target: null },
  });
  const last = message(5);
  assert.equal(rowOf(row({ chat: chat({ last_message: relation }), last })).last, last);
  const older = rowOf(row({ chat: chat({ last_message: message(4) }), last }));
  assert.equal(older.last, last);
  // Without any, the time of the change counts.
  const other = chat({ chat_id: 'other' });
  const changed = chat({ last_message: relation });
  const rows = [other, changed].map((one) => rowOf(row({ chat: one })));
  assert.equal(rows.sort(byActivity)[0]?.chat.chat_id, 'team');
});
