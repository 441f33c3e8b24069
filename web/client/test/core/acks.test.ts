// The table of acknowledgements.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { newAcks, note, owed, takeAcks, toldOf, unsaid } from '../../src/core/acks.js';
import type { StoredChat } from '../../src/types.js';
import { message, row } from './scene.js';

const rowsOf = (...all: ReturnType<typeof row>[]) =>
  new Map(all.map((one) => [one.chat.chat_id, one]));

void test('owed is the prefix, within the limit, above what the server has or was told', () => {
  const stored = row({ prefix: 5, acknowledged: 2 });
  assert.deepEqual(owed(stored, Infinity, undefined), { chat_id: 'team', last_acked_sequence: 5 });
  assert.deepEqual(owed(stored, 3, undefined), { chat_id: 'team', last_acked_sequence: 3 });
  assert.equal(owed(stored, 2, undefined), undefined);
  assert.equal(owed(stored, Infinity, { acked: 5, read: 0 }), undefined);
  assert.equal(owed({ ...stored, left: true }, Infinity, undefined), undefined);
});

void test('what is read is received, too', () => {
  const stored = row({ prefix: 5, read: 4 });
  assert.deepEqual(owed(stored, 0, undefined),
    { chat_id: 'team', last_acked_sequence: 4, last_read_sequence: 4 });
});

void test('stored waits 5 s, read 200 ms, ten messages nothing', () => {
  const acks = newAcks();
  note(acks, row({ prefix: 1 }), Infinity, 1, 1_000, 5_000, 'ann');
  assert.equal(acks.due, 6_000);
  note(acks, row({ prefix: 2, read: 1 }), Infinity, 1, 2_000, 5_000, 'ann');
  assert.equal(acks.due, 2_200);
  note(acks, row({ prefix: 10 }), Infinity, 8, 2_100, 5_000, 'ann');
  assert.equal(acks.due, 2_100);
});

void test('the messages of several chats count together', () => {
  const acks = newAcks();
  for (let i = 0; i < 10; i++) {
    const one = row({ prefix: 1, chat: { ...row().chat, chat_id: `c${i}` } });
    note(acks, one, Infinity, 1, 0, 5_000, 'ann');
  }
  assert.equal(acks.due, 0);
});

void test('what was taken is not sent again, unless it is not confirmed', () => {
  const acks = newAcks();
  const rows = rowsOf(row({ prefix: 3 }));
  note(acks, row({ prefix: 3 }), Infinity, 3, 0, 5_000, 'ann');
  const taken = takeAcks(acks, rows, () => Infinity, 10, 0);
  assert.deepEqual(taken, [{ chat_id: 'team', last_acked_sequence: 3 }]);
  assert.equal(acks.due, Infinity);
  note(acks, row({ prefix: 3 }), Infinity, 0, 0, 5_000, 'ann');
  assert.deepEqual(takeAcks(acks, rows, () => Infinity, 10, 0), []);
  unsaid(acks, taken);
  assert.equal(takeAcks(acks, rows, () => Infinity, 10, 0).length, 1);
});

/** A chat whose last message is of Ann. */
const mine = (prefix: number, over: Parameters<typeof row>[0] = {}) =>
  row({ prefix, last: message(prefix, { sender_id: 'ann' }), ...over });

void test('own messages wait 6 s, and again when the server has kept up', () => {
  const acks = newAcks();
  const noted = (one: StoredChat, now: number) => {
    note(acks, one, Infinity, 1, now, 5_000, 'ann');
    return acks.due;
  };
  const taken = (one: StoredChat, now: number) =>
    takeAcks(acks, rowsOf(one), () => Infinity, 10, now)[0]?.last_acked_sequence;
  assert.equal(noted(mine(1), 0), 6_000);
  assert.equal(noted(mine(2), 3_000), 6_000);
  assert.equal(toldOf(acks, mine(2)), 2);
  // The server has told of the first one: the others have time.
  assert.equal(taken(mine(2, { acknowledged: 1 }), 6_000), undefined);
  assert.equal(acks.due, 12_000);
  assert.equal(noted(mine(3, { acknowledged: 1 }), 7_000), 12_000);
  assert.equal(taken(mine(3, { acknowledged: 1 }), 12_000), 3);
  // What was said is waited for by itself.
  assert.equal(noted(mine(4, { acknowledged: 1 }), 20_000), 26_000);
  assert.equal(taken(mine(4, { acknowledged: 1 }), Infinity), 4);
});

void test('ten own messages are no reason to hurry', () => {
  const acks = newAcks();
  for (let n = 1; n <= 20; n++) note(acks, mine(n), Infinity, 1, 0, 5_000, 'ann');
  assert.equal(acks.due, 6_000);
});

void test('an own message that does not join what is acknowledged or read does not wait', () => {
  for (const [over, due] of [
    [{ acknowledged: 4 }, 6_000],
    [{ acknowledged: 3 }, 5_000],
    [{ acknowledged: 4, read: 5, readConfirmed: 4 }, 6_000],
    [{ acknowledged: 4, read: 5, readConfirmed: 3 }, 200],
    [{ acknowledged: 4, last: message(5, { sender_id: 'bob' }) }, 5_000],
    [{ acknowledged: 4, last: message(4, { sender_id: 'ann' }) }, 5_000],
  ] as const) {
    const acks = newAcks();
    note(acks, mine(5, over), Infinity, 1, 0, 5_000, 'ann');
    assert.equal(acks.due, due, JSON.stringify(over));
    assert.equal(toldOf(acks, mine(5, over)), due === 6_000 || due === 200 ? 5 : 0);
  }
});

void test('a message of somebody else ends the wait, and so do other data', () => {
  const acks = newAcks();
  note(acks, mine(1), Infinity, 1, 0, 5_000, 'ann');
  note(acks, row({ prefix: 2, last: message(2) }), Infinity, 1, 500, 5_000, 'ann');
  assert.equal(acks.due, 5_500);
  note(acks, mine(2, { incarnation: 'two' }), Infinity, 1, 0, 5_000, 'ann');
  assert.equal(toldOf(acks, mine(2, { incarnation: 'two' })), 0);
});
