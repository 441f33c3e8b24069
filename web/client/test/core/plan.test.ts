// What a batch of events changes.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { entryOf, lastId, planOf, unknownChats, type Known } from '../../src/core/plan.js';
import { eventOf, type StreamEvent } from '../../src/wire/events.js';
import type { Message } from '../../src/wire.gen.js';
import { chat, item, message, row } from './scene.js';

function known(over: Partial<Known> = {}): Known {
  return {
    user: 'ann', incarnation: 'one', chats: new Map([['team', row()]]), outbox: [],
    said: () => 0, handled: () => Infinity, ahead: new Map(), ...over,
  };
}

function event(type: string, payload: object, id?: number): StreamEvent {
  const made = eventOf(id, type, payload);
  assert.ok(made);
  return made;
}

const says = (sequence: number, over: object = {}): StreamEvent =>
  event('message', message(sequence, over));
const only = (plan: ReturnType<typeof planOf>) => plan.change.chats[0];

void test('messages and gaps are stored, and others count as unread', () => {
  const { change } = planOf(known(), [
    says(1), event('gap', { chat_id: 'team', from_sequence: 2, to_sequence: 4, reason: 'x' }),
    says(5, { sender_id: 'ann' }), says(6, { kind: 'system' }), says(7, { kind: 'poll' }),
    says(8, { mentions: { all: false, user_ids: ['ann'] } }),
  ]);
  assert.deepEqual(change.entries.map(({ from, to, message: m }) => [from, to, m !== undefined]),
    [[1, 1, true], [2, 4, false], [5, 5, true], [6, 6, true], [7, 7, true], [8, 8, true]]);
  const { head_sequence, unread_count, mention_count } = only({ change } as never)?.chat ?? chat();
  assert.deepEqual([head_sequence, unread_count, mention_count], [8, 2, 1]);
});

void test('an echo of the own send confirms it', () => {
  const outbox = [item(1), item(2, { chat_id: 'other', client_message_id: 'c3' })];
  const { change } = planOf(known({ outbox }),
    [says(1, { sender_id: 'ann' }), says(2), says(3, { sender_id: 'ann' })]);
  assert.deepEqual(change.sent, ['c1']);
});

void test('what is of other data is left out, and noted', () => {
  const plan = planOf(known({ incarnation: 'two' }), [says(1), says(2)]);
  assert.deepEqual([plan.change.entries, [...plan.discarded]], [[], [['team', 2]]]);
});

void test('a status of other data says nothing of what is stored', () => {
  const chats = new Map([['team', row({ members: ['bob'], chat: chat({ head_sequence: 5 }) })]]);
  const status = event('status_update', {
    chat_id: 'team', scope: 'member', user_id: 'bob', last_acked_sequence: 5,
    last_read_sequence: 5, acked_at: null, read_at: null,
  });
  assert.ok('latch' in (only(planOf(known({ chats }), [status])) ?? {}));
  assert.deepEqual(only(planOf(known({ chats, incarnation: 'two' }), [status])),
    { chat_id: 'team' });
});

void test('a newer list of members is needed', () => {
  const plan = planOf(known(), [says(1, { members_version: 3 })]);
  assert.deepEqual([only(plan)?.members, only(plan)?.membersVersion], [null, 3]);
  const same = planOf(known(), [says(1)]);
  assert.ok(!('members' in (only(same) ?? {})));
});

void test('statuses merge by maximum, and raise the latch when all others are known', () => {
  const status = (user_id: string, acked: number, read: number): StreamEvent =>
    event('status_update', {
      chat_id: 'team', scope: 'member', user_id, last_acked_sequence: acked,
      last_read_sequence: read, acked_at: null, read_at: null,
    });
  const chats = new Map([['team', row({ chat: chat({ head_sequence: 5 }) })]]);
  assert.equal(only(planOf(known({ chats }), [status('bob', 5, 3)]))?.latch, undefined);
  const plan = planOf(known({ chats }),
    [status('bob', 5, 3), status('cid', 4, 4), status('bob', 2, 2)]);
  assert.deepEqual(only(plan)?.latch, { delivered: 4, read: 3 });
});

void test('the own status confirms what was said', () => {
  const own = (acked: number, read: number) => [event('status_update', {
    chat_id: 'team', scope: 'member', user_id: 'ann', last_acked_sequence: acked,
    last_read_sequence: read, acked_at: null, read_at: null,
  })];
  assert.equal(only(planOf(known(), own(5, 3)))?.acknowledged, 5);
  // Another device may have read without an acknowledgement.
  assert.equal(only(planOf(known(), own(5, 5)))?.acknowledged, undefined);
  assert.equal(only(planOf(known({ said: () => 5 }), own(5, 5)))?.acknowledged, 5);
});

