// Repeats a trace of the simulation of the real core (server/simulationtest/trace_test.go) on the
// core of the fake server.

import { VirtualClock } from '../../src/testing/clock.js';
import { Dice } from '../../src/testing/random.js';
import { Auth } from '../../src/testing/server/auth.js';
import { Core, realTimes } from '../../src/testing/server/core.js';
import { Refusal, refusalOf } from '../../src/testing/server/refusal.js';
import { Rest } from '../../src/testing/server/rest.js';
import type { Reader, Session } from '../../src/testing/server/session.js';

export type Frame = Readonly<Record<string, unknown>>;

export interface Line {
  /** Milliseconds since the start. */
  readonly t: number;
  /** A user, or a user and their device. */
  readonly device: string;
  readonly dir: 'out' | 'in';
  readonly frame: Frame;
}

/** A device with its connection, if it has one. */
interface Device {
  readonly user: string;
  readonly id: string;
  session: Session | undefined;
  reader: Reader | undefined;
  last: string;
  /** The numbers of events, by those of the trace: their order is not always determined. */
  readonly ids: Map<number, number>;
}

/** What no two servers give alike, and what the traces leave out. */
const left = new Set(['message_id', 'session_id', 'event_id', 'incarnation', 'created_at',
  'acked_at', 'read_at', 'heartbeat_seconds', 'content_type', 'kind', 'relation', 'revision',
  'mentions', 'attachments', 'metadata']);

const resumeSeconds = 15;

export class Replay {
  readonly #clock = new VirtualClock();
  readonly #core: Core;
  readonly #rest: Rest;
  readonly #devices = new Map<string, Device>();

