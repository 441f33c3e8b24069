// The browsers and tabs of the simulation.

import { createClient } from '../../src/index.js';
import { signedOut } from '../../src/errors.js';
import type { Client, Timeline } from '../../src/types.js';
import { FakeServer, VirtualPage, VirtualTabs, type Link } from '../../src/testing/index.js';
import { Dice } from '../../src/testing/random.js';
import { Disk, WatchedStore, type StoreFault, type StoreStep, type StoreWatch } from './disk.js';
import type { Oracle, Watched } from './oracle.js';

/** One browser profile of one person. All its tabs share a disk and a network. */
export class Browser {
  readonly name: string;
  readonly server: FakeServer;
  readonly oracle: Oracle;
  readonly disk: Disk;
  readonly tabs: VirtualTabs;
  readonly list: Tab[] = [];
  /** False: there is no disk, and each tab is alone. */
  readonly durable: boolean;
  readonly dice: Dice;
  readonly count: (what: string) => void;
  user: string;
  /** Requests get this while it is set. */
  signedOut = false;
  /** `getToken` gives another user's token. */
  foreign: string | undefined;
  skewMs = 0;
  #made = 0;
  /** Changes the network of each tab, now and later. */
  readonly #network: ((link: Link) => void)[] = [];

  constructor(o: {
    name: string; user: string; server: FakeServer; oracle: Oracle; durable: boolean; dice: Dice;
    count: (what: string) => void; disk?: Disk;
  }) {
    this.name = o.name;
    this.user = o.user;
    this.server = o.server;
    this.oracle = o.oracle;
    this.durable = o.durable;
    this.dice = o.dice;
    this.count = o.count;
    this.disk = o.disk ?? new Disk(() => this.newId());
    this.tabs = new VirtualTabs(o.server.clock);
  }

  newId(): string {
    return this.dice.text(32);
  }

  get alive(): Tab[] {
    return this.list.filter((tab) => tab.alive);
  }

  /** Sets something of the network of all tabs, those of today and those to come. */
  network(set: (link: Link) => void): void {
    this.#network.push(set);
    for (const tab of this.alive) set(tab.link);
  }

  open(): Tab {
    const tab = new Tab(this, `${this.name}.${String(++this.#made)}`);
    this.list.push(tab);
    for (const set of this.#network) set(tab.link);
    return tab;
  }
}

/** One page with a client. */
export class Tab implements Watched, StoreWatch {
  readonly name: string;
  readonly browser: Browser;
  readonly user: string;
  readonly disk: Disk;
  readonly client: Client;
  readonly page: VirtualPage;
  readonly link: Link;
  /** How far its clock is ahead. A later tab may have another one. */
  readonly skewMs: number;
  readonly shown = new Map<string, number>();
  readonly timelines = new Map<string, Timeline>();
  readonly problems: string[] = [];
  storeId = '';
  alive = true;
  /** The page does not run: the browser froze it, or keeps it for Back. */
  asleep: 'frozen' | 'left' | undefined;
  started = false;
  /** The application has stopped the client, or is about to. */
  stopped = false;
  /** What happens to the next step of a kind. */
  readonly faults = new Map<StoreStep, StoreFault>();
  readonly #endTabs: () => void;
  readonly #ticks = new Map<string, Map<string, number>>();
  readonly #messages = new Set<string>();
  /** How many stores the client has had: each one takes all messages for the first time. */
  #stores = 0;
  /** The client may have a store that the simulation does not see. */
  #other = false;
  /** What was shown last came from the disk. */
  #wasDurable = true;
  /** Until when ticks may fall: pages show a rebase a little later than it is stored. */
  #mayFall = 0;
  #held: (() => void)[] = [];

