// The table of the link.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import type { Ended } from '../../src/core/ended.js';
import { newLink, stepLink, type Link, type LinkEffect, type LinkInput }
  from '../../src/core/link.js';

const MINUTE = 60_000;

/** A link, and the last effects, in words. */
class Scene {
  readonly link: Link = newLink();
  now = 0;
  effects: string[] = [];

  do(input: LinkInput, random = 1): this {
    this.effects = stepLink(this.link, input, this.now, random, 3).map(words);
    return this;
  }

  ends(why: Ended['why'], more: object = {}): this {
    const id = this.link.trying || this.link.open;
    return this.do({ on: 'ended', id, ended: { why, ...more } as Ended });
  }

  opens(): this {
    return this.do({ on: 'opened', id: this.link.trying });
  }

  passes(ms: number): this {
    this.now += ms;
    return this;
  }

  is(at: Link['at'], ...effects: string[]): this {
    assert.deepEqual([this.link.at, ...this.effects], [at, ...effects]);
    return this;
  }
}

function words(effect: LinkEffect): string {
  switch (effect.do) {
    case 'open': return `open ${effect.id} by ${effect.transport}`;
    case 'close': return `close ${effect.id}`;
    case 'wait': case 'probe': return `${effect.do} ${effect.ms}`;
    default: return effect.do;
  }
}

const connecting = (): Scene => new Scene().do({ on: 'start' }).is('connecting', 'open 1 by 0');
const live = (): Scene => connecting().opens().is('live');

void test('a cut waits for a random time that grows to 30 s', () => {
  const scene = connecting();
  for (const ms of [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]) {
    scene.ends('cut').is('waiting', `wait ${ms}`).do({ on: 'due' });
  }
});

void test('a minute of life ends the row of failures', () => {
  const scene = connecting().ends('cut').do({ on: 'due' }).ends('cut').do({ on: 'due' }).opens();
  scene.passes(59_000).ends('cut').is('waiting', 'wait 2000');
  scene.do({ on: 'due' }).opens().passes(MINUTE).ends('cut').is('waiting', 'wait 500');
});

void test('the server is taken at its word', () => {
  connecting().ends('wait', { ms: 2_400 }).is('waiting', 'wait 2400');
});

void test('a blocked transport gives way to the next one, and the last one to a pause', () => {
  connecting().ends('blocked').is('connecting', 'open 2 by 1')
    .ends('blocked').is('connecting', 'open 3 by 2')
    .ends('blocked').is('waiting', 'wait 500')
    .do({ on: 'due' }).is('connecting', 'open 4 by 0');
});

void test('only two silent deaths in a row demote an open transport', () => {
  live().ends('silent').is('waiting', 'wait 500').do({ on: 'due' }).opens()
    .ends('silent').is('connecting', 'open 3 by 1');
  live().ends('silent').do({ on: 'due' }).opens().ends('cut').do({ on: 'due' }).opens()
    .ends('silent').is('waiting', 'wait 2000');
});

void test('a better transport is probed after a minute, then four times later, to an hour', () => {
  const scene = connecting().ends('blocked').opens().is('live', 'probe 60000');
  for (const ms of [240_000, 960_000, 3_600_000, 3_600_000]) {
    scene.do({ on: 'better' }).is('moving', `open ${scene.link.trying} by 0`)
      .ends('blocked').is('live', `probe ${ms}`);
  }
  scene.do({ on: 'better' }).opens().is('live', 'close 2');
  assert.equal(scene.link.transport, 0);
});

void test('a move opens anew before it closes', () => {
  live().do({ on: 'renew' }).is('moving', 'open 2 by 0').opens().is('live', 'close 1');
  live().do({ on: 'renew' }).ends('cut').is('live', 'wait 10000').do({ on: 'due' }).is('moving',
    'open 3 by 0');
});

void test('if the old connection ends during a move, the new one goes on', () => {
  const scene = live().do({ on: 'renew' });
  scene.do({ on: 'ended', id: 1, ended: { why: 'replaced' } }).is('connecting');
  scene.opens().is('live');
});

void test('a refused token: at once, after 5 s, after 30 s, then each 5 minutes', () => {
  const scene = connecting();
  scene.ends('token').is('connecting', 'open 2 by 0');
  scene.ends('token').is('refused', 'wait 5000').do({ on: 'due' });
  scene.ends('token').is('refused', 'wait 30000').do({ on: 'due' });
  scene.ends('token').is('refused', 'wait 300000').do({ on: 'due' });
  scene.opens().ends('token').is('connecting', `open ${scene.link.trying} by 0`);
});

void test('without a token it is tried again, and says why it waits', () => {
  const scene = connecting().ends('no-token').is('waiting', 'wait 500').do({ on: 'due' });
  assert.equal(scene.link.problem?.code, 'NO_TOKEN');
  scene.ends('cut');
  assert.equal(scene.link.problem, undefined);
});

void test('a session that is gone is given up; the second time in a row after a pause', () => {
  connecting().ends('gone').is('connecting', 'forget', 'open 2 by 0')
    .ends('gone').is('waiting', 'forget', 'wait 1000');
});

void test('a twin takes a new device id, once in ten minutes', () => {
  const scene = live().ends('replaced').is('connecting', 'forget', 'rename', 'open 2 by 0');
  scene.opens().passes(9 * MINUTE).ends('replaced').is('refused', 'forget', 'wait 300000');
  scene.do({ on: 'due' }).opens().passes(MINUTE).ends('replaced')
    .is('connecting', 'forget', 'rename', 'open 4 by 0');
});

void test('a broken event is asked for again; the third time in a new session', () => {
  const scene = live();
  scene.ends('broken').is('waiting', 'wait 500').do({ on: 'due' }).opens();
  scene.ends('broken').is('waiting', 'wait 1000').do({ on: 'due' }).opens();
  scene.ends('broken').is('waiting', 'forget', 'wait 2000');
});

void test('after a full inbox the stream goes on at once', () => {
  live().ends('full').is('connecting', 'open 2 by 0');
});

void test('a refusal is tried again after 15 minutes, or when the user wakes it', () => {
  const problem = { code: 'DENIED', detail: '' };
  connecting().ends('refused', { problem }).is('refused', 'wait 900000').passes(2_000)
    .do({ on: 'wake' }).is('connecting', 'open 2 by 0');
});

void test('wakes are 2 s apart', () => {
  connecting().ends('cut').do({ on: 'wake' }).is('waiting', 'wait 2000').passes(2_000)
    .do({ on: 'wake' }).is('connecting', 'open 2 by 0');
});

void test('who is signed out asks no more, until a start', () => {
  connecting().ends('signed-out').is('ended').do({ on: 'wake' }).is('ended')
    .do({ on: 'due' }).is('ended').do({ on: 'start' }).is('connecting', 'open 2 by 0');
});

void test('a stop closes everything', () => {
  live().do({ on: 'renew' }).do({ on: 'stop' }).is('idle', 'close 1', 'close 2');
});

void test('what an older connection says changes nothing', () => {
  live().do({ on: 'ended', id: 7, ended: { why: 'cut' } }).is('live')
    .do({ on: 'opened', id: 7 }).is('live');
});
