// The table of acknowledgements.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { newAcks, note, owed, takeAcks, unsaid } from '../../src/core/acks.js';
import { row } from './scene.js';

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
  note(acks, row({ prefix: 1 }), Infinity, 1, 1_000, 5_000);
  assert.equal(acks.due, 6_000);
  note(acks, row({ prefix: 2, read: 1 }), Infinity, 1, 2_000, 5_000);
  assert.equal(acks.due, 2_200);
  note(acks, row({ prefix: 10 }), Infinity, 8, 2_100, 5_000);
  assert.equal(acks.due, 2_100);
});

void test('the messages of several chats count together', () => {
  const acks = newAcks();
  for (let i = 0; i < 10; i++) {
    const one = row({ prefix: 1, chat: { ...row().chat, chat_id: `c${i}` } });
    note(acks, one, Infinity, 1, 0, 5_000);
  }
  assert.equal(acks.due, 0);
});

void test('what was taken is not sent again, unless it is not confirmed', () => {
  const acks = newAcks();
  const rows = rowsOf(row({ prefix: 3 }));
  note(acks, row({ prefix: 3 }), Infinity, 3, 0, 5_000);
  const taken = takeAcks(acks, rows, () => Infinity, 10);
  assert.deepEqual(taken, [{ chat_id: 'team', last_acked_sequence: 3 }]);
  assert.equal(acks.due, Infinity);
  note(acks, row({ prefix: 3 }), Infinity, 0, 0, 5_000);
  assert.deepEqual(takeAcks(acks, rows, () => Infinity, 10), []);
  unsaid(acks, taken);
  assert.equal(takeAcks(acks, rows, () => Infinity, 10).length, 1);
});
