// Runs the link: opens and closes connections, and notices those that are dead.

import { newLink, stepLink, type LinkInput } from '../core/link.js';
import { hexOf } from '../core/hex.js';
import type { Ended } from '../core/ended.js';
import type { Frame, Position, Problem, Transport } from '../types.js';
import type { StreamEvent } from '../wire/events.js';
import type { Reign } from './reign.js';
import { connect, type Connection } from './transports.js';

const PING_MS = 10_000;
const WAKE_PING_MS = 4_000;
const HIDDEN_MS = 60_000;
/** A timer that is that late was held back, so what has arrived waits behind it. */
const LATE_MS = 2_000;
const MOST_EVENTS = 2_000;
const MOST_BYTES = 8 << 20;

/** An event, and the connection that brought it. */
export interface Arrival {
  readonly connection: number;
  readonly session: string;
  readonly event: StreamEvent;
  readonly size: number;
}

export interface Stream {
  readonly inbox: readonly Arrival[];
  /** The connection that is open, or 0. */
  readonly open: number;
  readonly transport: Transport;
  start(): void;
  /** Closes everything. A session that is closed by 1000 ends. */
  stop(code: number): void;
  /** Takes arrivals out of the inbox. */
  take(count: number): readonly Arrival[];
  /** Looks whether the connection lives, or ends a pause. */
  wake(): void;
  /** Ends the open connection. */
  fail(ended: Ended): void;
  /** Sends a frame. Returns whether there is a way to. */
  send(frame: object): boolean;
}

/** What the owner of a stream is told. */
export interface StreamOwner {
  position(): Position | undefined;
  arrived(): void;
  /** Resolves when the inbox is empty. */
  readonly stored: () => Promise<void>;
  forget(): void;
  readonly frame: (frame: Frame) => void;
  /** The connection changed. `problem` says why there is none, and when the next try is. */
  changed(state: 'connecting' | 'open' | 'refused', problem?: Problem): void;
}

