// Compares a store with a naive model over thousands of random steps of several tabs. The model
// keeps each sequence on its own, and computes everything from the start each time.

import { codeOf } from '../src/errors.js';
import type { Change, ChatFacts, Entry, OutboxItem, Position, Store } from '../src/types.js';
import type { Message } from '../src/wire.gen.js';

/** The sequence of the last change of a message. */
const revisionOf = (message: Message | null | undefined): number =>
  message?.revision?.sequence ?? 0;
import {
  check, dice, factsOf, ME, messageOf, same, SERVER, sendOf, type Scene,
} from './scene.js';

const CHATS = ['team', 'tea', 'team2'];
const PROBLEM = { code: 'CONFLICT', detail: 'this id was used' };
/** The highest sequence that is drawn. It is low, so that entries often meet. */
const TOP = 60;

class ModelChat {
  /** What each sequence has: a message, or null in a gap. */
  readonly covered = new Map<number, Message | null>();
  read = 0;
  facts: ChatFacts;

  constructor(facts: ChatFacts) { this.facts = facts; }

  get prefix(): number {
    let prefix = this.facts.base;
    while (this.covered.has(prefix + 1)) prefix++;
    return prefix;
  }

  get row() {
    const messages = [...this.covered.values()].filter((one) => one !== null);
    const unread = messages.filter(({ sequence, sender_id, kind }) =>
      kind === 'message' && sender_id !== ME && sequence > this.read && sequence <= this.prefix);
    const last = messages.filter(({ kind }) => kind !== 'edit')
      .sort((a, b) => b.sequence - a.sequence)[0];
    return { ...this.facts, prefix: this.prefix, read: this.read, unread: unread.length, last };
  }

  know(facts: Partial<ChatFacts>): void {
    const { base } = this.facts;
    this.facts = { ...this.facts, ...facts };
    if (this.facts.base <= base) return;
    for (const n of this.covered.keys()) if (n <= this.facts.base) this.covered.delete(n);
  }

  put({ from, to, message }: Entry): void {
    const relation = message?.relation && { ...message.relation, target: null };
    for (let n = from; n <= to; n++) {
      if (this.covered.has(n)) continue;
      this.covered.set(n, message ? { ...message, relation: relation ?? null } : null);
    }
  }

  /** Of two states of a message, the one that was changed later stays. */
  revise({ message }: Entry): void {
    for (const one of [message, message?.relation?.target]) {
      const old = this.covered.get(one?.sequence ?? 0);
      if (one && old?.message_id === one.message_id && revisionOf(old) < revisionOf(one)) {
        this.covered.set(one.sequence, one);
      }
    }
  }

  raise(through: number): number {
    this.read = Math.max(this.read, Math.min(through, this.prefix));
    return this.read;
  }

  rebase(through: number, incarnation: string): void {
    for (const [n, message] of this.covered) {
      if (Math.max(n, revisionOf(message)) > through) this.covered.delete(n);
    }
    const low = (n: number) => Math.min(n, through);
    const { base, acknowledged, readConfirmed, latch, boundaries } = this.facts;
    this.facts = {
      ...this.facts, incarnation, base: low(base), acknowledged: low(acknowledged),
      readConfirmed: low(readConfirmed),
      latch: { delivered: low(latch.delivered), read: low(latch.read) },
      boundaries: boundaries.map((one) => one.scope === 'chat' ? {
        ...one, all_acked_sequence: low(one.all_acked_sequence),
        all_read_sequence: low(one.all_read_sequence),
      } : one),
    };
    this.read = Math.min(low(this.read), this.prefix);
  }
}

class Model {
  readonly chats = new Map<string, ModelChat>();
  outbox: OutboxItem[] = [];
  position: Position | undefined;
  term = 0;

