// What the fake server says has the form of the real server's golden files.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { FakeServer, type Place } from '../../src/testing/index.js';

interface Example {
  readonly name: string;
  readonly schema?: string;
  readonly text: string;
}

const root = join(dirname(fileURLToPath(import.meta.url)), '../../../../..');

function golden(file: string): Example[] {
  const path = join(root, 'transports/internal/wire/testdata', `${file}.json`);
  return JSON.parse(readFileSync(path, 'utf8')) as Example[];
}

/** What applications put into objects of their own is of any form. */
const free = new Set(['metadata', 'attachments']);

/** Whether a value has the fields of an example, in any order. A null may stand for anything. */
function fits(value: unknown, example: unknown): boolean {
  if (value === null || example === null) return true;
  if (Array.isArray(value) && Array.isArray(example)) {
    const list = example as unknown[];
    return value.length === 0 || list.length === 0 ||
      value.every((one) => list.some((e) => fits(one, e)));
  }
  if (typeof value !== 'object' || typeof example !== 'object') {
    return typeof value === typeof example;
  }
  const [a, b] = [value as Record<string, unknown>, example as Record<string, unknown>];
  const names = Object.keys(a);
  return names.sort().join() === Object.keys(b).sort().join() &&
    names.every((name) => free.has(name) || fits(a[name], b[name]));
}

interface Heard {
  readonly frames: string[];
  readonly send: (frame: object) => void;
}

function socket(place: Place, user: string, query = ''): Heard {
  const { WebSocket } = place.platform;
  assert.ok(WebSocket);
  const frames: string[] = [];
  const ws = new WebSocket(`wss://chat.test/api/v1/ws?ticket=dev:${user}${query}`, 'tidemark.v1');
  ws.onmessage = (e) => frames.push(String(e.data));
  return { frames, send: (frame) => {
    ws.send(JSON.stringify(frame));
  } };
}

/** Runs through the protocol, and returns all frames and all bodies by schema. */
async function scenario(): Promise<{ frames: string[]; bodies: Map<string, unknown[]> }> {
  const server = new FakeServer({ statusFanout: 2 });
  const { clock } = server;
  const bodies = new Map<string, unknown[]>();
  const call = (schema: string, user: string, method: string, path: string, body?: object) => {
    const answer = server.call(user, method, path, body).body;
    bodies.set(schema, [...bodies.get(schema) ?? [], answer]);
    return answer;
  };
  const send = (user: string, chat: string, n: number): void => {
    call('Message', user, 'POST', `/chats/${chat}/messages`,
      { client_message_id: `m${String(n)}`, content: 'x', mentions: { user_ids: ['bob'] } });
  };
  const group = (id: string): object => ({ type: 'group', chat_id: id, member_ids: ['bob'] });
  call('Chat', 'ann', 'POST', '/chats', group('team'));
  call('Chat', 'ann', 'POST', '/chats', { ...group('town'), member_ids: ['bob', 'cid'] });
  call('Chat', 'ann', 'POST', '/chats', { type: 'direct', member_ids: ['bob'] });
  const bob = socket(server.place(), 'bob', '&device_id=a');
  const other = socket(server.place(), 'bob', '&device_id=b');
  await clock.run(1000);
  bob.send({ type: 'look', payload: { chat_ids: ['team', 'town'] } });
  const backup = server.backup();
  send('ann', 'team', 1);
  send('ann', 'town', 1);
  bob.send({ type: 'send_message', request_id: 'r',
    payload: { chat_id: 'team', client_message_id: 'f', content: 'x' } });
  bob.send({ type: 'send_message',
    payload: { chat_id: 'team', client_message_id: 'f', content: 'x' } });
  bob.send({ type: 'ping', request_id: 'p' });
  bob.send({ type: 'shout', request_id: 'q' });
  bob.send({ type: 'sync_request', request_id: 's', payload: {
    chats: [{ chat_id: 'team', last_acked_sequence: 9 }, { chat_id: 'no', last_acked_sequence: 1 }],
    status_updates: true } });
  await clock.run(1000);
  bob.send({ type: 'read', payload: { chat_id: 'team', last_read_sequence: 1 } });
  call('AckResults', 'ann', 'POST', '/acks', { chats: [
    { chat_id: 'town', last_acked_sequence: 1 }, { chat_id: 'no', last_acked_sequence: 1 }] });
  for (const user of ['bob', 'cid']) {
    call('AckResults', user, 'POST', '/acks', { chats: [
      { chat_id: 'town', last_acked_sequence: 1 }] });
  }
  server.call('ann', 'POST', '/chats/team/typing');
  call('Chat', 'ann', 'PATCH', '/chats/team', { name: 'Crew' });
  call('UpdatedMember', 'ann', 'PATCH', '/chats/team/members/bob', { role: 'admin' });
  await clock.run(1000);
  server.call('ann', 'DELETE', '/chats/team/members/bob');
  send('ann', 'team', 2);
  call('MemberList', 'ann', 'POST', '/chats/team/members', { user_ids: ['bob'] });
  send('ann', 'team', 3);
  for (const kind of ['react', 'pin']) {
    call('Message', 'ann', 'POST', '/chats/team/messages', {
      client_message_id: kind, kind, relation: { sequence: 4, emoji: kind === 'pin' ? null : '👍' },
    });
  }
  await clock.run(1000);
  const get = (schema: string, path: string): unknown => call(schema, 'bob', 'GET', path);
  get('ChatList', '/chats');
  get('MemberList', '/chats/team/members');
  get('MessageList', '/chats/team/messages');
  get('MessageList', '/chats/team/messages?reactions=true');
  get('ReactionList', '/chats/team/messages/4/reactions');
  get('PinList', '/chats/team/pins');
  get('DeliveryState', '/chats/team/delivery-state');
  get('DeliveryStateList', '/delivery-states');
  get('DeliveryStatus', '/chats/team/delivery-status');
  call('Ticket', 'bob', 'POST', '/tickets');
  call('SyncResponse', 'bob', 'POST', '/sync', {
    chats: [{ chat_id: 'team', last_acked_sequence: 0 }, { chat_id: 'no', last_acked_sequence: 0 }],
  });
  const incarnation = server.data.incarnation;
  socket(server.place(), 'bob', '&device_id=a');
  get('Poll', '/sessions');
  bodies.delete('Poll');
  await clock.run(1000);
  server.restore(backup);
  const again = socket(server.place(), 'bob', '&session_id=gone');
  await clock.run(1000);
  again.send({ type: 'sync_request', request_id: 't', payload: {
    session_id: sessionOf(again.frames),
    chats: [{ chat_id: 'team', last_acked_sequence: 2, incarnation }] } });
  await clock.run(1000);
  return { frames: [...bob.frames, ...other.frames, ...again.frames], bodies };
}