void test('own marks that are below what was read here are out of date', () => {
  const own = (through: number) => event('own_state', {
    chat_id: 'team', last_acked_sequence: 9, last_read_sequence: through,
    unread_from_sequence: null, unread_count: 7, mention_count: 0,
  });
  const chats = new Map([['team', row({ read: 4, prefix: 9 })]]);
  assert.equal(only(planOf(known({ chats }), [own(3)]))?.chat, undefined);
  const plan = planOf(known({ chats }), [own(5)]);
  assert.equal(only(plan)?.chat?.unread_count, 7);
  assert.deepEqual(plan.change.read, [{ chat_id: 'team', through: 5 }]);
});

const questions: [string, object, boolean][] = [
  ['membership', { chat_id: 'team', user_id: 'x', change: 'new', members_version: 2 }, true],
  ['chat_updated', { chat_id: 'team', version: 2 }, true],
  ['chat_updated', { chat_id: 'team', version: 1 }, false],
];
for (const [type, payload, asks] of questions) {
  const does = asks ? 'asks' : 'does not ask';
  void test(`${type} ${JSON.stringify(payload)} ${does} the server`, () => {
    assert.equal(planOf(known(), [event(type, payload)]).refresh.has('team'), asks);
  });
}

const resets: [string, string | null, boolean][] = [
  ['unknown_position', null, true], ['overflow', null, true], ['of_tomorrow', null, true],
  // They are announced by the session, and by the answer of the sync.
  ['unknown_session', null, false], ['ahead', 'team', false], ['restored', 'team', false],
];
for (const [reason, chat_id, needs] of resets) {
  void test(`a reset because of ${reason} ${needs ? 'needs' : 'needs no'} cursors`, () => {
    const plan = planOf(known(), [event('reset', { reason, chat_id, through: null })]);
    assert.equal(plan.reset, needs);
  });
}

void test('unknown types change nothing but the position', () => {
  const events = [says(1), event('of_tomorrow', {}, 9), event('typing',
    { chat_id: 'team', user_id: 'bob', expires_in_seconds: 6 })];
  assert.equal(lastId(events), 9);
  assert.equal(planOf(known(), events).change.entries.length, 1);
});

void test('chats that are not known are named', () => {
  const events = [says(1), says(1, { chat_id: 'new' })];
  assert.deepEqual([...unknownChats(new Map([['team', 1]]), events)], ['new']);
});

void test('an own message that overtakes others leaves them to be counted', () => {
  const own = message(3, { sender_id: 'ann' });
  const first = planOf(known(), [], [{ chat_id: 'team', from: 3, to: 3, message: own }]);
  assert.equal(first.change.entries.length, 1);
  const chats = new Map([['team', { ...row(), ...only(first) }]]);
  assert.equal(chats.get('team')?.chat.head_sequence, 0);
  const { change } = planOf(known({ chats }), [
    says(1), says(2, { mentions: { all: true, user_ids: [] } }), says(3, { sender_id: 'ann' }),
  ]);
  const { head_sequence, unread_count, mention_count } = only({ change } as never)?.chat ?? chat();
  assert.deepEqual([head_sequence, unread_count, mention_count], [3, 2, 1]);
});

void test('an answer that lacks a change is left out, until the change is in it', () => {
  const ahead = new Map<string, number>();
  const state = known({ chats: new Map([['team', row({ prefix: 1 })]]), ahead });
  const relation = { sequence: 3, sequences: null, emoji: null, target: null };
  planOf(state, [event('message', message(5, { kind: 'edit', relation }), 9)]);
  const take = (revision: Message['revision']) =>
    planOf(state, [], [2, 3, 4].map((n) => entryOf(message(n, n === 3 ? { revision } : {}))));
  const revision = { sequence: 5, kind: 'edit', by: 'bob', revised_at: '2026-01-31T10:00:09.000Z' };
  const early = take({ ...revision, sequence: 4 });
  assert.deepEqual([early.change.entries.map(({ from }) => from), early.outdated], [[2, 4], true]);
  const late = take(revision);
  assert.deepEqual([late.change.entries.map(({ from }) => from), late.outdated],
    [[2, 3, 4], false]);
  // After a redaction, nothing changes it.
  assert.equal(take({ ...revision, sequence: 4, kind: 'redact' }).outdated, false);
  // Other data have other messages at the same sequence.
  assert.deepEqual([...ahead.keys()], ['one team 3']);
});

void test('what is below a gap is not certain', () => {
  const chats = new Map([['team', row({ prefix: 9 })]]);
  const gap = { chat_id: 'team', from_sequence: 10, to_sequence: 12, reason: 'not_a_member' };
  const basesOf = (handled: number) =>
    planOf(known({ chats, handled: () => handled }), [event('gap', gap, 9)]).change.chats
      .map(({ base }) => base);
  assert.deepEqual([basesOf(Infinity), basesOf(7)], [[9], [7]]);
});
