// @tidemark/client/backend in Node, against the real server. Each call is made once at least. The
// bot and the backend of the client's README, too.

import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { blockWith } from '../../web/client/blocks.mjs';
import { until } from './browser.mjs';
import { bundle } from './client.mjs';

const { BackendError, CALLS, createBackend } = await bundle('src/backend/index.ts');
const url = process.env.TIDEMARK_TEST_URL;
const backend = createBackend({ url, apiKey: process.env.TIDEMARK_TEST_KEY });

const made = new Set();
const calls = Object.fromEntries(Object.keys(backend).map((name) => [name, (...args) => {
  made.add(name);
  return backend[name](...args);
}]));
after(() => {
  const missing = Object.keys(CALLS).filter((name) => !made.has(name));
  assert.deepEqual(missing, ['sendMessage', 'createToken'], 'token and send make these');
});

const code = (promise) => promise.then(() => 'no error', (error) => {
  assert.ok(error instanceof BackendError);
  return `${error.status} ${error.code}`;
});

test('chats and members, for itself and for a user', async () => {
  const member_ids = ['alice', 'bob'];
  const request = { type: 'group', client_chat_id: 'one', name: 'One', member_ids };
  const chat = await calls.createChat(null, request);
  const { chat_id } = chat;
  assert.equal((await calls.createChat(null, request)).chat_id, chat_id, 'a repeated request');
  assert.equal((await calls.getChat(null, { chat_id })).role, null);
  assert.equal((await calls.getChat('alice', { chat_id })).role, 'member');
  assert.equal((await calls.updateChat(null, { chat_id, name: 'Crew' })).name, 'Crew');
  const more = await calls.addMembers(null, { chat_id, user_ids: ['carol'], role: 'reader' });
  assert.equal(more.members.length, 3);
  const carol = await calls.updateMember(null, { chat_id, user_id: 'carol', role: 'admin' });
  assert.equal(carol.member.role, 'admin');
  assert.equal(await calls.removeMember(null, { chat_id, user_id: 'carol' }), undefined);
  const page = await calls.listMembers(null, { chat_id, limit: 1 });
  assert.equal(page.pagination.has_more, true);
  const next = await calls.listMembers(null, { chat_id, cursor: page.pagination.next_cursor });
  assert.deepEqual(next.members.map((member) => member.user_id), ['bob']);
  assert.deepEqual((await calls.listChats('bob')).chats.map((one) => one.chat_id), [chat_id]);
  const held = await calls.updateChat(null, { chat_id, keep_days: 30, hold: true });
  assert.deepEqual([held.keep_days, held.hold], [30, true]);
  assert.equal(await code(calls.deleteChat(null, { chat_id })), '409 CONFLICT');
  await calls.updateChat(null, { chat_id, hold: false });
  for (let n = 0; n < 2; n++) {
    assert.equal(await calls.deleteChat(null, { chat_id }), undefined);
  }
  assert.equal(await code(calls.getChat(null, { chat_id })), '404 NOT_FOUND');
  assert.deepEqual((await calls.listChats('bob')).chats, []);
});

