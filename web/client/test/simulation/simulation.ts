// One run of the simulation: people, browsers and a server, in virtual time.

import { FakeServer, Refusal, type Backup, type Fault } from '../../src/testing/index.js';
import { settled } from '../../src/testing/clock.js';
import { Dice } from '../../src/testing/random.js';
import { reactionsTo } from '../../src/testing/server/annotations.js';
import { headOf } from '../../src/testing/server/data.js';
import { isOpen } from '../../src/testing/server/intervals.js';
import type { Request } from '../../src/testing/server/rest.js';
import type { EmojiCount } from '../../src/types.js';
import type { Message } from '../../src/wire.gen.js';
import { Browser, type Tab } from './browser.js';
import type { StoreFault, StoreStep } from './disk.js';
import { Broken, Oracle, type Rule } from './oracle.js';
import type { Op, Step } from './steps.js';

export interface Outcome {
  readonly seed: number;
  readonly failure: { readonly rule: Rule | 'error'; readonly detail: string } | undefined;
  readonly lines: readonly string[];
  readonly counts: ReadonlyMap<string, number>;
}

const storeSteps: readonly StoreStep[] = ['open', 'lead', 'commit', 'commit', 'commit', 'add',
  'edit', 'markRead', 'page', 'changes', 'wipe'];
const healSeconds = 60;

/** Runs the steps in the world of a seed, heals everything, and checks the rules. */
export async function simulate(seed: number, steps: readonly Step[]): Promise<Outcome> {
  const run = new Run(seed);
  return run.go(steps);
}

class Run {
  readonly #seed: number;
  readonly #dice: Dice;
  readonly #server: FakeServer;
  readonly #oracle: Oracle;
  readonly #browsers: Browser[] = [];
  readonly #users: string[];
  readonly #chats: string[] = ['team'];
  readonly #lines: string[] = [];
  readonly #counts = new Map<string, number>();
  #backup: Backup | undefined;
  #sends = 0;
  #newcomers = 0;
  /** The server refuses until this time. */
  #refuses: { until: number; refusal: Refusal; only: (r: Request) => boolean } | undefined;
  #requestFault: { fault: Fault; left: number } | undefined;
  #begun = 0;

  constructor(seed: number) {
    this.#seed = seed;
    this.#dice = new Dice(seed, 5);
    this.#server = new FakeServer({ seed, tokenSeconds: 900 });
    this.#oracle = new Oracle(this.#server);
    this.#users = ['ann', 'bob', 'cid'].slice(0, 2 + this.#dice.roll(2));
    this.#server.refuse = (request) => this.#refusal(request);
  }

