// How many reactions a message has.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  countsOf, reactionsOf, uncounted, type Counted, type Counts,
} from '../../src/core/reactions.js';
import { itemsOf } from '../../src/core/timeline.js';
import type { EmojiCount, Entry, OutboxItem } from '../../src/types.js';
import type { ListedMessage } from '../../src/wire.gen.js';
import { item, message, row } from './scene.js';

const one = (n: number, over: object = {}): Entry =>
  ({ chat_id: 'team', from: n, to: n, message: message(n, over) });
const gap = (from: number, to: number): Entry => ({ chat_id: 'team', from, to });
const react = (n: number, sequence: number, emoji: string, sender_id = 'bob'): Entry =>
  one(n, { kind: 'react', content: '', sender_id, relation: { sequence, emoji, target: null } });
const redact = (n: number, sequence: number): Entry =>
  one(n, { kind: 'redact', content: '', relation: { sequence, emoji: null, target: null } });
const counted = (through: number, ...reactions: EmojiCount[]): Counted => ({ through, reactions });
const thumb = (count: number, own: number | null = null): EmojiCount =>
  ({ emoji: '👍', count, mine: own !== null, own });

/** What Ann sees: `1 👍2*5` is message 1, with two thumbs, of which hers is message 5. */
const seen = (entries: Entry[], counts: Counts = new Map(), outbox: OutboxItem[] = []): string[] =>
  [...reactionsOf(entries, counts, outbox, 'ann')].map(([sequence, all]) =>
    [sequence, ...all.map(({ emoji, count, mine, own }) =>
      `${emoji}${count}${mine ? '*' : ''}${own ?? ''}`)].join(' '));

void test('reactions are counted by message and emoji', () => {
  assert.deepEqual(seen([
    one(1), one(2), react(3, 1, '👍'), react(4, 2, '👍', 'ann'), react(5, 1, '👍', 'ann'),
    react(6, 1, '🎉', 'cid'),
  ]), ['1 👍2*5 🎉1', '2 👍1*4']);
});

void test('a reaction that was undone does not count', () => {
  const all = [one(1), react(2, 1, '👍', 'ann'), react(3, 1, '👍')];
  assert.deepEqual(seen([...all, redact(4, 2)]), ['1 👍1']);
  assert.deepEqual(seen([...all, redact(4, 3)]), ['1 👍1*2']);
  assert.deepEqual(seen([...all, redact(4, 2), redact(5, 3)]), []);
  assert.deepEqual(seen([...all, redact(4, 2), react(5, 1, '👍', 'ann')]), ['1 👍2*5']);
  // A second redaction takes nothing away, and neither does one of a message.
  assert.deepEqual(seen([...all, redact(4, 2), redact(5, 2), redact(6, 1)]), ['1 👍1']);
});

void test('what the server has counted is not counted again', () => {
  const counts = new Map([[1, counted(4, thumb(2, 2))]]);
  const all = [one(1), react(2, 1, '👍', 'ann'), react(3, 1, '👍'), one(4)];
  assert.deepEqual(seen(all, counts), ['1 👍2*2']);
  assert.deepEqual(seen([...all, react(5, 1, '👍', 'cid')], counts), ['1 👍3*2']);
  assert.deepEqual(seen([...all, redact(5, 3)], counts), ['1 👍1*2']);
  assert.deepEqual(seen([...all, redact(5, 2)], counts), ['1 👍1']);
  assert.deepEqual(seen([...all, redact(5, 2), redact(6, 3)], counts), []);
  // The answer may be newer than the stream.
  assert.deepEqual(seen([...all, redact(5, 3)], new Map([[1, counted(5, thumb(1, 2))]])),
    ['1 👍1*2']);
});