function sessionOf(frames: readonly string[]): unknown {
  const found = frames.map((f) => JSON.parse(f) as Record<string, unknown>)
    .find((f) => f['type'] === 'session');
  return (found?.['payload'] as Record<string, unknown> | undefined)?.['session_id'];
}

void test('answers of the fake server have the form of the golden ones', async () => {
  const { bodies } = await scenario();
  const examples = golden('responses').filter((e) => e.schema !== undefined);
  const known = new Set(examples.map((e) => e.schema ?? ''));
  for (const schema of known) assert.ok(bodies.has(schema), `${schema} was answered`);
  for (const [schema, all] of bodies) {
    if (!known.has(schema)) continue;
    const same = examples.filter((e) => e.schema === schema);
    for (const body of all) {
      assert.ok(same.some((e) => fits(body, JSON.parse(e.text))),
        `${schema}: ${JSON.stringify(body)}`);
    }
  }
});

void test('frames of the fake server have the form of the golden ones', async () => {
  const { frames } = await scenario();
  const examples = [...golden('events'), ...golden('replies')]
    .map((e) => JSON.parse(e.text) as Record<string, unknown>);
  const seen = new Set<string>();
  for (const text of frames) {
    const frame = JSON.parse(text) as Record<string, unknown>;
    seen.add(String(frame['type']));
    assert.ok(examples.some((e) => e['type'] === frame['type'] && fits(frame, e)), text);
  }
  // Problems without an answer come as a close code on a WebSocket.
  for (const { type } of examples) assert.ok(seen.has(String(type)), String(type));
});

void test('the fake server takes the golden frames of clients', async () => {
  const server = new FakeServer();
  server.call('ann', 'POST', '/chats', { type: 'group', chat_id: 'team', member_ids: [] });
  const ann = socket(server.place(), 'ann');
  await server.clock.run(1000);
  for (const example of golden('client_frames')) {
    ann.frames.length = 0;
    ann.send(JSON.parse(example.text) as object);
    await server.clock.run(1000);
    const malformed = ann.frames.filter((f) => f.includes('"code":"INVALID"'));
    assert.deepEqual(malformed, [], example.name);
  }
});

void test('an event stream of the fake server is written as the golden one', async () => {
  const server = new FakeServer();
  server.call('ann', 'POST', '/chats', { type: 'group', chat_id: 'team', member_ids: [] });
  const { platform } = server.place();
  const response = await Promise.race([
    platform.fetch(`${server.url}/api/v1/events?ticket=dev:ann`), server.clock.run(500),
  ]);
  assert.ok(response);
  const reader = response.body?.getReader();
  let text = '';
  for (let i = 0; i < 3; i++) {
    const part = await Promise.race([reader?.read(), server.clock.run(500)]);
    if (part?.value !== undefined) text += new TextDecoder().decode(part.value);
  }
  assert.match(text, /^:\nretry: \d+\nid: \w+\.1\nevent: session\ndata: \{.+\}\n\n/);
  const [first] = golden('sse');
  assert.match(first?.text ?? '', /^id: \w+\.1\nevent: session\ndata: \{.+\}\n\n$/);
});
