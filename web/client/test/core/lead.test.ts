// The table of who leads.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { newLead, stepLead, TICK_MS, type Lead, type LeadInput } from '../../src/core/lead.js';

function scene(tabs = true, visible = true) {
  const lead: Lead = newLead(tabs, visible);
  let now = 0;
  return {
    lead,
    after(ms: number) { now += ms; return this; },
    does(input: LeadInput, at: Lead['at'], ...effects: string[]) {
      assert.deepEqual(stepLead(lead, input, now), effects, input);
      assert.equal(lead.at, at);
      return this;
    },
  };
}

const leading = (tabs = true) => scene(tabs).does('start', 'waiting', 'ask')
  .does('granted', 'leading', 'pong', 'lead');

void test('a tab asks for the lock and leads', () => {
  leading().does('start', 'leading').does('stop', 'off', 'release');
});

void test('a grant that comes too late is given back', () => {
  scene().does('start', 'waiting', 'ask').does('stop', 'off', 'release')
    .does('granted', 'off', 'release');
});

void test('a leader that was fenced asks again; without tabs it waits for the user', () => {
  leading().does('fenced', 'waiting', 'release', 'ask');
  leading(false).does('fenced', 'off', 'release').does('start', 'waiting', 'ask');
});

void test('a leader answers pings, and yields when it was hidden for 5 s', () => {
  leading().does('ping', 'leading', 'pong', 'reread').does('hidden', 'leading')
    .after(4_999).does('ping', 'leading', 'pong', 'reread')
    .after(1).does('ping', 'waiting', 'release', 'ask');
  leading().does('hidden', 'leading').after(9_000).does('visible', 'leading', 'reread')
    .does('ping', 'leading', 'pong', 'reread');
});

void test('a leader looks at the store by itself', () => {
  const lead = leading();
  for (let n = 1; n <= 10; n++) {
    lead.after(TICK_MS).does('tick', 'leading', ...n % 5 === 0 ? ['reread'] : []);
  }
});

void test('two pings without an answer: the leader is frozen', () => {
  scene().does('start', 'waiting', 'ask').after(TICK_MS).does('tick', 'waiting', 'reread', 'ping')
    .after(TICK_MS).does('tick', 'waiting', 'reread', 'ping')
    .after(TICK_MS).does('tick', 'waiting', 'steal');
});

void test('an answer, or a sleep of this tab itself, ends the count', () => {
  const waiting = scene().does('start', 'waiting', 'ask');
  for (let i = 0; i < 5; i++) {
    waiting.after(TICK_MS).does('tick', 'waiting', 'reread', 'ping').does('pong', 'waiting');
  }
  for (let i = 0; i < 5; i++) {
    waiting.after(8 * TICK_MS).does('tick', 'waiting', 'reread', 'ping');
  }
});

void test('a hidden tab steals nothing', () => {
  const hidden = scene(true, false).does('start', 'waiting', 'ask');
  for (let i = 0; i < 5; i++) hidden.after(TICK_MS).does('tick', 'waiting');
  hidden.does('visible', 'waiting', 'reread', 'ping');
});