export function streamOf(
  reign: Reign, owner: StreamOwner, transports: readonly Transport[],
): Stream {
  const { platform, rest, data } = reign;
  const link = newLink();
  const connections = new Map<number, Connection>();
  let inbox: Arrival[] = [];
  let bytes = 0;
  let device = data.device;
  let full = 0;
  let heardAt = 0;
  const timers: Partial<Record<'wait' | 'probe' | 'silence' | 'renew', () => void>> = {};

  const now = (): number => platform.monotonic();
  const timer = (name: keyof typeof timers, ms: number, run: () => void): void => {
    timers[name]?.();
    timers[name] = platform.timer(ms, run);
  };
  const transport = (): Transport => transports[link.transport] ?? 'longpoll';
  const beat = (): number => Math.max(1, reign.session?.heartbeat_seconds ?? 20) * 1000;

  function input(event: LinkInput, code = 4000): void {
    const before = link.open;
    let pause = 0;
    for (const effect of stepLink(link, event, now(), reign.random(), transports.length)) {
      switch (effect.do) {
        case 'open': open(effect.id, transports[effect.transport] ?? 'longpoll'); break;
        case 'close': connections.get(effect.id)?.close(code); break;
        case 'forget': owner.forget(); break;
        case 'rename': device = hexOf(platform.random(16)); break;
        case 'wait':
          pause = effect.ms;
          timer('wait', effect.ms, () => { input({ on: 'due' }); });
          break;
        case 'probe': probe(effect.ms);
      }
    }
    if (link.open && link.open !== before) opened();
    if (!link.open) timers.silence?.();
    // The server ends the old connection a moment before the new one is open.
    const moves = event.on === 'ended' && event.ended.why === 'replaced' && link.trying > 0;
    if (!moves || before === 0) tell(pause);
  }

  function probe(ms: number): void {
    timer('probe', ms, () => {
      if (platform.page?.visible() === false) probe(ms);
      else input({ on: 'better' });
    });
  }

  function tell(pause: number): void {
    const retryAt = platform.now() + pause;
    if (link.open) owner.changed('open');
    else if (link.at === 'ended') {
      owner.changed('refused', { code: 'SIGNED_OUT', detail: 'The user is signed out.' });
    } else if (link.at === 'refused') {
      if (link.problem && pause) owner.changed('refused', { ...link.problem, retryAt });
    } else if (link.at === 'waiting' && pause) {
      const none = { code: 'UNREACHABLE', detail: 'There is no connection.' };
      owner.changed('connecting', { ...link.problem ?? none, retryAt });
    } else if (link.at === 'connecting') owner.changed('connecting');
  }

  function open(id: number, name: Transport): void {
    timers.wait?.();
    const position = owner.position();
    connections.set(id, connect(name, {
      platform, rest, device,
      check: () => position ? data.reread() : Promise.resolve(),
      // A poll that resumes does not tell the incarnation of the data.
      position: name === 'longpoll' && !reign.session ? undefined : position,
    }, {
      opened: () => { input({ on: 'opened', id }); },
      heard: () => { if (id === link.open) heardAt = now(); },
      frame: owner.frame,
      stored: owner.stored,
      event: (event, session, size) => {
        if (id !== link.open || id === full) return;
        inbox.push({ connection: id, session, event, size });
        bytes += size;
        if (inbox.length > MOST_EVENTS || bytes > MOST_BYTES) full = id;
        owner.arrived();
      },
      ended: (ended) => {
        // A token of another user is refused for ever.
        if (ended.why === 'token' || ended.why === 'refused') rest.refuse();
        connections.delete(id);
        input({ on: 'ended', id, ended });
      },
    }));
  }

  function opened(): void {
    timers.wait?.();
    heardAt = now();
    watch();
    const life = rest.renewIn();
    timers.renew?.();
    if (life !== undefined) timer('renew', life, () => { input({ on: 'renew' }); });
  }

  /** Looks again when the connection has been silent for too long. */
  function watch(): void {
    timers.silence?.();
    // A poll has a time of its own.
    if (transport() === 'longpoll') return;
    const hidden = platform.page?.visible() === false;
    const silence = transport() !== 'websocket' ? 2 * beat() : hidden ? HIDDEN_MS : beat();
    const wait = Math.max(0, heardAt + silence - now());
    const due = now() + wait;
    timer('silence', wait, () => {
      if (heardAt + silence > now()) watch();
      else ask(now() - due > LATE_MS ? WAKE_PING_MS : PING_MS);
    });
  }

  /** Asks for a sign of life. */
  function ask(within: number): void {
    const { open } = link;
    const connection = connections.get(open);
    const before = heardAt;
    if (transport() === 'longpoll') return;
    connection?.send?.({ type: 'ping' });
    // Without a way back, only time tells.
    timer('silence', connection?.send ? within : Math.min(within, WAKE_PING_MS), () => {
      if (heardAt > before || !connection?.send && now() - heardAt < 2 * beat()) watch();
      else silent(open);
    });
  }

  function silent(id: number): void {
    const connection = connections.get(id);
    connections.delete(id);
    input({ on: 'ended', id, ended: { why: 'silent' } });
    connection?.close(4000);
  }

  return {
    get inbox() { return inbox; },
    get open() { return link.open; },
    get transport() { return transport(); },
    start() { input({ on: 'start' }); },
    stop(code) {
      input({ on: 'stop' }, code);
      for (const cancel of Object.values(timers)) cancel();
      inbox = [];
    },
    take(count) {
      const taken = inbox.splice(0, count);
      bytes -= taken.reduce((sum, { size }) => sum + size, 0);
      if (full && inbox.length === 0) {
        // The rest was not read. The next connection brings it again, after what is stored.
        const id = full;
        full = 0;
        if (id === link.open) this.fail({ why: 'full' });
      }
      return taken;
    },
    wake() {
      if (link.open) ask(WAKE_PING_MS);
      else input({ on: 'wake' });
    },
    fail(ended) {
      const id = link.open;
      if (!id) return;
      const connection = connections.get(id);
      connections.delete(id);
      input({ on: 'ended', id, ended });
      connection?.close(4000);
    },
    send(frame) {
      const connection = connections.get(link.open);
      if (!connection?.send) return false;
      connection.send(frame);
      return true;
    },
  };
}
