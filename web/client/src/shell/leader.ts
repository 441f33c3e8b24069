// The tab that leads: it holds the stream, and tells the server what is stored.

import { lastId, planOf, unknownChats, type Plan } from '../core/plan.js';
import type {
  Events, Frame, Options, Platform, Position, Problem, StoredChat, Transport,
} from '../types.js';
import { isShown, type StreamEvent } from '../wire/events.js';
import type { Chat, SessionStart } from '../wire.gen.js';
import { ackerOf } from './acker.js';
import { catchUpOf, pathOf } from './catchup.js';
import type { Data } from './data.js';
import { entriesAbove } from './entries.js';
import { reignOf } from './reign.js';
import { senderOf } from './sender.js';
import { streamOf, type Arrival } from './stream.js';
import { sleep, type Rest } from './rest.js';

const BATCH = 128;
const HANDLE_PAUSE_MS = 1_000;
/** How long a chat that the server does not tell may hold up the others. */
const LEARN_MS = 20_000;

/** What other tabs may show of the leader's connection. */
export interface Line {
  readonly phase: 'connecting' | 'catching-up' | 'live' | 'refused';
  readonly transport?: Transport;
  readonly problem?: Problem;
  readonly attachments?: boolean | undefined;
}

/** Tells the application of an event, in every tab. */
export type Tell = <K extends 'restored' | 'refused'>(type: K, event: Events[K]) => void;

export interface LeaderOwner {
  readonly options: Options;
  readonly platform: Platform;
  readonly rest: Rest;
  readonly data: Data;
  readonly end: AbortSignal;
  /** How far a chat was shown on this page. */
  shown(chat: string): number;
  line(line: Line): void;
  /** An event is stored, or has nothing to store. */
  event(event: StreamEvent): void;
  tell: Tell;
  readonly problem: (problem: Problem) => void;
  readonly frame: (frame: Frame) => void;
}

export interface Leader {
  /** The outbox or the reads have changed. */
  poke(): void;
  /** Chats have changed in the store. */
  changed(chats: ReadonlySet<string>): void;
  wake(): void;
  /** Sends what is owed. Resolves when it is on its way. */
  flush(): Promise<void>;
  /** The page ends. */
  last(): void;
  /** Closes the stream. After `over` the session is not resumed. */
  stop(over: boolean): void;
  show(chat: string): void;
  /** Takes a chat of an answer about data of this incarnation, if it was named. */
  know(chat: Chat, of?: string): Promise<void>;
  typing(chat: string): void;
  /** Sends a frame. Returns whether there is a way to. */
  send(frame: object): boolean;
  /** The session of the stream. It is undefined before the first one. */
  session(): SessionStart | undefined;
}

