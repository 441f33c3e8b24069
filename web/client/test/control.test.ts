// Control messages, in the sight of an application. The server is a fake.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { codeOf, type Refused } from '../src/index.js';
import { Scene } from './clients.js';

void test('a control message reaches every member, and no timeline shows it', async () => {
  const scene = new Scene('ann', 'bob');
  const { client: ann, place } = await scene.started('ann');
  const { client: bob } = await scene.started('bob');
  const shown = [ann, bob].map((one) => one.chat('team').timeline().items);
  scene.says('ann', 'one');
  await scene.until(() => shown.every((items) => items.get().length === 1));
  const heard: string[] = [];
  bob.on('message', ({ kind, content }) => { heard.push(`${kind}: ${content}`); });
  place.link.setOffline(true);
  const draft = { kind: 'control', content: 'offer' } as const;
  const sent = await scene.within(1_000, ann.chat('team').send(draft));
  await scene.until(() => ann.unsent.get() === 1);
  assert.equal(shown[0]?.get().length, 1);
  place.link.setOffline(false);
  const stored = await scene.within(60_000, sent.confirmed());
  assert.deepEqual([stored.kind, stored.content, stored.sequence], ['control', 'offer', 2]);
  await scene.until(() => heard.length > 0);
  assert.deepEqual(heard, ['control: offer']);
  await scene.pass(5_000);
  assert.deepEqual(shown.map((items) => items.get().length), [1, 1]);
  assert.equal(ann.unsent.get(), 0);
  const row = bob.chat('team').row.get();
  assert.deepEqual([row?.unread, row?.last?.sequence, row?.prefix], [1, 1, 2]);
});

void test('a control message that is refused leaves the outbox, and the page is told', async () => {
  const scene = new Scene('ann', 'bob');
  const { client } = await scene.started('ann');
  const told: Refused[] = [];
  client.on('refused', (event) => { told.push(event); });
  const draft = { kind: 'control', content: 'offer' } as const;
  const sent = await scene.within(1_000, client.chat('nowhere').send(draft));
  const why = await scene.within(20_000, sent.confirmed()).catch(codeOf);
  assert.equal(why, 'NOT_FOUND');
  await scene.until(() => client.unsent.get() === 0);
  assert.deepEqual(told.map(({ chat_id, kind, relation, content, problem }) =>
    [chat_id, kind, relation, content, problem.code]),
  [['nowhere', 'control', undefined, 'offer', 'NOT_FOUND']]);
});