  commit(change: Change): void {
    for (const { chat_id, through, incarnation } of change.rebase ?? []) {
      const chat = this.chats.get(chat_id);
      if (!chat) continue;
      chat.rebase(through, incarnation);
      this.outbox = this.outbox
        .filter((item) => item.chat_id !== chat_id || (item.relation?.sequence ?? 0) <= through)
        .map((item) => item.chat_id !== chat_id ? item : {
          ...item, seen: Math.min(item.seen, through), after: Math.min(item.after, through),
        });
    }
    for (const { chat_id, ...facts } of change.chats ?? []) {
      const chat = this.chats.get(chat_id);
      if (chat) chat.know(facts);
      else this.chats.set(chat_id, new ModelChat(facts as ChatFacts));
    }
    // An entry that begins earlier wins.
    for (const entry of [...change.entries ?? []].sort((a, b) => a.from - b.from)) {
      this.chats.get(entry.chat_id)?.put(entry);
    }
    for (const entry of change.entries ?? []) this.chats.get(entry.chat_id)?.revise(entry);
    for (const chat of this.chats.values()) chat.read = Math.min(chat.read, chat.prefix);
    for (const { chat_id, through } of change.read ?? []) this.chats.get(chat_id)?.raise(through);
    const failed = new Set(change.failed?.map((one) => one.client_message_id));
    this.outbox = this.outbox
      .filter((item) => !change.sent?.includes(item.client_message_id))
      .map((item) => !failed.has(item.client_message_id) ? item
        : { ...item, state: 'failed', problem: PROBLEM });
    if (change.position !== undefined) this.position = change.position ?? undefined;
  }

  edit(id: string, change: { to: 'due'; newId?: string } | { to: 'discarded' }): void {
    if (change.to === 'discarded') {
      this.outbox = this.outbox.filter((item) => item.client_message_id !== id);
      return;
    }
    this.outbox = this.outbox.map((item) => {
      if (item.client_message_id !== id || item.state === 'due') return item;
      const { problem, ...send } = item;
      check(problem !== undefined, 'a failed send has no problem');
      return { ...send, state: 'due', client_message_id: change.newId ?? id };
    });
  }
}

/** How often each kind of step happened, so that none is missing. */
export type Tally = Record<string, number>;

interface Tab { store: Store; term: number; rev: number; open: boolean }

class Run {
  model = new Model();
  readonly tally: Tally = {};
  readonly #scene: Scene;
  readonly #roll: (n: number) => number;
  #tabs: Tab[] = [];
  #ids = 0;

  constructor(scene: Scene, roll: (n: number) => number) {
    this.#scene = scene;
    this.#roll = roll;
  }

  async steps(count: number): Promise<void> {
    this.#tabs = [1, 2, 3].map(() => ({ store: this.#scene.tab(), term: 0, rev: -1, open: false }));
    for (let i = 0; i < count; i++) {
      const tab = this.#pick(this.#tabs);
      if (!tab.open) await this.#open(tab);
      await this.#step(tab);
      await this.#compare(this.#pick(this.#tabs));
    }
  }

  #pick<T>(all: readonly T[]): T {
    const one = all[this.#roll(all.length)];
    check(one !== undefined, 'nothing to pick from');
    return one;
  }

  #count(what: string): void { this.tally[what] = (this.tally[what] ?? 0) + 1; }

  #some<T>(of: number, what: () => T): T[] {
    return Array.from({ length: this.#roll(of + 1) }, what);
  }

  async #open(tab: Tab): Promise<void> {
    const { position, outbox, rev } = await tab.store.open(ME, SERVER);
    same(position, this.model.position, 'position');
    same(outbox, this.model.outbox, 'outbox');
    Object.assign(tab, { open: true, rev });
  }

