// The table of a send.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Answer } from '../../src/core/ended.js';
import { bodyOf, dueSends, isUsedUp, newAttempts, newSendId, refused }
  from '../../src/core/outbox.js';
import { item } from './scene.js';

const DAY = 86_400_000;
const AT = Date.UTC(2026, 0, 31);
const id = newSendId(AT, new Uint8Array(16).fill(0xab));
const due = item(1, { client_message_id: id });

const no = (status: number, code: string, param?: string): Extract<Answer, { is: 'refused' }> => ({
  is: 'refused', status, problem: { code, detail: '' }, ...param !== undefined && { param },
});

void test('an id is a UUID of version 7 with its time', () => {
  assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.ok(newSendId(AT + 1, new Uint8Array(16)) > id);
});

void test('one send of a chat is in flight, the oldest; of 8 chats', () => {
  const outbox = [item(1), item(2), item(3, { chat_id: 'b' }), item(4, { chat_id: 'c' })];
  assert.deepEqual(dueSends(outbox, new Set(['b'])).map((one) => one.ordinal), [1, 4]);
  const many = Array.from({ length: 12 }, (_, i) => item(i, { chat_id: `c${i}` }));
  assert.equal(dueSends(many, new Set(['x'])).length, 7);
});

void test('a failed send holds nothing up', () => {
  const outbox = [item(1, { state: 'failed' }), item(2)];
  assert.deepEqual(dueSends(outbox, new Set()).map((one) => one.ordinal), [2]);
});

void test('the body is the same in each try', () => {
  const body = bodyOf(due, newAttempts());
  assert.deepEqual(body, bodyOf(due, newAttempts()));
  assert.equal((body as { send_by: string }).send_by, new Date(AT + 5 * DAY).toISOString());
});

interface Case {
  readonly on: string;
  readonly answers: readonly Exclude<Answer, { is: 'ok' }>[];
  readonly now?: number;
  readonly then: unknown;
}
const table: Case[] = [
  { on: 'no answer', answers: [{ is: 'retry', status: 0 }], then: { pause: true } },
  { on: '429', answers: [{ is: 'retry', status: 429 }], then: { pause: true } },
  { on: '500 nine times', answers: Array(9).fill({ is: 'retry', status: 500 }) as Answer[] as [],
    then: { pause: true } },
  { on: '500 ten times', answers: Array(10).fill({ is: 'retry', status: 500 }) as Answer[] as [],
    then: 'INTERNAL' },
  { on: '503 ten times', answers: Array(10).fill({ is: 'retry', status: 503 }) as Answer[] as [],
    then: { pause: true } },
  { on: 'a bare 413 thrice', answers: Array(3).fill({ is: 'retry', status: 413 }) as Answer[] as [],
    then: 'TOO_LARGE' },
  { on: '422', answers: [no(422, 'INVALID_SEQUENCE')], then: { pause: false } },
  { on: '422 without seen', answers: [no(422, 'INVALID_SEQUENCE'), no(422, 'INVALID_SEQUENCE')],
    then: 'INVALID_SEQUENCE' },
  { on: 'a fast clock', answers: [no(400, 'INVALID', 'send_by')], then: { pause: false } },
  { on: 'a slow clock', answers: [no(409, 'EXPIRED', 'send_by')], then: { pause: false } },
  { on: 'an end that is over', answers: [no(409, 'EXPIRED', 'send_by')], now: AT + 5 * DAY,
    then: 'EXPIRED' },
  { on: 'CONFLICT', answers: [no(409, 'CONFLICT')], then: 'CONFLICT' },
  { on: '403', answers: [no(403, 'NOT_A_MEMBER')], then: 'NOT_A_MEMBER' },
];

for (const { on, answers, now = AT, then } of table) {
  void test(`after ${on}: ${JSON.stringify(then)}`, () => {
    const attempts = newAttempts();
    const results = answers.map((answer) => refused(due, answer, attempts, now));
    const last = results[results.length - 1];
    const got = last && 'failed' in last ? last.failed.code : last;
    assert.deepEqual(got, then);
  });
}

void test('what the server refused is left out, under the same id', () => {
  const attempts = { ...newAttempts(), withoutSeen: true, withoutEnd: true };
  const send = item(1, { client_message_id: id, seen: 9 });
  const body = bodyOf(send, attempts) as Record<string, unknown>;
  assert.deepEqual([body['client_message_id'], body['seen_sequence'], body['send_by']],
    [id, 0, undefined]);
});

void test('only an id that is used up is given up', () => {
  assert.deepEqual(['CONFLICT', 'EXPIRED', 'INTERNAL'].map((code) =>
    isUsedUp({ code, detail: '' })), [true, true, false]);
});

void test('a change of a message says what it is', () => {
  const change = { ...due, kind: 'edit' as const, relation: { sequence: 7 } };
  const { kind, relation } = bodyOf(change, newAttempts()) as typeof change;
  assert.deepEqual([kind, relation], ['edit', { sequence: 7 }]);
  assert.equal('kind' in JSON.parse(JSON.stringify(bodyOf(due, newAttempts()))), false);
});