  constructor(browser: Browser, name: string) {
    this.name = name;
    this.browser = browser;
    this.user = browser.user;
    const { server, oracle } = browser;
    this.disk = browser.durable ? browser.disk : new Disk(() => browser.newId());
    const gate = (run: () => void): void => {
      if (!this.alive) return;
      if (this.frozen) this.#held.push(run);
      else run();
    };
    this.skewMs = browser.skewMs;
    const place = server.place({ skewMs: this.skewMs, gate });
    this.page = place.page;
    this.link = place.link;
    const next = this.link.onRequest;
    this.link.onRequest = (request) => {
      oracle.request(this, request);
      return next(request);
    };
    this.link.onFrame = (text) => {
      oracle.frame(this, text);
    };
    const { tabs, end } = browser.tabs.tab(gate);
    this.#endTabs = end;
    this.client = createClient({
      url: server.url, user: this.user,
      getToken: () => (browser.signedOut ? Promise.reject(signedOut('signed out'))
        : Promise.resolve(server.token(browser.foreign ?? this.user, 900))),
      store: new WatchedStore(this.disk, browser.durable, this),
      ...(browser.durable ? { tabs } : {}),
      platform: place.platform,
    });
    this.client.on('message', (m) => {
      const key = `${String(this.#stores)} ${m.chat_id} ${String(m.sequence)} ${m.message_id}`;
      // Nobody sees a rebase of the memory that stands in for a disk.
      const seen = this.browser.durable === this.durable;
      if (seen && this.#messages.has(key)) oracle.fail('once', `${this.name} is told ${key} twice`);
      this.#messages.add(key);
    });
    this.client.on('problem', ({ code }) => {
      this.problems.push(code);
      if (code.startsWith('STORE_')) this.#otherStore();
    });
    void this.start();
  }

  get durable(): boolean {
    return this.browser.durable && (!this.started || this.client.state.get().durable);
  }

  get attached(): boolean {
    return this.browser.durable ? this.durable : !this.#other;
  }

  async start(): Promise<void> {
    this.stopped = false;
    await this.client.start();
    this.started = true;
  }

  async stop(): Promise<void> {
    this.stopped = true;
    await this.client.stop();
  }

  /** Opens the timeline of a chat, as a person does. */
  look(chat: string): Timeline {
    const known = this.timelines.get(chat);
    if (known !== undefined) return known;
    const timeline = this.client.chat(chat).timeline();
    this.timelines.set(chat, timeline);
    const ticks = new Map<string, number>();
    for (const [key, rank] of this.browser.oracle.ticksOf(this.storeId)) {
      if (key.startsWith(`${chat} `)) ticks.set(key, rank);
    }
    this.#ticks.set(chat, ticks);
    timeline.items.subscribe(() => {
      this.check(chat);
    });
    return timeline;
  }

  check(chat: string): void {
    const timeline = this.timelines.get(chat);
    const ticks = this.#ticks.get(chat);
    if (!this.alive || timeline === undefined || ticks === undefined) return;
    // Memory took the place of the disk. A rebase there may take ticks back, and nobody sees it.
    // What it showed last does not bind the disk, when that comes back.
    if (this.browser.durable && !(this.durable && this.#wasDurable)) this.forgetTicks();
    this.#wasDurable = this.durable;
    if (this.browser.server.clock.now() < this.#mayFall) ticks.clear();
    this.browser.oracle.items(this, chat, timeline.items.get(), ticks);
  }

  /** What was shown from the store before does not bind the next one. */
  #otherStore(): void {
    this.#other = true;
    this.#stores++;
    this.forgetTicks();
  }

  forgetTicks(): void {
    for (const ticks of this.#ticks.values()) ticks.clear();
  }

  /** Everything that the page can show, as text. */
  views(): string {
    const { chats } = this.client;
    return JSON.stringify([chats.get(), [...this.timelines.values()].map((t) => t.items.get())]);
  }

  /** The person has seen a message and all before it. */
  see(chat: string, sequence: number): void {
    this.shown.set(chat, Math.max(this.shown.get(chat) ?? 0, sequence));
    this.client.chat(chat).shown(sequence);
  }

  // ---- Life -------------------------------------------------------------------------------------

  get frozen(): boolean {
    return this.asleep !== undefined;
  }

  freeze(): void {
    if (this.frozen || !this.alive) return;
    this.page.emit('freeze');
    this.asleep = 'frozen';
  }

  /** The page goes away, in order. The browser may keep it for Back. */
  leave(): void {
    if (!this.alive || this.frozen) return;
    this.page.hide();
    this.page.emit('pagehide');
    this.asleep = 'left';
  }

  /** The page runs again: it was frozen, or the person came back to it. */
  wake(): void {
    if (!this.alive || this.asleep === undefined) return;
    const was = this.asleep;
    this.asleep = undefined;
    if (was === 'left') {
      this.page.show();
      this.page.emit('pageshow');
    } else {
      this.page.emit('resume');
    }
    const held = this.#held;
    this.#held = [];
    for (const run of held) run();
  }

  crash(): void {
    if (!this.alive) return;
    this.alive = false;
    this.link.cut();
    this.#endTabs();
  }

  // ---- The store --------------------------------------------------------------------------------

  fault(step: StoreStep): StoreFault | undefined {
    const fault = this.faults.get(step);
    this.faults.delete(step);
    if (fault !== undefined) this.browser.count(`store ${fault} ${step}`);
    return fault;
  }

  pass(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.browser.server.clock.timer(ms, () => {
        if (!this.alive) return;
        if (this.frozen) this.#held.push(resolve);
        else resolve();
      });
    });
  }

  evict(): Promise<void> {
    return this.disk.evict();
  }

  opened(...[user, opened]: Parameters<StoreWatch['opened']>): void {
    const id = `${this.disk.tag} ${opened.id}`;
    if (id !== this.storeId || this.#other) this.#otherStore();
    this.#other = false;
    this.browser.oracle.opened(this, user, { ...opened, id });
  }

  committed(...[, change, rows, returned]: Parameters<StoreWatch['committed']>): void {
    if ((change.rebase ?? []).length > 0) {
      this.browser.count('rebase');
      for (const tab of this.browser.list) tab.#rebased();
    }
    void this.browser.oracle.committed(this, change, rows, returned);
  }

  /** What was taken back may come again. */
  #rebased(): void {
    this.#stores++;
    this.forgetTicks();
    this.#mayFall = this.browser.server.clock.now() + 5_000;
  }

  told(...[, rows]: Parameters<StoreWatch['told']>): void {
    this.browser.oracle.told(this.storeId, this.user, rows);
  }

  added(...[, send]: Parameters<StoreWatch['added']>): void {
    this.browser.oracle.added(this, send);
  }
}
