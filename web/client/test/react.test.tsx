// The hooks on a server, where nothing has started. test/browser/react.test.mjs has them in a page.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import type { ReactNode } from 'react';
import { renderToString } from 'react-dom/server';

import { createClient } from '../src/index.js';
import {
  TidemarkProvider, useChat, useChats, useConnection, useRow, useShown, useTimeline, useTyping,
  useUnread, useUnsent,
} from '../src/react/index.js';

function Everything(): ReactNode {
  const { phase, leader, durable } = useConnection();
  const { total, atLeast } = useUnread();
  const { items } = useTimeline('team');
  const all = [
    phase, leader, durable, total, atLeast, useUnsent(), useChats().length, items.length,
    useChat('team').id, useRow('team')?.chat.name ?? 'no row', useTyping('team').length,
    typeof useShown('team'),
  ];
  return <p>{all.join(' ')}</p>;
}

const client = () => createClient({
  url: 'http://127.0.0.1:1', user: 'alice',
  getToken: () => Promise.reject(new Error('a server asked for a token')),
});

void test('react: a server renders what there is before the start, and starts nothing', () => {
  const alice = client();
  const html = () => renderToString(
    <TidemarkProvider client={alice}><Everything /></TidemarkProvider>,
  );
  const want = '<p>stopped false false 0 false 0 0 0 team no row 0 function</p>';
  assert.equal(html(), want);
  assert.equal(html(), want, 'the second time');
  assert.equal(alice.state.get().phase, 'stopped');
});

void test('react: a hook without a provider says so', () => {
  assert.throws(() => renderToString(<Everything />), /TidemarkProvider/);
});

void test('react: the module is for clients, also after it was built', () => {
  const built = readFileSync(new URL('../src/react/index.js', import.meta.url), 'utf8');
  assert.match(built, /^'use client';/);
});