export function leaderOf(owner: LeaderOwner, term: number): Leader {
  const { options, rest, data } = owner;
  const reign = reignOf({
    ...owner, handled: (id) => options.handle ? handled.get(id) ?? 0 : Infinity,
  }, term, owner.problem);
  /** Chats that the server does not tell the user of, and those that it is being asked for. */
  const strangers = new Set<string>();
  const learning = new Set<string>();
  const discarded = new Map<string, number>();
  const handled = new Map<string, number>();
  const handling = new Set<string>();
  /**
   * Where the next connection resumes, and the last event that was taken. They differ while
   * messages that were left out are fetched.
   */
  let position = data.position;
  let reached = position;
  let caughtUp = false;
  let foreign = false;
  let pumping: Promise<unknown> | undefined;
  let closed: { state: 'connecting' | 'refused'; problem?: Problem | undefined } | undefined;

  /** What is below the base was handled by another device, or is too long ago. */
  const handledAtFirst = (row: StoredChat): number =>
    Math.max(row.base, Math.min(row.acknowledged, row.prefix));

  const limitOf = (row: StoredChat): number => {
    const id = row.chat.chat_id;
    if (options.handle) return handled.get(id) ?? handledAtFirst(row);
    return data.store.durable ? Infinity : owner.shown(id);
  };

  const stream = streamOf(reign, {
    position: () => position,
    forget() { position = undefined; },
    frame: owner.frame,
    stored: async () => { while (pumping) await pumping; },
    arrived,
    changed(state, problem) {
      closed = state === 'open' ? undefined : { state, problem };
      if (closed) caughtUp = false;
      tell();
    },
  }, options.transports ?? ['websocket', 'sse', 'longpoll']);

  const catchUp = catchUpOf(reign, {
    limitOf,
    byRest: (chat) => { acker.byRest(chat); },
    restored(event) { owner.tell('restored', event); },
    gone() {
      position = undefined;
      stream.fail({ why: 'gone' });
    },
    caughtUp: () => caughtUp && catchUp.synced,
    listed() { if (caughtUp) catchUp.whole(); },
    syncing() { caughtUp = false; },
    synced() {
      if (caughtUp) catchUp.whole();
      reign.spawn(recover());
      acker.opened();
      // What changes a message has waited for this.
      reign.wake();
      tell();
    },
  });

  const acker = ackerOf(reign, {
    limitOf,
    ready: () => reign.session !== undefined && catchUp.synced,
    frame: (frame) => stream.send(frame),
    refused(chat, code) {
      if (code === 'INVALID_SEQUENCE') catchUp.sync();
      else catchUp.refresh(chat);
    },
  });
  const sender = senderOf(
    reign, catchUp, () => stream.open > 0 && catchUp.synced,
    (event) => { owner.tell('refused', event); });

  /** Gets what was discarded before the sync. Only then the position covers it. */
  async function recover(): Promise<void> {
    for (const [chat, through] of discarded) {
      if (learning.has(chat)) continue;
      await catchUp.repair(chat, through);
      if (discarded.get(chat) === through) discarded.delete(chat);
    }
    if (discarded.size === 0) position = reached;
    await reign.commit(() => position && isSafe() ? { position } : undefined);
  }

  /** A session that waits for the cursors must not be resumed by somebody who doesn't know it. */
  const isSafe = (): boolean => catchUp.synced && discarded.size === 0;

  function tell(): void {
    const { state, problem } = closed ?? {};
    owner.line({
      phase: state ?? (caughtUp && catchUp.synced ? 'live' : 'catching-up'),
      ...!state && { transport: stream.transport },
      ...problem && { problem },
      attachments: reign.session?.attachments,
    });
  }

  function arrived(): void {
    pumping ??= pump().catch((error: unknown) => {
      // What was taken out is lost. The next connection brings it again.
      stream.fail({ why: 'broken' });
      reign.failed(error);
    }).finally(() => {
      pumping = undefined;
      if (stream.inbox.length > 0 && !foreign) arrived();
    });
  }

  /** Takes in what has arrived, until the inbox is empty. */
  async function pump(): Promise<void> {
    while (stream.inbox.length > 0 && !foreign) {
      const first = stream.inbox[0] as Arrival;
      const isFirst = first.event.type === 'session';
      const end = stream.inbox.findIndex(({ connection, event }, i) => i === BATCH
        || connection !== first.connection || i > 0 && (isFirst || event.type === 'session'));
      const batch = stream.take(end < 0 ? stream.inbox.length : end);
      // The connection that follows an older one brings this again, and may be of other data.
      if (first.connection !== stream.open) continue;
      if (first.event.type === 'session') {
        opened(first.event.payload, first.event.id);
        owner.event(first.event);
      } else await take(batch);
    }
  }

  function opened(start: SessionStart, id: number): void {
    if (start.user_id !== options.user) {
      foreign = true;
      stream.stop(1000);
      closed = { state: 'refused',
        problem: { code: 'DENIED', detail: `The token names the user ${start.user_id}.` } };
      tell();
      return;
    }
    const first = !reign.session;
    reign.session = start;
    position = reached = { session_id: start.session_id, event_id: id };
    // After a move nothing is missing.
    caughtUp &&= start.resumed;
    strangers.clear();
    acker.opened();
    reign.wake();
    sender.poke();
    const stale = [...data.chats.values()].some((row) =>
      !row.left && row.incarnation !== start.incarnation);
    if (!start.resumed) catchUp.opened();
    else if (stale || !catchUp.synced) catchUp.sync();
    else {
      if (first) catchUp.list();
      tell();
    }
  }

  /** Gets a chat that is new. If that takes too long, its messages are got later. */
  async function meet(chat: string): Promise<void> {
    const learned = catchUp.learn(chat);
    learning.add(chat);
    reign.spawn(learned.then(() => {
      learning.delete(chat);
      if (!data.chats.has(chat)) strangers.add(chat);
      if (discarded.has(chat) && catchUp.synced) reign.spawn(recover());
    }));
    await Promise.race([learned, sleep(reign.platform, LEARN_MS, reign.end)]);
  }

  /** Stores what a batch brings, and only then lets anybody know. */
  async function take(batch: readonly Arrival[]): Promise<void> {
    const events = batch.map(({ event }) => event);
    for (const chat of unknownChats(data.chats, events)) {
      if (!strangers.has(chat) && !learning.has(chat)) await meet(chat);
    }
    let plan: Plan | undefined;
    let next: Position | undefined;
    await reign.commit(() => {
      plan = planOf({
        user: options.user, incarnation: reign.session?.incarnation ?? '',
        chats: data.chats, outbox: data.outbox, said: acker.said, ...reign,
      }, events);
      const last = lastId(events);
      const from = batch[0];
      // Of an older connection nothing is known about what follows.
      next = last !== undefined && from?.connection === stream.open
        ? { session_id: from.session, event_id: last } : undefined;
      const safe = isSafe() && !plan.reset && plan.discarded.size === 0;
      const kept = safe ? next : data.position && null;
      const { change } = plan;
      const empty = change.entries.length + change.chats.length + change.read.length === 0;
      return empty && kept === undefined
        ? undefined : { ...change, ...kept !== undefined && { position: kept } };
    });
    if (next) {
      reached = next;
      if (discarded.size + (plan?.discarded.size ?? 0) === 0) position = next;
    }
    if (plan) after(plan, batch[0]?.connection);
    for (const event of events) owner.event(event);
  }

  function after(plan: Plan, connection: number | undefined): void {
    for (const [chat, to] of plan.discarded) {
      if (data.chats.has(chat) || learning.has(chat)) discarded.set(chat, to);
    }
    for (const { chat_id: id, from } of plan.change.entries) {
      if (from > (data.chats.get(id)?.prefix ?? Infinity)) {
        reign.spawn(catchUp.repair(id, from));
      } else catchUp.recount(id);
    }
    for (const id of plan.refresh) catchUp.refresh(id);
    if (plan.reset) catchUp.sync();
    if (plan.caughtUp && connection === stream.open) {
      caughtUp = true;
      if (catchUp.synced) catchUp.whole();
    }
    if (plan.caughtUp || plan.reset) tell();
  }

  /** Lets the application handle what others have written, in order. */
  async function handle(id: string): Promise<void> {
    if (!options.handle || handling.has(id)) return;
    handling.add(id);
    try {
      for (;;) {
        const row = data.chats.get(id);
        if (!row) return;
        const done = handled.get(id) ?? handledAtFirst(row);
        if (done >= row.prefix) return;
        for await (const { to, message } of entriesAbove(data, row, done)) {
          while (isShown(message) && message.sender_id !== options.user) {
            // It may have changed since the page was read, or since `handle` failed.
            const [now] = await data.run((store) => store.page(id, to + 1, 1));
            const current = now?.to === to && now.message ? now.message : message;
            try {
              await options.handle(current, owner.end);
              break;
            } catch (error) {
              owner.problem({ code: 'HANDLE', detail: String(error) });
              await reign.pause(HANDLE_PAUSE_MS);
            }
          }
          if (owner.end.aborted) return;
          const now = data.chats.get(id);
          // A rebase may have taken it back meanwhile.
          if (now?.incarnation !== row.incarnation) break;
          handled.set(id, Math.min(to, now.prefix));
          acker.note(now, 1);
        }
      }
    } finally {
      handling.delete(id);
    }
  }

  const prefixes = new Map([...data.chats].map(([id, row]) => [id, row.prefix]));
  const leader: Leader = {
    poke() { sender.poke(); },
    changed(chats) {
      for (const id of chats) {
        const row = data.chats.get(id);
        if (!row) continue;
        const fresh = Math.max(0, row.prefix - (prefixes.get(id) ?? row.base));
        prefixes.set(id, row.prefix);
        if (options.handle) {
          handled.set(id, handledAtFirst({
            ...row, acknowledged: handled.get(id) ?? row.acknowledged,
          }));
          reign.spawn(handle(id));
        }
        acker.note(row, fresh);
        catchUp.touched(id);
        // A chat of earlier data, to which the user has come back.
        if (reign.session && catchUp.synced && !row.left
          && row.incarnation !== reign.session.incarnation) catchUp.sync();
      }
    },
    wake() {
      reign.wake();
      stream.wake();
    },
    flush: () => acker.flush(),
    last() {
      acker.last();
      if (!data.store.durable) sender.last();
    },
    stop(over) { stream.stop(over ? 1000 : 4000); },
    show: (chat) => { catchUp.show(chat); },
    know: (chat, of) => catchUp.know([chat], of),
    typing(chat) {
      if (stream.send({ type: 'typing', payload: { chat_id: chat } })) return;
      reign.spawn(rest.call('POST', pathOf(chat, '/typing')));
    },
    send: (frame) => stream.send(frame),
    session: () => reign.session,
  };
  stream.start();
  sender.poke();
  leader.changed(new Set(data.chats.keys()));
  return leader;
}
