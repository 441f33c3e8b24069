// What comes over the wire.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { answerOf, endedBy, endedByClose, endedByProblem } from '../../src/core/ended.js';
import { fraction, hinted, pauseAfter } from '../../src/core/pause.js';
import { eventOf, has } from '../../src/wire/events.js';
import { sseParser, type Part } from '../../src/wire/sse.js';
import { message } from './scene.js';

const stream = ':\r\nretry: 2400\r\nid: S.x.1\nevent: session\ndata: {"a":\ndata: 1}\n\n'
  + 'event: typing\rdata: {}\r\r' + 'data: half';

void test('a stream is parsed the same, however it is cut', () => {
  const whole = sseParser()(stream);
  assert.deepEqual(whole, [{}, { retry: 2400 },
    { id: 'S.x.1', type: 'session', data: '{"a":\n1}' }, { type: 'typing', data: '{}' }] satisfies
    Part[]);
  for (let size = 1; size < stream.length; size++) {
    const parse = sseParser();
    const parts: Part[] = [];
    for (let i = 0; i < stream.length; i += size) parts.push(...parse(stream.slice(i, i + size)));
    assert.deepEqual(parts, whole, `${size}`);
  }
});

const refusal = JSON.stringify({ code: 'INVALID', detail: 'no', param: 'limit' });
const answers: [status: number, after: string | null, body: string, got: string][] = [
  [200, null, '{}', 'ok'], [204, null, '', 'ok'], [200, null, '<html>', 'retry'],
  [400, null, refusal, 'refused'], [400, null, '<html>', 'retry'], [404, null, '', 'retry'],
  [401, null, refusal, 'retry'], [408, null, refusal, 'retry'], [429, '3', refusal, 'retry 3500'],
  [503, '2', '<html>', 'retry 2500'], [503, '99999', '', 'retry 300000'],
  [302, null, '{}', 'retry'],
  [403, null, '{"code": "DENIED", "param": "X-User-ID"}', 'retry'],
];
for (const [status, after, body, got] of answers) {
  void test(`${status} ${after ?? ''} ${body}: ${got}`, () => {
    const answer = answerOf(status, after, body, 0.5);
    const wait = answer.is === 'retry' && answer.after !== undefined ? ` ${answer.after}` : '';
    assert.equal(`${answer.is}${wait}`, got);
  });
}

const closes: [code: number, reason: string, why: string][] = [
  [1000, '', 'cut'], [1006, '', 'cut'], [1009, '', 'cut'], [1011, '', 'cut'], [4408, '', 'cut'],
  [1003, '', 'refused'], [1007, '', 'refused'], [1008, '', 'refused'], [4403, '', 'refused'],
  [4401, '', 'token'], [4409, '', 'replaced'], [4999, '', 'cut'],
  [1012, 'restarting; retry-after=2.4', 'wait 2400'], [1013, 'busy; retry-after=1', 'wait 1000'],
  [4429, 'too many; retry-after=86400', 'wait 300000'], [1012, 'restarting', 'cut'],
];
for (const [code, reason, why] of closes) {
  void test(`close ${code} ${reason}: ${why}`, () => {
    const ended = endedByClose(code, reason);
    assert.equal(ended.why === 'wait' ? `wait ${ended.ms}` : ended.why, why);
  });
}

void test('what a stream ends with', () => {
  assert.equal(endedByProblem('REPLACED', undefined).why, 'replaced');
  assert.equal(endedByProblem('UNAUTHENTICATED', undefined).why, 'token');
  assert.deepEqual(endedByProblem('DENIED', 3_600_000, 'you are suspended: spam'),
    { why: 'refused', problem: { code: 'DENIED', detail: 'you are suspended: spam' } });
  assert.deepEqual(endedByProblem('UNAVAILABLE', 1_500), { why: 'wait', ms: 1_500 });
  assert.equal(endedByProblem('INTERNAL', undefined).why, 'cut');
  const problem = (status: number, code: string) =>
    endedBy(answerOf(status, null, JSON.stringify({ code, detail: '' }), 0)).why;
  assert.deepEqual([problem(409, 'REPLACED'), problem(410, 'SESSION_GONE'), problem(401, 'X'),
    problem(400, 'INVALID'), problem(500, 'INTERNAL')],
  ['replaced', 'gone', 'token', 'refused', 'cut']);
});

void test('pauses are random up to a limit that doubles', () => {
  assert.deepEqual([0, 1, 6, 99].map((n) => pauseAfter(n, 1)), [500, 1_000, 30_000, 30_000]);
  assert.equal(pauseAfter(3, 0), 0);
  assert.deepEqual([hinted(-1), hinted(10), hinted(1e9)], [0, 10, 300_000]);
  assert.equal(fraction(new Uint8Array([0, 128])), 0.5);
});

const broken: [type: unknown, payload: unknown, id?: unknown][] = [
  [undefined, {}], ['message', null], ['message', { ...message(1), sequence: '1' }],
  ['message', { ...message(1), sequence: 1.5 }], ['message', { ...message(1), sequence: -1 }],
  ['message', { ...message(1), chat_id: 7 }], ['message', message(1), 'x'],
  ['message', message(1), 2 ** 53], ['gap', { chat_id: 'team', from_sequence: 1 }],
  ['status_update', { scope: 'member', chat_id: 'team' }],
];
for (const [type, payload, id] of broken) {
  void test(`${JSON.stringify([type, id, payload]).slice(0, 80)} is broken`, () => {
    assert.equal(eventOf(id, type, payload), undefined);
  });
}

void test('what is not known is no harm', () => {
  assert.deepEqual(eventOf(4, 'of_tomorrow', null), { id: 4, type: 'unknown' });
  assert.deepEqual(eventOf(4, 'status_update', { scope: 'planet' }), { id: 4, type: 'unknown' });
  assert.deepEqual(eventOf(4, '$chat', {})?.type, undefined);
  assert.equal(eventOf(4, 'message', { ...message(1), more: 1 })?.type, 'message');
  assert.ok(has('$messages', { messages: [message(1)], gaps: [] }));
  assert.ok(!has('$messages', { messages: [{}], gaps: [] }));
});