  constructor() {
    const dice = new Dice(1);
    this.#core = new Core(this.#clock, dice, {
      times: { ...realTimes, grace: 3000 }, heartbeatSeconds: 20, resumeSeconds, statusFanout: 50,
    });
    this.#rest = new Rest(this.#core, new Auth(this.#clock, dice, resumeSeconds * 1000));
  }

  /**
   * Does what a device asked for, at its time. Returns the answer and the events. `there` are those
   * of the trace, of which only the numbers of events are used.
   */
  async ask({ t, device, frame }: Line, there: readonly Frame[]): Promise<Frame[]> {
    await this.#clock.run(t - this.#clock.monotonic());
    try {
      const here = this.#do(device, frame);
      const [one, other] = [lastOf(there), lastOf(here)];
      if (one > 0 && other > 0) this.#device(device).ids.set(one, other);
      return here;
    } catch (error) {
      return [{ code: refusalOf(error).code }];
    }
  }

  /** Up to where a user has acknowledged a chat, from any device. */
  acked(user: string, chat: string): number {
    return this.#core.data.state(user, chat).acked;
  }

  /** Whether an event has the user's own state in a chat as it is now. */
  isOwnState(user: string, { payload }: Frame): boolean {
    const told = payload as Frame;
    const chat = this.#core.data.chat(String(told['chat_id']));
    const now: Frame = { ...this.#core.ownState(user, chat) };
    return Object.keys(now).every((name) => now[name] === told[name]);
  }

  #do(name: string, frame: Frame): Frame[] {
    const chat = String(frame['chat']);
    switch (frame['type']) {
      case 'create': {
        const members = (frame['members'] as string[]).filter((user) => user !== name);
        this.#call(name, 'POST', '/chats', {
          type: frame['kind'], chat_id: chat, history: frame['history'], member_ids: members,
        });
        return [];
      }
      case 'send': {
        const answer = this.#call(name, 'POST', `/chats/${chat}/messages`, {
          client_message_id: frame['id'], content: frame['content'], seen_sequence: frame['seen'],
        });
        return [{ sequence: answer['sequence'] }];
      }
      case 'add':
        this.#call(name, 'POST', `/chats/${chat}/members`, { user_ids: [frame['user']] });
        return [{}];
      case 'remove':
        this.#call(name, 'DELETE', `/chats/${chat}/members/${String(frame['user'])}`);
        return [{}];
      case 'acknowledge':
        return [this.#acknowledge(name, chat, frame)];
      default:
        return this.#onStream(this.#device(name), chat, frame);
    }
  }

  #acknowledge(user: string, chat: string, { acked, read }: Frame): Frame {
    const { results } = this.#call(user, 'POST', '/acks', { chats: [{
      chat_id: chat, last_acked_sequence: acked === 0 ? null : acked,
      last_read_sequence: read === 0 ? null : read,
    }] });
    const [{ state, problem }] = results as [{ state: Frame | null; problem: Frame | null }];
    return problem === null
      ? { acked: state?.['last_acked_sequence'], read: state?.['last_read_sequence'] }
      : { code: problem['code'] };
  }

  /** Calls the REST API. Throws what it refuses. */
  #call(user: string, method: string, path: string, body?: object): Frame {
    const answer = this.#rest.answer({
      method, url: new URL(`https://chat.test/api/v1${path}`),
      headers: new Map([['authorization', `Bearer dev:${user}`]]),
      body: body === undefined ? '' : JSON.stringify(body),
    }, path);
    const parsed = (answer.body === '' ? {} : JSON.parse(answer.body)) as Frame;
    if (answer.status >= 400) throw new Refusal(String(parsed['code']), String(parsed['detail']));
    return parsed;
  }

  #device(name: string): Device {
    const known = this.#devices.get(name);
    if (known !== undefined) return known;
    const [user = '', id = ''] = name.split('.');
    const device = { user, id, session: undefined, reader: undefined, last: '', ids: new Map() };
    this.#devices.set(name, device);
    return device;
  }

  #onStream(device: Device, chat: string, frame: Frame): Frame[] {
    const { session, reader } = device;
    if (frame['type'] === 'open') return [this.#open(device, frame)];
    if (session === undefined || reader === undefined) throw new Error('there is no connection');
    switch (frame['type']) {
      case 'read':
        return read(session, reader);
      case 'ack':
        this.#core.takeAcks(session, reader, [{
          chat, acked: Number(frame['acked']), read: Number(frame['read']),
        }], undefined);
        return [];
      case 'sync':
        return [this.#sync(device.user, session, frame)];
      case 'cut':
      case 'close':
        this.#core.leave(session, reader, frame['type'] === 'close');
        device.reader = undefined;
        return [];
      case 'vanish':
        device.reader = undefined;
        return [];
      default:
        throw new Error(`the trace has ${String(frame['type'])}`);
    }
  }

  #open(device: Device, frame: Frame): Frame {
    const before = frame['resume'] === true ? device.last : undefined;
    const after = Number(frame['after']);
    const reader: Reader = { wake: () => undefined, lost: () => undefined };
    const session = this.#core.open(device.user, {
      session: before, device: device.id, after: device.ids.get(after) ?? after,
      statuses: frame['statuses'] === true,
    }, reader, frame['poll'] === true);
    if (session.id !== before) device.ids.clear();
    Object.assign(device, { session, reader, last: session.id });
    return { resumed: session.id === before };
  }

  #sync(user: string, session: Session, frame: Frame): Frame {
    const cursors = frame['cursors'] as { chat: string; acked: number }[];
    const { chats } = this.#core.sync(user, {
      cursors: cursors.map((c) => ({ ...c, incarnation: undefined })), session: session.id,
      limit: 100, statuses: false,
    });
    return { refused: chats.map((c) => ({
      chat: c.chat_id, reset: c.reset?.reason ?? '', code: c.problem?.code ?? '',
    })) };
  }
}

const lastOf = (frames: readonly Frame[]): number =>
  Math.max(0, ...frames.map((frame) => Number(frame['id'] ?? 0)));

/** Reads until nothing more comes. */
function read(session: Session, reader: Reader): Frame[] {
  const all: Frame[] = [];
  for (let events = session.next(reader); events.length > 0; events = session.next(reader)) {
    all.push(...events.map((event) => ({
      type: event.type, id: 'id' in event ? event.id : 0, payload: shown(event.payload),
    })));
  }
  return all;
}

/** A payload as traces have it. */
function shown(payload: object): Frame {
  return Object.fromEntries(Object.entries(payload).filter(([name]) => !left.has(name)));
}