test('messages, and what is delivered and read', async () => {
  const { chat_id } = await calls.createChat('dave', { type: 'direct', member_ids: ['erin'] });
  const draft = { client_message_id: 'a-1', content: 'hello', metadata: { order: 17 } };
  const message = await calls.send('dave', chat_id, draft);
  assert.deepEqual(await calls.send('dave', chat_id, draft), message, 'a repeated send');
  assert.equal(await code(calls.send('dave', chat_id, { ...draft, content: 'x' })), '409 CONFLICT');
  const { messages } = await calls.listMessages('erin', { chat_id, after_sequence: 0 });
  assert.deepEqual(messages, [{ ...message, reactions: null }]);
  assert.equal((await calls.getUnread('erin')).unread_count, 1);
  assert.equal((await calls.listPending('erin')).pending.length, 1);
  const acks = await calls.acknowledge('erin', { chats: [{ chat_id, last_acked_sequence: 1 }] });
  assert.equal(acks.results.length, 1);
  const state = await calls.updateDeliveryState('erin', { chat_id, last_read_sequence: 1 });
  assert.equal(state.last_read_sequence, 1);
  assert.equal((await calls.getDeliveryState('erin', { chat_id })).last_read_sequence, 1);
  assert.equal((await calls.listDeliveryStates('erin')).states.length, 1);
  assert.equal((await calls.markUnread('erin', { chat_id, from_sequence: 1 })).unread_count, 1);
  const status = await calls.getDeliveryStatus('dave', { chat_id, for_sequence: 1 });
  assert.deepEqual([status.chat_id, status.delivery_summary.sequence], [chat_id, 1]);
  const other = await calls.createChat('dave', { type: 'direct', member_ids: ['frank'] });
  const statuses = await calls.listStatuses('dave', { chat_id: [chat_id, other.chat_id] });
  assert.equal(statuses.results.length, 2);
  await calls.sendTyping('dave', { chat_id });
  const sync = await calls.sync('erin', { chats: [{ chat_id, last_acked_sequence: 0 }] });
  assert.ok(sync.chats.length > 0);
  const relation = { sequence: 1 };
  const react = { client_message_id: 'a-2', kind: 'react', relation: { ...relation, emoji: '👍' } };
  const { sequence } = await calls.send('erin', chat_id, react);
  const { reactions } = await calls.listReactions('dave', { chat_id, sequence: 1 });
  assert.deepEqual(reactions.map((one) => [one.user_id, one.emoji, one.sequence]),
    [['erin', '👍', sequence]]);
  const counted = await calls.listMessages('erin', { chat_id, limit: 9, reactions: true });
  assert.deepEqual(counted.messages[0].reactions,
    [{ emoji: '👍', count: 1, own_sequence: sequence }]);
  await calls.send('dave', chat_id, { client_message_id: 'a-3', kind: 'pin', relation });
  const { pins } = await calls.listPins('erin', { chat_id });
  assert.deepEqual(pins.map((one) => [one.pinned_by, one.message.content]), [['dave', 'hello']]);
});

test('notifications, and files without a place for them', async () => {
  assert.deepEqual((await calls.getPush('gina')).devices, []);
  assert.equal((await calls.putPushSettings('gina', { preview: 'none' })).preview, 'none');
  const device = { device_id: 'phone', platform: 'fcm', address: 'x' };
  assert.equal(await code(calls.registerDevice('gina', device)), '400 INVALID');
  assert.equal(await calls.dropDevice('gina', { device_id: 'phone' }), undefined);
  const file = { name: 'a', type: 'text/plain', size: 1, sha256: '0a'.repeat(32) };
  assert.match(await code(calls.createAttachment('gina', file)), /^4\d\d /);
  const place = { attachment_id: 'a', chat_id: 'nowhere', sequence: 1 };
  assert.match(await code(calls.getAttachment('gina', place)), /^4\d\d /);
});

test('tokens, tickets and sessions', async () => {
  const { token } = await calls.token('gina', { ttl_seconds: 60 });
  const headers = { Authorization: `Bearer ${token}` };
  const chats = await fetch(`${url}/api/v1/chats`, { headers });
  assert.equal(chats.status, 200);
  assert.equal((await calls.token('gina')).token.split('.').length, 3);
  const { ticket } = await calls.createTicket('gina');
  const poll = await fetch(`${url}/api/v1/poll?ticket=${ticket}&wait_seconds=0`);
  const { session_id } = await poll.json();
  const { sessions } = await calls.listSessions('gina');
  assert.deepEqual(sessions.map((one) => one.session_id), [session_id]);
  const { chat_id } = await calls.createChat('gina', { type: 'direct', member_ids: ['henry'] });
  assert.equal(await calls.putLook('gina', { session_id, chat_ids: [chat_id] }), undefined);
  const presence = await calls.getPresence('henry', { chat_id: [chat_id] });
  assert.match(JSON.stringify(presence), /"user_id":"gina","online":true/);
  await calls.putPresenceSettings('gina', { visible: false });
  await calls.putReceiptsSettings('gina', { chat_id, read_receipts: 'off' });
  assert.equal((await calls.getReceiptsSettings('gina', { chat_id })).hidden, true);
  await calls.endSession('gina', { session_id });
  assert.deepEqual((await calls.listSessions('gina')).sessions, []);
  assert.equal(await calls.endSessions('gina'), undefined);
});

test('suspensions and sign-outs', async () => {
  const user_id = 'mallory';
  const suspended = await calls.putSuspension(null, { user_id, reason: 'spam' });
  assert.equal(`${suspended.suspended} ${suspended.reason}`, 'true spam');
  assert.equal(await code(calls.listChats(user_id)), '403 DENIED');
  assert.equal((await calls.getSuspension(null, { user_id })).ends_at, null);
  assert.equal(await calls.deleteSuspension(null, { user_id }), undefined);
  await calls.listChats(user_id);
  const first = await calls.signOutUser(null, { user_id });
  const second = await calls.signOut(user_id);
  assert.ok(second.signed_out_at >= first.signed_out_at);
  const { entries } = await calls.listAudit(null, { user_id, operation: 'signOut', limit: 1 });
  assert.deepEqual(entries.map((one) => [one.actor_id, one.state]), [[user_id, 'done']]);
});

