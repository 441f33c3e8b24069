// What a timeline shows.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { contiguous, itemsOf, mergedEntries, outdated, wiped } from '../../src/core/timeline.js';
import type { Entry, OutboxItem } from '../../src/types.js';
import { item, message, row } from './scene.js';

const one = (n: number, over: object = {}): Entry =>
  ({ chat_id: 'team', from: n, to: n, message: message(n, over) });
const gap = (from: number, to: number): Entry => ({ chat_id: 'team', from, to });
const shown = (entries: Entry[], outbox: OutboxItem[] = [], latch = { delivered: 0, read: 0 }) =>
  itemsOf(entries, outbox, row({ latch }), 'ann', () => ({}), []);

void test('messages, gaps and holes, then what waits', () => {
  const items = shown([one(1), gap(2, 4), one(5, { sender_id: 'ann' }), one(8)],
    [item(9), item(10, { state: 'failed', problem: { code: 'X', detail: '' } })],
    { delivered: 5, read: 0 });
  assert.deepEqual(items.map(({ kind, sequence, tick }) => [kind, sequence, tick]), [
    ['message', 1, undefined], ['gap', 2, undefined], ['message', 5, 'delivered'],
    ['hole', 6, undefined], ['message', 8, undefined], ['waiting', undefined, 'sending'],
    ['waiting', undefined, 'failed'],
  ]);
});

void test('a kind of tomorrow is not shown', () => {
  assert.deepEqual(shown([one(1), one(2, { kind: 'poll' }), one(3, { kind: 'system' })])
    .map((one) => one.sequence), [1, 3]);
});

void test('a send is shown once, under one key', () => {
  const [waiting] = shown([], [item(1)]);
  const both = shown([one(1, { sender_id: 'ann', client_message_id: 'c1' })], [item(1)]);
  assert.deepEqual(both.map((one) => [one.key, one.kind]), [[waiting?.key, 'message']]);
});

void test('the same objects until something changes', () => {
  const entries = [one(1), one(2, { sender_id: 'ann' })];
  const first = shown(entries);
  const again = itemsOf(entries, [], row(), 'ann', () => ({}), first);
  assert.equal(again, first);
  const ticked = itemsOf(entries, [], row({ latch: { delivered: 2, read: 0 } }), 'ann', () => ({}),
    first);
  assert.deepEqual([ticked[0] === first[0], ticked[1] === first[1]], [true, false]);
});

void test('only what ends at a place without a hole', () => {
  const entries = [one(1), one(2), one(4), gap(5, 7), one(8)];
  assert.deepEqual(contiguous(entries, 8).map((entry) => entry.from), [4, 5, 8]);
  assert.deepEqual(contiguous(entries, 9), []);
  assert.deepEqual(mergedEntries([one(2), one(4)], [one(3), one(1)]).map((entry) => entry.from),
    [1, 2, 3, 4]);
});

const revision = (sequence: number, kind = 'edit') =>
  ({ sequence, kind, by: 'bob', revised_at: '2026-01-31T10:00:09.000Z' });
const relation = (n: number, sequence: number, kind = 'edit'): Entry =>
  one(n, { kind, relation: { sequence, emoji: null, target: null } });

void test('a message that the user changes says so, and what it will say', () => {
  const entries = [one(1, { sender_id: 'ann' }), one(2)];
  const [edited, deleted, ...rest] = shown(entries, [
    item(3, { kind: 'edit', relation: { sequence: 1 }, content: 'new' }),
    item(4, { kind: 'redact', relation: { sequence: 2 }, content: '' }),
  ]);
  assert.deepEqual([edited?.revising, edited?.content, edited?.tick], ['edit', 'new', 'sent']);
  assert.deepEqual([deleted?.revising, deleted?.content], ['redact', '']);
  assert.deepEqual(rest, []);
});

void test('what lacks a change is found', () => {
  const of = (entries: Entry[]) => [...outdated(entries)];
  assert.deepEqual(of([one(1), one(2), relation(3, 1), relation(4, 1, 'redact')]),
    [[1, true]]);
  assert.deepEqual(of([one(1), relation(3, 1)]), [[1, false]]);
  assert.deepEqual(of([one(1, { revision: revision(3) }), relation(3, 1)]), []);
  // A second redaction changes nothing.
  const first = revision(3, 'redact');
  assert.deepEqual(of([one(1, { revision: first }), relation(4, 1, 'redact')]), []);
  // A kind of tomorrow may be related to a message, and change nothing.
  assert.deepEqual(of([one(1), relation(3, 1, 'poll')]), []);
  // A reaction that was undone says nothing that could be left.
  assert.deepEqual(of([one(1), relation(3, 1, 'react'), relation(4, 3, 'redact')]), []);
});

void test('what lacks its redaction says nothing', () => {
  const entries = [one(1, { content: 'secret' }), one(2, { content: 'public' })];
  const says = (all: readonly Entry[]) => all.map((entry) => entry.message?.content);
  const change = [...entries, relation(3, 1, 'redact'), relation(4, 2)];
  assert.deepEqual(says(wiped(change)).slice(0, 2), ['', 'public']);
  assert.equal(wiped(entries), entries);
});