  async go(steps: readonly Step[]): Promise<Outcome> {
    let failure: Outcome['failure'];
    try {
      this.#found();
      for (const step of steps) await this.#step(step);
      await this.#heal();
    } catch (error) {
      failure = error instanceof Broken ? { rule: error.rule, detail: error.message }
        : { rule: 'error', detail: error instanceof Error ? error.stack ?? error.message
          : String(error) };
    }
    for (const browser of this.#browsers) for (const tab of browser.list) tab.crash();
    await settled();
    return { seed: this.#seed, failure, lines: this.#lines, counts: this.#counts };
  }

  // ---- The world --------------------------------------------------------------------------------

  #found(): void {
    const [owner = ''] = this.#users;
    this.#call(owner, 'POST', '/chats', {
      type: 'group', chat_id: 'team', member_ids: this.#users,
      history: this.#dice.oneIn(2) ? 'full' : 'since_join',
    });
    const [, other = ''] = this.#users;
    const direct = this.#call(owner, 'POST', '/chats', { type: 'direct', member_ids: [other] });
    this.#chats.push(idOf(direct));
    for (const user of this.#users) {
      const browsers = 1 + this.#dice.roll(2);
      for (let i = 0; i < browsers; i++) this.#addBrowser(user, !this.#dice.oneIn(4)).open();
    }
  }

  #addBrowser(user: string, durable: boolean, disk?: Browser['disk']): Browser {
    const n = this.#browsers.length;
    const browser = new Browser({
      name: `${user}${String(n)}`, user, server: this.#server, oracle: this.#oracle, durable,
      dice: new Dice(this.#seed, 100 + n), count: (what) => {
        this.#count(what);
      }, ...(disk === undefined ? {} : { disk }),
    });
    browser.network((link) => {
      const next = link.onRequest;
      link.onRequest = (request) => next(request) ?? this.#faultOf();
    });
    this.#browsers.push(browser);
    return browser;
  }

  #call(user: string, method: string, path: string, body?: object): unknown {
    return this.#server.call(user, method, path, body).body;
  }

  #count(what: string): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + 1);
  }

  #note(line: string): void {
    const ms = this.#server.clock.monotonic();
    this.#lines.push(`${(ms / 1000).toFixed(3).padStart(9)} ${line}`);
  }

  #refusal(request: Request): Refusal | undefined {
    const now = this.#refuses;
    if (now === undefined || this.#server.clock.monotonic() > now.until || !now.only(request)) {
      return undefined;
    }
    const { code } = now.refusal;
    this.#count(`refused ${code}`);
    if (code === 'CONFLICT' || code === 'INVALID') {
      // The send fails, perhaps in memory that stands in for a disk, which the oracle does not see.
      const { client_message_id: id } = JSON.parse(request.body) as { client_message_id?: string };
      if (id !== undefined) this.#oracle.failed(id);
    }
    return now.refusal;
  }

  #faultOf(): Fault | undefined {
    const now = this.#requestFault;
    if (now === undefined || now.left <= 0) return undefined;
    now.left--;
    this.#count(`request ${now.fault}`);
    return now.fault;
  }

  // ---- Steps ------------------------------------------------------------------------------------

  async #step(step: Step): Promise<void> {
    await this.#pass(step.wait);
    const browser = at(this.#browsers, step.a);
    const alive = browser.alive;
    const tab = alive.length === 0 ? undefined : at(alive, step.b);
    const did = await this.#do(step, browser, tab);
    if (did === undefined) return;
    this.#count(step.op);
    this.#note(`${step.op}: ${did}`);
    await settled();
    this.#check();
  }

  async #pass(ms: number): Promise<void> {
    const broken = (): boolean => this.#oracle.broken !== undefined;
    await this.#server.clock.runUntil(broken, ms);
    this.#check();
  }

  #check(): void {
    this.#oracle.checkServer();
    if (this.#oracle.broken !== undefined) throw this.#oracle.broken;
  }

  /** Does something, and returns what, or undefined if it does not apply. */
  async #do(step: Step, browser: Browser, tab: Tab | undefined): Promise<string | undefined> {
    const { op } = step;
    if (isNetwork(op)) return this.#network(step, browser, tab);
    if (isServer(op)) return this.#onServer(step, browser);
    if (isDisk(op)) return this.#onDisk(step, browser, tab);
    if (isMembers(op)) return this.#members(step);
    switch (op) {
      case 'open tab':
        if (browser.alive.length >= 3 || (!browser.durable && browser.alive.length > 0)) {
          return undefined;
        }
        return browser.open().name;
      case 'sign in':
        if (!browser.signedOut) return undefined;
        browser.signedOut = false;
        for (const one of browser.alive) one.crash();
        return browser.open().name;
      case 'lose notices':
        browser.tabs.loses = () => step.c % 2 === 0 || browser.dice.oneIn(2);
        return browser.name;
      case 'foreign token':
        browser.foreign = this.#users.find((u) => u !== browser.user);
        this.#server.clock.timer(step.c * 20, () => {
          browser.foreign = undefined;
        });
        return `${browser.name} for ${String(step.c * 20)} ms`;
      case 'clock wrong':
        browser.skewMs = (step.c % 2 === 0 ? 1 : -1) * 86_400_000;
        return `${browser.name} by ${String(browser.skewMs)} ms, for new tabs`;
      case 'sleep':
        await this.#pass(65_000 + step.c * 100);
        return 'a while';
      case 'long sleep': {
        const all = this.#browsers.flatMap((b) => b.alive).filter((one) => !one.frozen);
        for (const one of all) one.freeze();
        await this.#pass(8 * 3600_000);
        for (const one of all) one.wake();
        return 'everybody';
      }
      default:
        return tab === undefined ? undefined : this.#inTab(step, browser, tab);
    }
  }

  #chat(step: Step): string {
    return at(this.#chats, step.c);
  }

  async #inTab(step: Step, browser: Browser, tab: Tab): Promise<string | undefined> {
    const { client, page, name } = tab;
    const chat = this.#chat(step);
    const usable = tab.started && !tab.frozen && client.state.get().phase !== 'stopped' &&
      !browser.signedOut && this.#server.data.chats.get(chat)?.members.has(tab.user) === true;
    switch (step.op) {
      case 'send':
      case 'burst': {
        if (!usable) return undefined;
        const count = step.op === 'send' ? 1 : 2 + (step.b % 12);
        const contents = Array.from({ length: count }, () => `text ${String(++this.#sends)}`);
        for (const content of contents) {
          this.#oracle.wrote(tab.user, chat, content, browser.durable && !tab.attached);
          client.chat(chat).send({ content }).catch((error: unknown) => {
            this.#note(`${name} could not send "${content}": ${String(error)}`);
          });
        }
        return `${name} ${chat} ${contents.join(', ')}`;
      }
      case 'edit':
      case 'redact': {
        const edits = step.op === 'edit';
        if (!usable) return undefined;
        const found = this.#server.data.chat(chat).messages.filter((m) => m.kind === 'message' &&
          (m.sender_id === tab.user || !edits && tab.user === this.#users[0]));
        if (found.length === 0) return undefined;
        const message = at(found, step.b);
        const content = `edit ${String(++this.#sends)}`;
        if (edits) this.#oracle.edits(message, content);
        const handle = client.chat(chat);
        const { sequence } = message;
        (edits ? handle.edit(sequence, { content }) : handle.redact(sequence)).catch(
          (error: unknown) => {
            this.#note(`${name} could not change ${String(sequence)}: ${String(error)}`);
          });
        return `${name} ${chat} ${String(sequence)}${edits ? ` ${content}` : ''}`;
      }
      case 'change elsewhere': {
        const found = this.#server.data.chats.get(chat)?.messages.filter((m) => (
          m.kind === 'message' && m.revision?.kind !== 'redact' && m.sender_id === tab.user)) ?? [];
        if (found.length === 0) return undefined;
        const message = at(found, step.b);
        const content = `edit ${String(++this.#sends)}`;
        const edits = step.a % 2 === 0;
        if (edits) this.#oracle.edits(message, content);
        const { sequence } = message;
        const { status } = this.#server.call(tab.user, 'POST', `/chats/${chat}/messages`, {
          client_message_id: `elsewhere${String(this.#sends)}`, kind: edits ? 'edit' : 'redact',
          relation: { sequence }, ...(edits ? { content } : {}), seen_sequence: 0,
        });
        return `${tab.user} ${chat} ${String(sequence)}${edits ? ` ${content}` : ''}: ` +
          String(status);
      }
      case 'react':
      case 'unreact': {
        if (!usable) return undefined;
        const items = tab.look(chat).items.get().filter((i) => i.kind === 'message');
        const own = items.flatMap(({ reactions = [] }) => reactions.flatMap((r) => r.own ?? []));
        const reacts = step.op === 'react';
        const sequences = reacts ? items.map((i) => i.sequence ?? 0) : own;
        if (sequences.length === 0) return undefined;
        const sequence = at(sequences, step.b);
        const emoji = at(['👍', '🎉'], step.a);
        const handle = client.chat(chat);
        (reacts ? handle.react(sequence, emoji) : handle.unreact(sequence)).catch(
          (error: unknown) => {
            this.#note(`${name} could not ${step.op} ${String(sequence)}: ${String(error)}`);
          });
        return `${name} ${chat} ${String(sequence)}${reacts ? ` ${emoji}` : ''}`;
      }
      case 'too large':
        if (!usable) return undefined;
        await client.chat(chat).send({ content: 'x'.repeat(70_000) }).then(() => {
          this.#oracle.fail('never_stuck', 'a message that is too large was queued');
        }, () => undefined);
        return name;
      case 'see':
      case 'see less': {
        if (!usable) return undefined;
        const items = tab.look(chat).items.get().filter((i) => i.kind === 'message');
        const item = step.op === 'see' ? items.at(-1) : items[Math.floor(items.length / 2)];
        if (item?.sequence === undefined) return undefined;
        tab.see(chat, item.sequence);
        return `${name} ${chat} ${String(item.sequence)}`;
      }
      case 'older':
        if (!usable) return undefined;
        tab.look(chat).older().catch(() => undefined);
        return `${name} ${chat}`;
      case 'type':
        if (!usable) return undefined;
        client.chat(chat).type();
        return `${name} ${chat}`;
      case 'retry now':
        if (tab.frozen) return undefined;
        client.retryNow();
        return name;
      case 'new chat': {
        if (!usable || this.#chats.length > 4) return undefined;
        const key = `k${String(step.c)}`;
        client.createChat({ type: 'group', client_chat_id: key, member_ids: this.#users }).then(
          (handle) => {
            if (!this.#chats.includes(handle.id)) this.#chats.push(handle.id);
          }, () => undefined);
        return `${name} ${key}`;
      }
      case 'stop':
        if (tab.frozen) return undefined;
        void tab.stop();
        return name;
      case 'start':
        if (tab.frozen || client.state.get().phase !== 'stopped') return undefined;
        void tab.start();
        return name;
      case 'sign out':
        if (!usable) return undefined;
        browser.signedOut = true;
        client.signOut({ unsent: step.c % 2 === 0 ? 'discard' : 'refuse' }).then(() => {
          this.#oracle.forgetTicks();
        }, () => {
          browser.signedOut = false;
        });
        return name;
      case 'hide tab':
        page.hide();
        return name;
      case 'show tab':
        page.show();
        page.focus(true);
        return name;
      case 'blur tab':
        page.focus(false);
        return name;
      case 'freeze tab':
        tab.freeze();
        return name;
      case 'resume tab':
        if (tab.asleep !== 'frozen') return undefined;
        tab.wake();
        return name;
      case 'leave page':
        tab.leave();
        return name;
      case 'back':
        if (tab.asleep !== 'left') return undefined;
        tab.wake();
        return name;
      case 'close tab':
        tab.leave();
        await this.#pass(5);
        tab.crash();
        return name;
      case 'crash tab':
        tab.crash();
        return name;
      case 'read elsewhere': {
        const found = this.#server.data.chats.get(chat);
        if (found === undefined || headOf(found) === 0) return undefined;
        const n = 1 + (step.b % headOf(found));
        this.#call(tab.user, 'PATCH', `/chats/${chat}/delivery-state`, { last_read_sequence: n });
        return `${tab.user} ${chat} ${String(n)}`;
      }
      default:
        return undefined;
    }
  }

  #network(step: Step, browser: Browser, tab: Tab | undefined): string | undefined {
    const { op, c } = step;
    const links = browser.alive.map((one) => one.link);
    const faults: readonly string[] = ['drop', 'lose', 'hang', 'double', 'slow', 'half'];
    if (faults.includes(op)) {
      this.#requestFault = { fault: op as Fault, left: 1 + (c % 6) };
      return `the next ${String(1 + (c % 6))} requests`;
    }
    switch (op) {
      case 'offline':
        browser.network((link) => {
          link.setOffline(true);
        });
        break;
      case 'online':
      case 'mend network':
        browser.network((link) => {
          link.setOffline(false);
          if (op === 'online') return;
          link.portal = undefined;
          link.buffersStreams = false;
          link.blocksWebSocket = false;
        });
        for (const one of browser.alive) if (!one.frozen) one.page.emit('online');
        break;
      case 'cut':
      case 'cut half':
        for (const link of links) link.cut(op === 'cut half');
        break;
      case 'vanish':
        for (const link of links) link.vanish();
        break;
      case 'portal': {
        const answers = [
          { status: 200, headers: { 'content-type': 'text/html' }, body: '<html>Log in</html>' },
          { status: 404, headers: { 'content-type': 'text/html' }, body: 'not here' },
          { status: 502, headers: { 'content-type': 'text/plain' }, body: 'bad gateway' },
          { status: 200, headers: { 'content-type': 'application/json' }, body: '{}' },
          { status: 200, headers: {}, body: '', redirected: true },
        ];
        browser.network((link) => {
          link.portal = at(answers, c);
          link.cut();
        });
        break;
      }
      case 'buffer streams':
        browser.network((link) => {
          link.buffersStreams = true;
        });
        break;
      case 'block websocket':
        browser.network((link) => {
          link.blocksWebSocket = true;
          link.cut();
        });
        break;
      case 'reorder':
        browser.network((link) => {
          link.jitter = 400;
        });
        break;
      default:
        return undefined;
    }
    return tab === undefined ? browser.name : `${browser.name} ${tab.name}`;
  }

  async #onServer(step: Step, browser: Browser): Promise<string | undefined> {
    const { op, c } = step;
    const server = this.#server;
    const refuse = (code: string, retryAfter: number, only: (r: Request) => boolean): string => {
      const until = server.clock.monotonic() + c * 10;
      this.#refuses = { until, refusal: new Refusal(code, code, null, retryAfter), only };
      return `${code} for ${String(c * 10)} ms`;
    };
    switch (op) {
      case 'restart':
        server.restart();
        return 'the server';
      case 'kill':
        server.kill();
        await this.#pass(c * 5);
        server.start();
        return `for ${String(c * 5)} ms`;
      case 'backup':
        this.#backup = server.backup();
        return 'the server';
      case 'restore':
        if (this.#backup === undefined) return undefined;
        this.#oracle.loses();
        server.restore(this.#backup);
        for (const one of this.#browsers) for (const tab of one.list) tab.forgetTicks();
        return 'the server';
      case 'revoke tokens':
        server.revokeTokens();
        return 'the server';
      case 'refuse tokens':
        return refuse('UNAUTHENTICATED', 0, () => true);
      case 'end sessions':
        server.endSessions(browser.user);
        return browser.user;
      case 'busy':
        return refuse('UNAVAILABLE', 2, (r) => /events|poll|ws/.test(r.url.pathname));
      case 'rate limit':
        return refuse('RATE_LIMITED', 1 + (c % 3), () => true);
      case 'unavailable':
        return refuse('UNAVAILABLE', 1, () => true);
      case 'poison':
        return refuse(c % 2 === 0 ? 'CONFLICT' : 'INVALID', 0,
          (r) => r.method === 'POST' && r.url.pathname.endsWith('/messages'));
      case 'late statuses':
        server.statusesLateMs = 200 + c * 4;
        return `by ${String(200 + c * 4)} ms`;
      case 'slow opens':
        server.turnMs = c * 15;
        server.clock.timer(20_000, () => {
          server.turnMs = 0;
        });
        return `${String(c * 15)} ms`;
      default:
        return undefined;
    }
  }

  async #onDisk(
    step: Step, browser: Browser, tab: Tab | undefined,
  ): Promise<string | undefined> {
    if (!browser.durable) return undefined;
    if (step.op === 'evict') {
      await browser.disk.evict();
      return browser.name;
    }
    if (step.op === 'twin') {
      if (this.#browsers.length > 5) return undefined;
      const n = this.#browsers.length;
      const dice = new Dice(this.#seed, 200 + n);
      const disk = await browser.disk.copy(() => dice.text(32));
      const twin = this.#addBrowser(browser.user, true, disk);
      return twin.open().name;
    }
    if (tab === undefined) return undefined;
    const fault = step.op.replace(/^store /, '') as StoreFault;
    const on = fault === 'full' ? at(['commit', 'add'] as const, step.c) : at(storeSteps, step.c);
    tab.faults.set(on, fault);
    return `${tab.name} at the next ${on}`;
  }

  #members(step: Step): string | undefined {
    const [owner = ''] = this.#users;
    const user = at(this.#users, step.a);
    const chat = at(this.#chats, step.c);
    if (this.#server.data.chats.get(chat)?.type !== 'group') return undefined;
    switch (step.op) {
      case 'add member':
        this.#call(owner, 'POST', `/chats/${chat}/members`, { user_ids: [user] });
        return `${user} ${chat}`;
      case 'remove member':
        if (user === owner) return undefined;
        this.#call(owner, 'DELETE', `/chats/${chat}/members/${user}`);
        return `${user} ${chat}`;
      case 'rename chat':
        this.#call(owner, 'PATCH', `/chats/${chat}`, { name: `name ${String(step.b)}` });
        return chat;
      case 'newcomer': {
        if (this.#newcomers > 0) return undefined;
        this.#newcomers++;
        this.#users.push('new');
        this.#call(owner, 'POST', `/chats/${chat}/members`, { user_ids: ['new'] });
        return this.#addBrowser('new', true).open().name;
      }
      default:
        return undefined;
    }
  }

  // ---- The end ----------------------------------------------------------------------------------

  /** Nothing goes wrong any more. Within a minute all must be whole, sent and equal. */
  async #heal(): Promise<void> {
    this.#note('heal');
    this.#refuses = undefined;
    this.#requestFault = undefined;
    this.#server.turnMs = 0;
    for (const browser of this.#browsers) {
      browser.foreign = undefined;
      browser.tabs.loses = () => false;
      browser.network((link) => {
        link.setOffline(false);
        link.portal = undefined;
        link.buffersStreams = false;
        link.blocksWebSocket = false;
        link.jitter = 30;
      });
      for (const tab of browser.list) tab.faults.clear();
      if (browser.signedOut) continue;
      if (browser.alive.length === 0) browser.open();
      for (const tab of browser.alive) this.#wake(tab);
    }
    this.#begun = this.#server.clock.monotonic();
    let { why, next } = await this.#until();
    // A client may wait longer if it says why, and until when. Then it has a minute again. It may
    // have said so early in the minute that is over, and have connected since then.
    for (let i = 0; i < 3 && why !== undefined && next !== undefined; i++) {
      this.#count('waits as announced');
      const wait = next - this.#server.clock.now();
      if (wait > 0) await this.#pass(Math.min(wait, 20 * 60_000));
      ({ why, next } = await this.#until(Math.min(next, this.#server.clock.now())));
    }
    if (why !== undefined) throw new Broken('never_stuck', why);
    for (const tab of this.#live()) await this.#oracle.checkRedacted(tab, tab.views());
    this.#check();
    this.#count('healed');
  }

  #wake(tab: Tab): void {
    tab.wake();
    tab.page.show();
    tab.page.focus(true);
    if (tab.stopped) void tab.start();
    tab.page.emit('online');
    tab.client.retryNow();
  }

  /**
   * Waits until all is whole. Returns what is not a minute after `from`, or undefined, and the
   * latest time that a client named meanwhile for its next try.
   */
  async #until(
    from = this.#server.clock.now(),
  ): Promise<{ why: string | undefined; next: number | undefined }> {
    let next: number | undefined;
    for (;;) {
      await this.#pass(1000);
      const why = this.#notWhole();
      next = this.#announced() ?? next;
      const isOver = this.#server.clock.now() >= from + healSeconds * 1000;
      if (why === undefined || isOver) return { why, next };
    }
  }

  /** Returns when a client that is not live says that it will try again. */
  #announced(): number | undefined {
    const times = this.#live().flatMap((tab) => {
      const { phase, problem } = tab.client.state.get();
      return phase === 'live' || problem?.retryAt === undefined ? []
        : [problem.retryAt - tab.skewMs];
    });
    return times.length === 0 ? undefined : Math.max(...times);
  }

  #live(): Tab[] {
    return this.#browsers.filter((b) => !b.signedOut).flatMap((b) => b.alive);
  }

  #notWhole(): string | undefined {
    for (const tab of this.#live()) {
      const why = this.#tabNotWhole(tab);
      if (why !== undefined) return `${tab.name}: ${why}`;
    }
    return undefined;
  }

  #tabNotWhole(tab: Tab): string | undefined {
    const { client } = tab;
    const state = client.state.get();
    if (state.phase !== 'live') return JSON.stringify(state);
    const { data } = this.#server;
    const rows = new Map(client.chats.get().map((row) => [row.chat.chat_id, row]));
    for (const chat of data.chats.values()) {
      const member = isOpen(chat.members.get(tab.user)?.intervals ?? []);
      const row = rows.get(chat.id);
      if (!member) {
        if (row !== undefined && !row.left) return `${chat.id} is left, and not shown so`;
        continue;
      }
      if (row === undefined) return `${chat.id} is missing`;
      if (row.left) return `${chat.id} is shown as left`;
      if (row.prefix !== headOf(chat)) {
        return `${chat.id} has prefix ${String(row.prefix)} of ${String(headOf(chat))}`;
      }
      if (row.chat.name !== chat.name) return `${chat.id} has an old name`;
      const unread = data.unread(tab.user, chat).messages;
      if (!row.atLeast && row.unread !== unread) {
        return `${chat.id} shows ${String(row.unread)} unread, the server has ${String(unread)}`;
      }
      const last = row.last === undefined ? undefined : chat.messages[row.last.sequence - 1];
      if (row.last !== undefined && !isEqual(row.last, last)) {
        return `${chat.id} lists ${JSON.stringify(row.last)} in place of ${JSON.stringify(last)}`;
      }
      const why = this.#timelineNotWhole(tab, chat.id) ?? this.#notAcked(tab, chat.id);
      if (why !== undefined) return why;
    }
    return undefined;
  }

  /** What is shown must be what the server has. */
  #timelineNotWhole(tab: Tab, id: string): string | undefined {
    const chat = this.#server.data.chat(id);
    const items = tab.look(id).items.get();
    tab.check(id);
    for (const item of items) {
      if (item.kind === 'waiting' && item.tick !== 'failed') return `${id}: a send waits`;
      if (item.message === undefined) continue;
      const there = chat.messages[item.message.sequence - 1];
      if (there?.message_id !== item.message.message_id) {
        return `${id} ${String(item.message.sequence)} is not the server's`;
      }
      if (item.revising !== undefined) return `${id}: a change waits`;
      if (!isEqual(item.message, there) || item.content !== there.content) {
        return `${id} shows ${JSON.stringify(item.message)} in place of ${JSON.stringify(there)}`;
      }
      const got = listed(item.reactions ?? []);
      const want = listed(reactionsTo(chat, there, tab.user)
        .map(({ emoji, count, own_sequence: own }) => ({ emoji, count, own })));
      if (got !== want) return `${id} ${String(there.sequence)} has ${got} in place of ${want}`;
      if (item.tick === undefined || item.tick === 'read') continue;
      const due = this.#tick(id, tab.user, item.message.sequence);
      if (due !== item.tick && !(due === 'sent' && item.tick === 'delivered')) {
        return `${id} ${String(item.message.sequence)} shows ${item.tick} in place of ${due}`;
      }
    }
    return undefined;
  }

  #tick(id: string, user: string, sequence: number): string {
    const { data } = this.#server;
    const others = data.roster(data.chat(id)).filter((m) => m.user !== user);
    const marks = others.map((m) => data.state(m.user, id));
    if (marks.every((s) => s.read >= sequence)) return 'read';
    return marks.every((s) => Math.max(s.acked, s.read) >= sequence) ? 'delivered' : 'sent';
  }

  #notAcked(tab: Tab, id: string): string | undefined {
    const chat = this.#server.data.chat(id);
    const { acked } = this.#server.data.state(tab.user, id);
    const passed = this.#server.clock.monotonic() - this.#begun;
    if (!tab.durable || acked >= headOf(chat)) return undefined;
    return `${id} is acknowledged to ${String(acked)} of ${String(headOf(chat))} after ` +
      `${String(passed)} ms`;
  }
}