void test('what waits for the server counts already', () => {
  const reacts = (emoji: string) =>
    item(1, { kind: 'react', relation: { sequence: 1, emoji }, content: '' });
  const undoes = (sequence: number) =>
    item(2, { kind: 'redact', relation: { sequence }, content: '' });
  const all = [one(1), react(2, 1, '👍', 'ann'), react(3, 1, '👍')];
  assert.deepEqual(seen([one(1)], new Map(), [reacts('👍')]), ['1 👍1*']);
  assert.deepEqual(seen(all, new Map(), [reacts('🎉')]), ['1 👍2*2 🎉1*']);
  assert.deepEqual(seen(all, new Map(), [undoes(2)]), ['1 👍1']);
  assert.deepEqual(seen(all, new Map(), [undoes(2), reacts('👍')]), ['1 👍2*']);
  // It is stored, and has not left the outbox.
  assert.deepEqual(seen(all, new Map(), [reacts('👍')]), ['1 👍2*2']);
  assert.deepEqual(seen([...all, redact(4, 2)], new Map(), [undoes(2)]), ['1 👍1']);
  assert.deepEqual(seen(all, new Map(), [undoes(2), undoes(2)]), ['1 👍1']);
  // An answer of the server is newer than the stream.
  assert.deepEqual(seen(all, new Map([[1, counted(9, thumb(1))]]), [undoes(2)]), ['1 👍1']);
  assert.deepEqual(seen([one(1)], new Map([[1, counted(9, thumb(2, 5))]]), [undoes(5)]),
    ['1 👍1']);
  // An admin takes back what somebody else has given.
  assert.deepEqual(seen(all, new Map(), [undoes(3)]), ['1 👍2*2']);
});

void test('what a gap may hide is asked for, the newest first', () => {
  const all = [one(1), one(2), gap(3, 5), one(6), one(7)];
  assert.deepEqual(uncounted(all, new Map()), [2, 1]);
  assert.deepEqual(uncounted(all, new Map([[1, counted(5)], [2, counted(4)]])), [2]);
  assert.deepEqual(uncounted([gap(1, 5), one(6), react(7, 6, '👍')], new Map()), []);
  // An older server counts nothing.
  assert.deepEqual(uncounted(all, new Map([[1, counted(0)], [2, counted(0)]])), []);
  // The reaction that is undone is in the gap, so nobody knows to which message it was.
  const undone = [...all, redact(8, 4)];
  assert.deepEqual(uncounted(undone, new Map([[1, counted(7)], [2, counted(8)]])), [1]);
  const other = [...all, redact(8, 7)];
  assert.deepEqual(uncounted(other, new Map([[1, counted(7)], [2, counted(7)]])), []);
});

void test('a page of history says what it has counted', () => {
  const listed = (n: number, reactions: unknown): ListedMessage =>
    ({ ...message(n), reactions: reactions as ListedMessage['reactions'] });
  const page = (through: number | null, ...messages: ListedMessage[]) => [...countsOf({
    messages, gaps: [], reactions_through_sequence: through,
    pagination: { has_more: false, next_cursor: null },
  })];
  const got = [{ emoji: '👍', count: 2, own_sequence: 3 }];
  assert.deepEqual(page(9, listed(1, got), listed(2, [])), [
    [1, counted(9, thumb(2, 3))], [2, counted(9)],
  ]);
  // What is broken counts as nothing, and an older server counts nothing.
  assert.deepEqual(page(9, listed(1, [{ emoji: 1, count: 'x' }])), [[1, counted(9)]]);
  assert.deepEqual(page(9, listed(1, [{ emoji: '👍', count: 2, own_sequence: 'x' }])),
    [[1, counted(9, thumb(2))]]);
  assert.deepEqual(page(null, listed(1, null)), [[1, counted(0)]]);
  // After its update, the stream brings reactions.
  assert.deepEqual(seen([one(1), react(2, 1, '👍')], new Map([[1, counted(0)]])), ['1 👍1']);
});

void test('an item has the reactions to its message, and changes only with them', () => {
  const entries = [one(1), one(2), react(3, 1, '👍'), react(4, 2, '👍')];
  const items = (all: Entry[], old: ReturnType<typeof itemsOf> = []) =>
    itemsOf(all, [], row(), 'ann', () => ({}), old);
  const first = items(entries);
  assert.deepEqual(first.map(({ reactions }) => reactions), [[thumb(1)], [thumb(1)]]);
  assert.equal(items([...entries, one(5, { kind: 'control' })], first)[0], first[0]);
  const next = items([...entries, react(5, 2, '👍', 'cid')], first);
  assert.deepEqual([next[0] === first[0], next[1]?.reactions], [true, [thumb(2)]]);
  const revision =
    { sequence: 5, kind: 'redact', by: 'bob', revised_at: '2026-01-31T10:00:09.000Z' };
  const [deleted] = items([one(1, { content: '', revision }), ...entries.slice(1)]);
  assert.equal(deleted?.reactions, undefined);
});
