// The fake server does what the real core does in its own simulation: recorded runs are repeated.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { Replay, type Frame, type Line } from './replay.js';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../../../..');
const file = process.env['TIDEMARK_TRACE'] ?? join(root,
  'server/simulationtest/testdata/traces.jsonl');
const runs = readFileSync(file, 'utf8').split('\n\n').filter((run) => run.trim() !== '')
  .map((run) => run.trim().split('\n').map((line) => JSON.parse(line) as Line));

/** Returns each request with what followed it. */
function turns(lines: readonly Line[]): { ask: Line; answers: Frame[] }[] {
  const all: { ask: Line; answers: Frame[] }[] = [];
  for (const line of lines) {
    if (line.dir === 'out') all.push({ ask: line, answers: [] });
    else all.at(-1)?.answers.push(line.frame);
  }
  return all;
}

/**
 * Sorts what comes in any order: only messages and gaps of one chat have one. Statuses may be told
 * in one or in several events, so only the highest of each member counts.
 */
function determined(frames: readonly Frame[]): string[] {
  const chats = new Map<string, Frame[]>();
  const rest: string[] = [];
  const statuses = new Map<string, Frame>();
  for (const numbered of frames) {
    const frame = Object.fromEntries(Object.entries(numbered).filter(([name]) => name !== 'id'));
    const payload = (frame['payload'] ?? {}) as Frame;
    const { chat_id: chat, user_id: user } = payload;
    if (frame['type'] === 'status_update') {
      const key = `${String(chat)} ${String(user)}`;
      statuses.set(key, higher(statuses.get(key), payload));
    } else if (frame['type'] !== 'message' && frame['type'] !== 'gap') rest.push(canonical(frame));
    else chats.set(String(chat), [...chats.get(String(chat)) ?? [], frame]);
  }
  const sorted = (map: ReadonlyMap<string, unknown>): string[] => [...map].sort().map(canonical);
  return [...rest.sort(), ...sorted(statuses), ...sorted(chats)];
}

/** Returns the frames, of whose gaps only what the user has not acknowledged counts. */
function short(frames: readonly Frame[], user: string, replay: Replay): Frame[] {
  return frames.map((frame) => {
    if (frame['type'] !== 'gap') return frame;
    const payload = frame['payload'] as Frame;
    const acked = replay.acked(user, String(payload['chat_id']));
    const from = Math.max(Number(payload['from_sequence']),
      Math.min(acked + 1, Number(payload['to_sequence'])));
    return { ...frame, payload: { ...payload, from_sequence: from } };
  });
}

/**
 * Returns whether a frame is one that both must have. A message that another device of the user has
 * acknowledged may be left out, and an own state that is true may be told once more. When the user
 * is told of their own status, and by which node, is not determined.
 */
function surely(
  one: readonly Frame[], other: readonly Frame[], user: string, replay: Replay,
): (frame: Frame) => boolean {
  const named = ({ payload }: Frame): string => canonical(payload);
  const [here, there] = [new Set(one.map(named)), new Set(other.map(named))];
  return (frame) => {
    const { chat_id: chat, sequence, to_sequence: to, ...payload } =
      (frame['payload'] ?? {}) as Frame;
    const both = here.has(named(frame)) && there.has(named(frame));
    if (!both && frame['type'] === 'status_update' && payload['user_id'] === user) return false;
    if (!both && frame['type'] === 'own_state') return !replay.isOwnState(user, frame);
    return both || Number(sequence ?? to ?? Infinity) > replay.acked(user, String(chat));
  };
}

function higher(one: Frame | undefined, other: Frame): Frame {
  return Object.fromEntries(Object.entries(other).map(([name, value]) => {
    const before = one?.[name];
    return [name, typeof value === 'number' && typeof before === 'number'
      ? Math.max(value, before) : value];
  }));
}

/** JSON with sorted names. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_, v: unknown) => (
    typeof v !== 'object' || v === null || Array.isArray(v) ? v
      : Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : 1)))));
}

void test('the runs have every request and event', () => {
  const types = new Set(runs.flat().map(({ frame }) => frame['type'] ?? 'answer'));
  for (const type of ['create', 'send', 'add', 'remove', 'acknowledge', 'open', 'read', 'ack',
    'sync', 'cut', 'close', 'vanish', 'session', 'message', 'gap', 'status_update', 'own_state',
    'membership', 'reset', 'caught_up']) assert.ok(types.has(type), type);
});

for (const [seed, lines] of runs.entries()) {
  void test(`the run of seed ${seed} is repeated`, async () => {
    const replay = new Replay();
    const before: string[] = [];
    for (const { ask, answers } of turns(lines)) {
      const user = ask.device.split('.')[0] ?? '';
      const [got, want] = [await replay.ask(ask, answers), answers]
        .map((frames) => short(frames, user, replay)) as [Frame[], Frame[]];
      before.push(`${ask.t} ${ask.device} ${JSON.stringify(ask.frame)}`);
      const sure = surely(got, want, user, replay);
      const [one, other] = [got, want].map((all) => determined(all.filter(sure)));
      assert.deepEqual(one, other, before.slice(-12).map((l) => l.slice(0, 200)).join('\n'));
    }
  });
}
