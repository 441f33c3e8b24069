// What the calls of a backend do when the server does not answer well. That they fit the real
// server shows test/browser/backend.test.mjs.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';

import { BackendError, CALLS, createBackend, type CallForItself } from '../src/backend/index.js';

type Handler = (response: ServerResponse, request: IncomingMessage, body: string) => void;

const problem = (code: string) => JSON.stringify({
  type: 'about:blank', title: 'Bad', status: 400, code, detail: 'It is so.', param: 'name',
  request_id: 'R1',
});

const answer = (status: number, body: string, headers = {}): Handler => (response) => {
  response.writeHead(status, headers).end(body);
};

/** Runs a server that gives one answer after the other, and the last one for ever. */
async function serving(
  answers: readonly Handler[], during: (url: string, seen: string[]) => Promise<void>,
): Promise<void> {
  const seen: string[] = [];
  const server = createServer((request, response) => {
    let body = '';
    request.setEncoding('utf8').on('data', (part: string) => { body += part; });
    request.on('end', () => {
      seen.push(`${request.method ?? ''} ${request.url ?? ''} ${body}`);
      answers[Math.min(seen.length, answers.length) - 1]?.(response, request, body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  try {
    await during(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, seen);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const ok = answer(200, '{"chats": []}');
const at = (url: string, more = {}) => createBackend({ url, apiKey: 'tmk_x', ...more });

const failed = async (promise: Promise<unknown>): Promise<BackendError> => {
  const error: unknown = await promise.then(() => undefined, (one: unknown) => one);
  assert.ok(error instanceof BackendError, String(error));
  return error;
};

void test('backend: the calls are those of openapi.yaml', () => {
  const openapi = readFileSync(new URL('../../../../openapi.yaml', import.meta.url), 'utf8');
  const operations = new Map<string, string>();
  const alone = new Set<string>();
  const posts = new Set<string>();
  let [path, method, operation] = ['', '', ''];
  for (const line of openapi.slice(openapi.indexOf('\npaths:')).split('\n')) {
    path = /^ {2}(\/\S*):/.exec(line)?.[1] ?? path;
    method = /^ {4}(get|put|post|patch|delete):/.exec(line)?.[1] ?? method;
    const id = /^ {6}operationId: (\w+)/.exec(line)?.[1];
    if (id) {
      operation = id;
      operations.set(id, `${method.toUpperCase()} ${path}`);
      if (method === 'post') posts.add(id);
    }
    if (line.startsWith('      x-user: optional') && !path.startsWith('/admin/')) {
      alone.add(operation);
    }
    if (line.startsWith('      x-retry: ')) posts.delete(operation);
  }
  // Streams are for clients, exports are lines and no JSON, tokens are for handlers of
  // notifications, and the rest is for operators.
  for (const [id, call] of operations) {
    if (call.includes(' /admin/')) {
      operations.delete(id);
      posts.delete(id);
    }
  }
  for (const not of [
    'streamEvents', 'poll', 'connectWebSocket', 'health', 'ready', 'metrics', 'openapi',
    'acknowledgePush', 'exportUser',
  ]) assert.ok(operations.delete(not), not);
  assert.deepEqual(Object.entries(CALLS).sort(), [...operations].sort());
  const forItself: Record<CallForItself, true> = {
    createChat: true, getChat: true, updateChat: true, deleteChat: true, listMembers: true,
    addMembers: true,
    updateMember: true, removeMember: true, createToken: true, getDeliveryStatus: true,
    getSuspension: true, putSuspension: true, deleteSuspension: true, signOutUser: true,
    listBans: true, putBan: true, removeBan: true, startErasure: true, getErasure: true,
    listAudit: true,
  };
  alone.delete('exportUser');
  assert.deepEqual([...alone].sort(), Object.keys(forItself).sort());
  assert.deepEqual([...posts], [], 'a POST does not say why it may be repeated');
});

void test('backend: a call is made again until there is an answer', async () => {
  const now = { 'Retry-After': '0' };
  await serving([
    (response) => { response.destroy(); },
    answer(503, problem('UNAVAILABLE'), now),
    answer(502, '<html>no</html>', now),
    answer(404, 'a proxy does not know it', now),
    answer(403, '{"error": "a proxy refuses"}', now),
    answer(429, problem('RATE_LIMITED'), now),
    answer(307, '', { Location: '/elsewhere', ...now }),
    answer(200, '<html>a captive portal</html>', now),
    answer(201, '{"sequence": 1}'),
  ], async (url, seen) => {
    const backend = at(url, { tries: 9 });
    const draft = { client_message_id: 'a', content: 'hello' };
    const { sequence } = await backend.send('alice', 'team/1', draft);
    assert.equal(sequence, 1);
    const want = `POST /api/v1/chats/team%2F1/messages ${JSON.stringify(draft)}`;
    assert.deepEqual(seen, Array.from({ length: 9 }, () => want));
  });
});

void test('backend: it gives up after its tries, with the last reason', async () => {
  const busy = answer(503, problem('UNAVAILABLE'), { 'Retry-After': '0' });
  await serving([busy], async (url, seen) => {
    const error = await failed(at(url, { tries: 2 }).listChats('alice'));
    assert.equal(seen.length, 2);
    assert.deepEqual([error.code, error.status, error.detail], ['UNAVAILABLE', 503, 'It is so.']);
  });
  const error = await failed(at('http://127.0.0.1:1', { tries: 2 }).listChats('alice'));
  assert.deepEqual([error.code, error.status], ['UNREACHABLE', 0]);
  assert.ok(error.cause instanceof Error);
});

void test('backend: what is no user id, and a URL that ends in a slash', async () => {
  await serving([ok], async (url, seen) => {
    const error = await failed(at(`${url}//`).listChats('al\nice'));
    assert.deepEqual([error.code, error.name, seen.length], ['INVALID', 'BackendError', 0]);
    await at(`${url}//`).listChats('ann');
    assert.deepEqual(seen, ['GET /api/v1/chats ']);
  });
});

void test('backend: a refusal is final', async () => {
  for (const status of [400, 401, 403, 404, 409, 413, 422]) {
    await serving([answer(status, problem('DENIED')), ok], async (url, seen) => {
      const error = await failed(at(url).listChats('alice'));
      const { code, param, request_id } = error;
      assert.deepEqual([error.status, code, param, request_id], [status, 'DENIED', 'name', 'R1']);
      assert.equal(seen.length, 1);
    });
  }
});

void test('backend: a server that wants a long pause gets no further try', async () => {
  const busy = answer(429, problem('RATE_LIMITED'), { 'Retry-After': '3600' });
  await serving([busy, ok], async (url, seen) => {
    const { code, retryAt = 0 } = await failed(at(url).listChats('alice'));
    assert.equal(code, 'RATE_LIMITED');
    assert.ok(Math.abs(retryAt - Date.now() - 3_600_000) < 60_000, String(retryAt));
    assert.equal(seen.length, 1);
  });
});

void test('backend: it waits as long as the server says', async () => {
  const busy = answer(503, problem('UNAVAILABLE'), { 'Retry-After': '1' });
  await serving([busy, ok], async (url) => {
    const begin = Date.now();
    await at(url).listChats('alice');
    assert.ok(Date.now() - begin >= 990, 'it came back too early');
  });
});

void test('backend: a try that hangs ends, and the next one may work', async () => {
  await serving([() => undefined, ok], async (url, seen) => {
    assert.deepEqual(await at(url, { timeoutMs: 8_000 }).listChats('alice'), { chats: [] });
    assert.equal(seen.length, 2);
  });
});

void test('backend: a signal ends a call and its pauses at once', async () => {
  const begin = Date.now();
  await serving([() => undefined], async (url) => {
    const reason = new Error('enough');
    for (const ms of [0, 50]) {
      const abort = new AbortController();
      const call = at(url).listChats('alice', {}, { signal: abort.signal });
      setTimeout(() => { abort.abort(reason); }, ms);
      await assert.rejects(call, reason);
    }
  });
  await serving([answer(503, problem('UNAVAILABLE'), { 'Retry-After': '20' })], async (url) => {
    const abort = new AbortController();
    const call = at(url).listChats('alice', {}, { signal: abort.signal });
    setTimeout(() => { abort.abort(); }, 300);
    await assert.rejects(call, { name: 'AbortError' });
  });
  assert.ok(Date.now() - begin < 18_000, 'it took long');
});

void test('backend: lists in a query, no body where there is none, and who calls', async () => {
  const users: unknown[] = [];
  const record: Handler = (response, { headers }) => {
    users.push([headers['x-user-id'], headers.authorization, headers['content-type']]);
    response.end('{}');
  };
  await serving([record], async (url, seen) => {
    const backend = at(url);
    await backend.listStatuses('alice', { chat_id: ['a', 'b c'] });
    await backend.createTicket('alice');
    await backend.token('bob', { ttl_seconds: 60 });
    await backend.getChat(null, { chat_id: 'team' });
    assert.deepEqual(seen, [
      'GET /api/v1/statuses?chat_id=a&chat_id=b+c ', 'POST /api/v1/tickets ',
      'POST /api/v1/tokens {"ttl_seconds":60}', 'GET /api/v1/chats/team ',
    ]);
    const [key, json] = ['Bearer tmk_x', 'application/json'];
    assert.deepEqual(users, [
      ['alice', key, undefined], ['alice', key, undefined], ['bob', key, json],
      [undefined, key, undefined],
    ]);
  });
});