function isEqual(a: Message, b: Message | undefined): boolean {
  return a.content === b?.content && JSON.stringify(a.revision) === JSON.stringify(b.revision);
}

/** Reactions, in any order. */
function listed(reactions: readonly Pick<EmojiCount, 'emoji' | 'count' | 'own'>[]): string {
  return reactions.map(({ emoji, count, own }) => `${emoji} ${String(count)} ${String(own)}`)
    .sort().join();
}

function at<T>(list: readonly T[], n: number): T {
  const found = list[n % list.length];
  if (found === undefined) throw new Error('the list is empty');
  return found;
}

function idOf(answer: unknown): string {
  if (typeof answer === 'object' && answer !== null && 'chat_id' in answer &&
    typeof answer.chat_id === 'string') return answer.chat_id;
  throw new Error('no chat');
}

const networkOps: readonly Op[] = ['offline', 'online', 'cut', 'cut half', 'vanish', 'portal',
  'buffer streams', 'block websocket', 'mend network', 'drop', 'lose', 'hang', 'double', 'slow',
  'half', 'reorder'];
const serverOps: readonly Op[] = ['restart', 'kill', 'backup', 'restore', 'revoke tokens',
  'refuse tokens', 'end sessions', 'busy', 'rate limit', 'unavailable', 'poison', 'slow opens',
  'late statuses'];
const diskOps: readonly Op[] = ['crash before', 'crash after', 'full', 'store unavailable',
  'store unknown', 'store slow', 'store lost', 'evict', 'twin'];
const memberOps: readonly Op[] = ['add member', 'remove member', 'rename chat', 'newcomer'];

const isNetwork = (op: Op): boolean => networkOps.includes(op);
const isServer = (op: Op): boolean => serverOps.includes(op);
const isDisk = (op: Op): boolean => diskOps.includes(op);
const isMembers = (op: Op): boolean => memberOps.includes(op);