test('blocks, bans and erasures', async () => {
  const { chat_id } = await calls.createChat('olga', { type: 'direct', member_ids: ['paul'] });
  assert.equal(await calls.putBlock('olga', { user_id: 'paul' }), undefined);
  assert.deepEqual((await calls.listBlocks('olga')).blocks.map((one) => one.user_id), ['paul']);
  assert.equal((await calls.getChat('paul', { chat_id })).closed, true);
  const draft = { client_message_id: 'b-1', content: 'hello' };
  assert.equal(await code(calls.send('paul', chat_id, draft)), '403 DENIED');
  assert.equal(await calls.removeBlock('olga', { user_id: 'paul' }), undefined);
  await calls.send('paul', chat_id, draft);
  const group = await calls.createChat('olga', {
    type: 'group', client_chat_id: 'banned', member_ids: ['paul'],
  });
  const ban = { chat_id: group.chat_id, user_id: 'paul' };
  assert.equal(await calls.putBan('olga', ban), undefined);
  const { bans } = await calls.listBans('olga', { chat_id: group.chat_id });
  assert.deepEqual(bans.map((one) => one.user_id), ['paul']);
  const again = { chat_id: group.chat_id, user_ids: ['paul'] };
  assert.equal(await code(calls.addMembers('olga', again)), '403 DENIED');
  assert.equal(await calls.removeBan('olga', ban), undefined);
  await calls.addMembers('olga', again);
  const begun = await calls.startErasure(null, { user_id: 'paul' });
  assert.equal(begun.state, 'erasing');
  assert.equal((await calls.getErasure(null, { user_id: 'paul' })).asked_at, begun.asked_at);
  assert.equal(await code(calls.listChats('paul')), '403 DENIED');
});

test('problems are those of the server', async () => {
  const error = await calls.getChat(null, { chat_id: 'none' }).catch((one) => one);
  assert.ok(error instanceof BackendError && error instanceof Error);
  assert.equal(error.code, 'NOT_FOUND');
  assert.equal(error.status, 404);
  assert.equal(error.detail, error.message);
  assert.ok(error.detail.length > 0 && error.request_id.length > 0);
  const wrong = await calls.listChats('alice', { limit: 0 }).catch((one) => one);
  assert.equal(`${wrong.code} ${wrong.param}`, 'INVALID limit');
  const stranger = createBackend({ url, apiKey: 'tmk_wrong' });
  assert.equal(await code(stranger.getUnread('alice')), '401 UNAUTHENTICATED');
});

/** Runs a block of the client's README with what it imports, and returns one of its names. */
async function runBlock(text, names, name) {
  const code = blockWith('web/client/README.md', 'js', text).replace(/^import .*$/gm, '')
    .replaceAll('https://chat.example.com', url);
  const AsyncFunction = (async () => undefined).constructor;
  return new AsyncFunction(...Object.keys(names), `${code}\nreturn ${name}`)(
    ...Object.values(names));
}

test('the backend of the README makes a token, a chat and a message', async () => {
  const process_ = { env: { CHAT_KEY: process.env.TIDEMARK_TEST_KEY } };
  const chat_id = await runBlock('createBackend(', { createBackend, process: process_ }, 'chat_id');
  const { messages } = await backend.listMessages('bob', { chat_id, after_sequence: 0 });
  assert.deepEqual(messages.map(({ content }) => content), ['Paid']);
});

test('the bot of the README answers', async () => {
  const { createClient } = await bundle('src/index.ts');
  const fetch_ = async () => new Response((await backend.token('echo')).token);
  const bot = await runBlock('handle:', { createClient, fetch: fetch_ }, 'bot');
  try {
    const { chat_id } = await backend.createChat('hana', {
      type: 'direct', member_ids: ['echo'],
    });
    await backend.send('hana', chat_id, { client_message_id: 'b-1', content: 'hello' });
    const answers = async () =>
      (await backend.listMessages('hana', { chat_id, after_sequence: 1 })).messages
        .map(({ content }) => content);
    await until('the answer', async () =>
      (await answers()).join() === 'You said: hello', answers);
  } finally {
    await bot.stop();
  }
});