  async #step(tab: Tab): Promise<void> {
    const { store } = tab;
    const model = this.model;
    const kind = this.#roll(20);
    if (kind === 0) {
      this.#count('lead');
      tab.term = await store.lead();
      check(tab.term > model.term, 'the term did not rise');
      model.term = tab.term;
    } else if (kind === 1) {
      this.#count('close');
      store.close();
      tab.open = false;
    } else if (kind === 2 && this.#roll(8) === 0) {
      await this.#wipe(tab);
    } else if (kind < 6) {
      this.#count('add');
      const at = this.#roll(TOP);
      const send = sendOf(`s${this.#ids++}`, this.#pick(CHATS), {
        seen: at, after: at + 3,
        ...this.#roll(3) === 0 && { kind: 'edit', relation: { sequence: this.#roll(TOP) + 1 } },
      });
      const ordinal = await store.add(send);
      check(model.outbox.every((item) => item.ordinal < ordinal), 'the ordinal did not rise');
      model.outbox.push({ ...send, ordinal, state: 'due' });
    } else if (kind < 8) {
      this.#count('edit');
      const id = this.#sendId();
      const edit = this.#pick([
        { to: 'discarded' }, { to: 'due' }, { to: 'due', newId: `s${this.#ids++}` },
      ] as const);
      await store.edit(id, edit);
      model.edit(id, edit);
    } else if (kind < 10) {
      this.#count('markRead');
      const [chat, through] = [this.#pick(CHATS), this.#roll(TOP)];
      const want = model.chats.get(chat)?.raise(through) ?? 0;
      same(await store.markRead(chat, through), want, 'read');
    } else {
      await this.#commit(tab);
    }
  }

  async #wipe(tab: Tab): Promise<void> {
    this.#count('wipe');
    const { term } = this.model;
    await tab.store.wipe({ unsent: 'discard' });
    this.model = new Model();
    // Terms never fall.
    this.model.term = term;
    for (const other of this.#tabs) {
      if (other !== tab && other.open) {
        const got = await other.store.changes(-1).catch(codeOf);
        same(got, 'STORE_LOST', 'a call after a wipe');
      }
      Object.assign(other, { store: this.#scene.tab(), term: 0, rev: -1, open: false });
    }
  }

  async #commit(tab: Tab): Promise<void> {
    if (tab.term !== this.model.term && this.#roll(4) > 0) {
      tab.term = this.model.term = await tab.store.lead();
    }
    const change = this.#change();
    const current = tab.term === this.model.term && tab.term > 0;
    const unknown = change.entries?.some(({ chat_id }) =>
      !this.model.chats.has(chat_id) && !change.chats?.some((one) => one.chat_id === chat_id));
    const got = await tab.store.commit(tab.term, change).catch((error: unknown) =>
      codeOf(error) ?? 'other');
    if (!current) {
      this.#count('fenced');
      same(got, 'FENCED', 'a commit with an old term');
    } else if (unknown) {
      this.#count('refused');
      same(got, 'other', 'a commit with entries of an unknown chat');
    } else {
      this.#count('commit');
      if (typeof got === 'string') throw new Error(`commit threw ${got}`);
      this.model.commit(change);
      for (const { rev, ...row } of got.chats) {
        same(row, this.model.chats.get(row.chat.chat_id)?.row, 'a row of a commit');
        same(rev, got.rev, 'its revision');
      }
    }
  }

  #change(): Change {
    const roll = this.#roll;
    const chat_id = this.#pick(CHATS);
    const known = this.model.chats.has(chat_id);
    const problem = PROBLEM;
    const chats: Change['chats'] = known && roll(6) > 0 ? [] : [this.#facts(chat_id)];
    return {
      ...roll(12) === 0 && {
        rebase: [{ chat_id, through: roll(TOP), incarnation: `life ${roll(9)}` }],
      },
      ...chats.length > 0 && roll(5) > 0 && { chats },
      ...roll(3) > 0 && { entries: this.#entries(chat_id) },
      ...roll(4) === 0 && { read: [{ chat_id: this.#pick(CHATS), through: roll(TOP) }] },
      ...roll(3) === 0 && { sent: this.#some(2, () => this.#sendId()) },
      ...roll(3) === 0 && {
        failed: this.#some(2, () => ({ client_message_id: this.#sendId(), problem })),
      },
      ...roll(4) === 0 && {
        position: roll(3) === 0 ? null : { session_id: `S${roll(5)}`, event_id: roll(100) },
      },
    };
  }

  #facts(chat_id: string) {
    const roll = this.#roll;
    const facts = factsOf(chat_id, {
      acknowledged: roll(TOP), readConfirmed: roll(TOP), membersVersion: roll(9),
      latch: { delivered: roll(TOP), read: roll(TOP) }, left: roll(5) === 0,
      boundaries: [{
        chat_id, scope: 'chat', all_acked_sequence: roll(TOP), all_read_sequence: roll(TOP),
      }],
    });
    // A base may lie anywhere: within what is stored, above, and lower than before.
    if (roll(3) === 0) return { ...facts, base: roll(TOP) };
    const { base, ...others } = facts;
    return this.model.chats.has(chat_id) ? others : { ...others, base };
  }

  /** Runs of messages and gaps, near the prefix or anywhere, in any order. */
  #entries(chat_id: string): Entry[] {
    const roll = this.#roll;
    const prefix = this.model.chats.get(chat_id)?.prefix ?? 0;
    const entries: Entry[] = [];
    let at = 1 + (roll(2) === 0 ? prefix : roll(TOP));
    for (let n = roll(8); n >= 0; n--) {
      if (roll(4) === 0) {
        const to = at + roll(6);
        entries.push({ chat_id, from: at, to });
        at = to + 1;
      } else {
        // A message keeps its sender and kind.
        const sender = ['bob', 'carol', ME][at % 3];
        const message = messageOf(chat_id, at, sender, at % 5 === 0 ? 'system' : 'message');
        const content = `text ${roll(1000)}`;
        const state = roll(4) === 0 ? { content, revision: this.#revision(at + 1 + roll(9)) }
          : at > 1 && roll(4) === 0 ? this.#relation(chat_id, at) : { content };
        entries.push({ chat_id, from: at, to: at, message: { ...message, ...state } });
        at++;
      }
      if (roll(4) === 0) at = Math.max(1, at + roll(7) - 3);
    }
    return roll(3) > 0 ? entries : entries.reverse();
  }

  #revision(sequence: number): NonNullable<Message['revision']> {
    return { sequence, kind: 'edit', by: 'bob', revised_at: '2026-01-31T10:00:09.000Z' };
  }

  /** What makes a message at a sequence one that changes another. */
  #relation(chat_id: string, at: number): Partial<Message> {
    const sequence = 1 + this.#roll(at - 1);
    const now = this.model.chats.get(chat_id)?.covered.get(sequence);
    const target = now && now.relation === null && {
      ...now, content: `text ${this.#roll(1000)}`, revision: this.#revision(at + this.#roll(3)),
    };
    const relation = { sequence, sequences: null, emoji: null, target: target || null };
    return { message_id: `r${at}`, kind: 'edit', content: '', relation };
  }

  #sendId(): string {
    const { outbox } = this.model;
    return outbox.length > 0 && this.#roll(8) > 0 ? this.#pick(outbox).client_message_id : 'none';
  }

  async #compare(tab: Tab): Promise<void> {
    if (!tab.open) return;
    const { model } = this;
    const { rev, chats, outbox } = await tab.store.changes(-1);
    check(rev >= tab.rev, `the revision fell from ${tab.rev} to ${rev}`);
    same(outbox, model.outbox, 'outbox');
    const rows = Object.fromEntries(chats.map((row) => [row.chat.chat_id, { ...row, rev: 0 }]));
    const want = [...model.chats].map(([id, chat]) => [id, { ...chat.row, rev: 0 }] as const);
    same(rows, Object.fromEntries(want), 'rows');
    const later = (await tab.store.changes(tab.rev)).chats.map(({ chat }) => chat.chat_id).sort();
    const newer = chats.filter((row) => row.rev > tab.rev).map(({ chat }) => chat.chat_id).sort();
    same(later, newer, 'the chats after a revision');
    tab.rev = rev;
    await this.#page(tab.store);
  }

  async #page(store: Store): Promise<void> {
    const [id, before, limit] = [this.#pick(CHATS), this.#roll(TOP + 20), 1 + this.#roll(30)];
    const page = await store.page(id, before, limit);
    const covered = this.model.chats.get(id)?.covered ?? new Map<number, Message | null>();
    const seen = new Set<number>();
    let last = 0;
    for (const { from, to, message } of page) {
      check(from > last && from < before && to >= from, `entry ${from}-${to} after ${last}`);
      last = to;
      for (let n = from; n <= to; n++) {
        seen.add(n);
        same(message ?? null, covered.get(n), `sequence ${n} of ${id}`);
      }
    }
    check(page.length <= limit, `${page.length} entries, limit ${limit}`);
    const low = page.length === limit ? page[0]?.from ?? 0 : 0;
    for (const n of covered.keys()) {
      check(n < low || n >= before || seen.has(n), `sequence ${n} of ${id} is missing`);
    }
  }
}

/** Runs random steps. An error names the seed. */
export async function compareWithModel(scene: Scene, seed: number, count: number): Promise<Tally> {
  const run = new Run(scene, dice(seed));
  try {
    await run.steps(count);
  } catch (error) {
    throw new Error(`TIDEMARK_SEED=${seed}: ${String(error)}`, { cause: error });
  }
  return run.tally;
}

/** Runs several seeds, each on data of its own. Returns how often each kind of step happened. */
export async function randomTest(
  scene: () => Scene, seeds: readonly number[], count: number,
): Promise<Tally> {
  const total: Tally = {};
  for (const seed of seeds) {
    for (const [what, times] of Object.entries(await compareWithModel(scene(), seed, count))) {
      total[what] = (total[what] ?? 0) + times;
    }
  }
  return total;
}

/** Fails if a kind of step never happened. Which ones happen depends on the seeds alone. */
export function hasAllSteps(tally: Tally): void {
  const kinds = ['lead', 'close', 'wipe', 'add', 'edit', 'markRead', 'commit', 'fenced', 'refused'];
  for (const kind of kinds) check((tally[kind] ?? 0) > 0, `no ${kind} in ${JSON.stringify(tally)}`);
}
