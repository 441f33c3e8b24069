// A tab: its store, and its part among the tabs of one user.

import { newLead, stepLead, TICK_MS, type LeadInput } from '../core/lead.js';
import { codeOf, invalid, stopped, unsent } from '../errors.js';
import { memoryStore } from '../store/memory.js';
import { carriedTo } from '../core/chats.js';
import type {
  Channel, Events, Options, Platform, State, Store, StoredChat,
} from '../types.js';
import type { Chat, Typing } from '../wire.gen.js';
import { hexOf } from '../core/hex.js';
import { isObject } from '../core/ended.js';
import { dataOf, queue, type Data } from './data.js';
import { leaderOf, type Leader, type LeaderOwner, type Line } from './leader.js';
import type { Rest } from './rest.js';

// The first wait before the client tries a failed store again. It doubles each time.
const FIRST_RETRY_MS = 5_000;
const LAST_RETRY_MS = 300_000;
const STOP_MS = 5_000;

export interface Tab {
  readonly data: Data | undefined;
  readonly leader: Leader | undefined;
  /** Loads the store, and takes part. */
  start(): Promise<void>;
  stop(): Promise<void>;
  signOut(unsent: 'refuse' | 'discard'): Promise<void>;
  /**
   * Runs a step of the store after those before it, and lets the leader and other tabs know of it.
   */
  write<T>(step: (store: Store) => Promise<T>): Promise<T>;
  wake(): void;
  show(chat: string): void;
  /** Takes a chat of an answer about data of this incarnation, if it was named. */
  know(chat: Chat, of?: string): Promise<void>;
  typing(chat: string): void;
  /** Tells the other tabs. */
  post(notice: Notice): void;
}

export interface TabOwner extends Pick<LeaderOwner,
  'event' | 'tell' | 'problem' | 'frame' | 'shown'> {
  readonly options: Options;
  readonly platform: Platform;
  readonly rest: Rest;
  changed(chats: ReadonlySet<string>, outbox: boolean): void;
  /** The data are others, or gone. */
  reset(): void;
  /** Another tab has posted what this code does not know. */
  notice(notice: object): void;
  /** The chats on this page. */
  open(): Iterable<string>;
  /** The page is visible again. */
  visible(): void;
  state(state: State): void;
}

export type Notice =
  | { readonly kind: 'looks' | 'presence' }
  | { readonly kind: 'changed'; readonly rev: number }
  | { readonly kind: 'line'; readonly line: Line }
  | { readonly kind: 'signed-out' }
  | { readonly kind: 'ping'; readonly chats: readonly string[] }
  | { readonly kind: 'typing'; readonly typing: Typing }
  | { readonly kind: 'tell'; readonly type: 'restored'; readonly told: Events['restored'] }
  | { readonly kind: 'tell'; readonly type: 'refused'; readonly told: Events['refused'] }
  | { readonly kind: 'type'; readonly chat: string }
  | { readonly kind: 'know'; readonly known: Chat; readonly of?: string | undefined };

export function tabOf(owner: TabOwner): Tab {
  const { options, platform, rest } = owner;
  const { page } = platform;
  const visible = (): boolean => page?.visible() !== false;
  const memory = (): Store => memoryStore({ newId: () => hexOf(platform.random(16)) });
  const own = options.store ?? memory();
  /** What the tabs of this user share. */
  const name = `tidemark ${rest.url} ${options.user}`;
  let lead = newLead(options.tabs !== undefined, visible());
  let data: Data | undefined;
  let leader: Leader | undefined;
  let reign = new AbortController();
  let asking = new AbortController();
  let release: (() => void) | undefined;
  let channel: Channel | undefined;
  let line: Line = { phase: 'connecting' };
  let outdated = false;
  /** How long the client waits before it tries a failed store again. */
  let storeWait = FIRST_RETRY_MS;
  /** The store that was lost, and is being opened again. */
  let lost: Store | undefined;
  let booting: Promise<void> = Promise.resolve();
  /** A stop that is under way, and whether a start waits for it. */
  let stopping: Promise<void> | undefined;
  let starts = false;
  const isWanted = (): boolean => starts;
  let loaded = false;
  /** Which boot is the latest. What an earlier one began has no effect any more. */
  let generation = 0;
  let life: 'off' | 'on' | 'suspended' | 'signed-out' = 'off';
  let told = 0;
  /** What an earlier store knew, for the one that took its place. */
  let carried: readonly StoredChat[] = [];
  const cancels: (() => void)[] = [];
  const inOrder = queue();
  let cancelStore: (() => void) | undefined;

  const post = (notice: Notice): void => { channel?.post({ v: 1, ...notice }); };
  const spawn = (task: Promise<unknown>): void => {
    task.catch((error: unknown) => {
      if (codeOf(error) === undefined) owner.problem({ code: 'BUG', detail: String(error) });
    });
  };

  function tell(): void {
    owner.state({
      ...line, ...outdated && { phase: 'outdated' },
      leader: leader !== undefined, durable: data?.store.durable ?? false,
    });
  }

  // ---- The store ----

  /** Opens a store and takes part with it. If it can't be opened, memory takes its place. */
  function boot(store: Store): Promise<void> {
    return booting = load(store);
  }

  async function load(store: Store): Promise<void> {
    const mine = ++generation;
    loaded = false;
    const before = data;
    carried = [...before?.chats.values() ?? []];
    quit(false);
    lead = newLead(options.tabs !== undefined && store === own, visible());
    line = { phase: 'connecting' };
    try {
      const opened = await store.open(options.user, rest.url);
      if (mine !== generation) return;
      const news = dataOf(store, opened, changed, (code) => {
        if (mine === generation) spawn(failed(store, code));
      });
      store.onlost = () => { if (mine === generation) spawn(failed(store, 'STORE_LOST')); };
      for (const item of before?.outbox ?? []) {
        // The same data know better what is still to be sent.
        if (before?.id !== news.id && item.state === 'due') await news.run(() => store.add(item));
      }
      await news.reread();
      if (mine as unknown !== generation) return;
      data = news;
      told = data.rev;
    } catch (error) {
      if (mine === generation) await failed(store, codeOf(error) ?? 'STORE_UNAVAILABLE');
      return;
    }
    lost = undefined;
    loaded = true;
    cancelStore?.();
    if (store !== own) {
      retryOwn();
    } else outdated = false;
    owner.reset();
    tell();
    joined();
    input('start');
  }

  /** Tries later whether the store opens again. Until then memory keeps what it has. */
  function retryOwn(): void {
    const mine = generation;
    const retry = async (): Promise<void> => {
      const opens = await own.open(options.user, rest.url).then(() => true, () => false);
      if (life !== 'on' || mine !== generation) return;
      if (opens) await boot(own);
      else retryOwn();
    };
    cancelStore = platform.timer(storeWait, () => { spawn(retry()); });
    storeWait = Math.min(2 * storeWait, LAST_RETRY_MS);
  }

  async function failed(store: Store, code: string): Promise<void> {
    if (code === 'FENCED') {
      input('fenced');
      if (lead.at !== 'off') return;
      line = { phase: 'refused', problem: {
        code, detail: 'Another tab uses the same data. Pass `tabs`.' } };
      tell();
    } else if (code === 'SIGNED_OUT') {
      signedOut();
    } else {
      if (code === 'STORE_OUTDATED') outdated = true;
      owner.problem({ code, detail: 'The stored data cannot be used now.' });
      // What was lost is opened once more: there may be new data.
      const again = code === 'STORE_LOST' && store !== lost;
      lost = store;
      await boot(again ? store : memory());
    }
  }

  function changed(chats: ReadonlySet<string>, outbox: boolean): void {
    leader?.changed(chats);
    if (outbox) leader?.poke();
    owner.changed(chats, outbox);
    if (data && data.rev > told) {
      told = data.rev;
      post({ kind: 'changed', rev: told });
    }
  }

  async function write<T>(step: (store: Store) => Promise<T>): Promise<T> {
    if (life === 'on') await booting;
    const used = data;
    if (!used) throw stopped('The client is not started.');
    const result = await used.run(step);
    await used.reread().catch(() => undefined);
    if (life === 'on') await booting;
    // Data that took the place of these meanwhile need the step, too.
    return data && data.id !== used.id ? write(step) : result;
  }

  // ---- The tabs ----

  function input(event: LeadInput): void {
    for (const effect of stepLead(lead, event, platform.monotonic())) {
      switch (effect) {
        case 'ask': ask(false); break;
        case 'steal': ask(true); break;
        case 'lead': spawn(begin()); break;
        case 'release': end(false); break;
        case 'ping': ping(); break;
        case 'pong': post({ kind: 'line', line }); break;
        case 'reread': if (data) spawn(data.reread());
      }
    }
  }

  function ask(steal: boolean): void {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    const asked = !lead.tabs || !options.tabs ? Promise.resolve(() => undefined)
      : options.tabs.lead(name, { signal, steal });
    asked.then((give) => {
      if (signal.aborted) give();
      else {
        release = give;
        line = { phase: 'connecting' };
        input('granted');
      }
    }).catch(() => {
      // It was aborted, or there are no locks: a tick asks again.
      if (!signal.aborted) cancels.push(platform.timer(TICK_MS, () => {
        if (lead.at === 'waiting' && signal === asking.signal) ask(steal);
      }));
    });
  }

  /** Begins to lead: all earlier leaders are fenced from now on. */
  async function begin(): Promise<void> {
    if (!data) return;
    const mine = generation;
    const present = data;
    reign = new AbortController();
    const { signal } = reign;
    const term = await present.run((store) => store.lead());
    await present.reread();
    const over = (): boolean => signal.aborted || mine !== generation;
    if (over()) return;
    const carry = carriedTo(present.chats, carried);
    carried = [];
    if (carry.length > 0) await present.commit(term, () => ({ chats: carry }));
    if (over()) return;
    leader = leaderOf({
      ...owner, data: present, end: signal,
      line(next) {
        if (signal.aborted) return;
        line = next;
        tell();
        post({ kind: 'line', line });
      },
      event(event) {
        owner.event(event);
        if (event.type === 'typing') post({ kind: 'typing', typing: event.payload });
      },
      tell(type, told) {
        owner.tell(type, told);
        post({ kind: 'tell', type, told } as Notice);
      },
    }, term);
    for (const chat of owner.open()) leader.show(chat);
    tell();
  }

  /** Ends to lead. */
  function end(over: boolean): void {
    leader?.stop(over);
    leader = undefined;
    reign.abort();
    asking.abort();
    release?.();
    release = undefined;
    line = { phase: 'connecting' };
    if (life === 'on') tell();
  }

  function quit(over: boolean): void {
    if (lead.at !== 'off') {
      lead.at = 'off';
      end(over);
    }
    channel?.close();
    channel = undefined;
  }

  function joined(): void {
    channel = lead.tabs ? options.tabs?.channel(name,
      (notice) => { if (isObject(notice) && notice['v'] === 1) noticed(notice as Notice); })
      : undefined;
    ping();
  }

  /** Asks for a sign of the leader, and tells it which chats are on this page. */
  function ping(): void {
    post({ kind: 'ping', chats: [...owner.open()] });
  }

  function noticed(notice: Notice): void {
    switch (notice.kind) {
      case 'changed':
        told = Math.max(told, notice.rev);
        if (data && notice.rev !== data.rev) spawn(data.reread());
        break;
      case 'line':
        input('pong');
        if (leader) break;
        ({ line } = notice);
        tell();
        break;
      case 'ping':
        input('ping');
        for (const chat of notice.chats) leader?.show(chat);
        break;
      case 'typing': owner.event({ type: 'typing', payload: notice.typing }); break;
      case 'tell': owner.tell(notice.type, notice.told); break;
      case 'type': leader?.typing(notice.chat); break;
      case 'know': if (leader) spawn(leader.know(notice.known, notice.of)); break;
      case 'signed-out': if (life === 'on') spawn(boot(own)); break;
      default: owner.notice(notice);
    }
  }

  /** Without tabs, a client that was fenced tries again when the user is here. */
  function contend(): void {
    if (!lead.tabs && loaded) input('start');
  }

  // ---- The page ----

  function suspend(): void {
    if (life !== 'on') return;
    life = 'suspended';
    leader?.last();
    generation++;
    quit(data?.store.durable === false);
    data?.store.close();
    // It may just be opening.
    spawn(booting.then(() => { if (life === 'suspended') own.close(); }));
  }

  function listen(): void {
    const tick = (): void => {
      input('tick');
      cancels[0] = platform.timer(TICK_MS, tick);
    };
    cancels.push(platform.timer(TICK_MS, tick));
    if (!page) return;
    const resume = (): void => {
      if (life !== 'suspended') return;
      life = 'on';
      spawn(boot(own));
    };
    cancels.push(
      page.on('visible', () => {
        resume();
        input('visible');
        contend();
        owner.visible();
        leader?.wake();
      }),
      page.on('hidden', () => {
        input('hidden');
        if (leader) spawn(leader.flush());
      }),
      page.on('online', () => { leader?.wake(); }),
      page.on('freeze', suspend), page.on('pagehide', suspend),
      page.on('resume', resume), page.on('pageshow', resume),
    );
  }

  function off(): void {
    for (const cancel of cancels.splice(0)) cancel();
    cancelStore?.();
    generation++;
  }

  function signedOut(): void {
    off();
    quit(true);
    life = 'signed-out';
    data = undefined;
    owner.reset();
    owner.state({ phase: 'signed-out', leader: false, durable: false });
  }

  /** Memory was in use. What the store has from before goes, too. */
  async function wipeOwn(): Promise<void> {
    try {
      await own.open(options.user, rest.url);
      await own.wipe({ unsent: 'discard' });
    } catch (error) {
      owner.problem({ code: codeOf(error) ?? 'STORE_UNAVAILABLE',
        detail: 'This browser may still have the data.' });
    }
  }

  async function halt(): Promise<void> {
    if (leader) {
      let cancel: (() => void) | undefined;
      const late = new Promise<void>((done) => { cancel = platform.timer(STOP_MS, done); });
      await Promise.race([leader.flush().catch(() => undefined), late]);
      cancel?.();
    }
    off();
    quit(false);
    data?.store.close();
    data = undefined;
    // The store may just be opening.
    await booting.catch(() => undefined);
    own.close();
    owner.state({ phase: 'stopped', leader: false, durable: false });
  }

  return {
    get data() { return data; },
    get leader() { return leader; },
    post,
    async start() {
      if (stopping) {
        starts = true;
        await stopping;
        // It was stopped again meanwhile.
        if (!isWanted()) return;
      }
      if (life === 'on') return;
      if (!/^https?:\/\/./.test(rest.url)) {
        const detail = '`url` must begin with https:// or http://.';
        line = { phase: 'refused', problem: { code: 'INVALID', detail } };
        tell();
        throw invalid(detail);
      }
      life = 'on';
      rest.restart();
      owner.state({ phase: 'loading', leader: false, durable: false });
      listen();
      await boot(own);
    },
    stop() {
      starts = false;
      if (life === 'off' || life === 'signed-out') return stopping ?? Promise.resolve();
      life = 'off';
      return stopping = halt().finally(() => { stopping = undefined; });
    },
    async signOut(how) {
      // The store would refuse it, too, but then it has to be opened again.
      if (how === 'refuse') {
        // A send that waits for its turn is not in the outbox yet.
        await inOrder(() => data?.reread());
        if (data?.outbox.length) throw unsent();
      }
      const used = data?.store ?? own;
      generation++;
      try {
        if (!data) await own.open(options.user, rest.url);
        await used.wipe({ unsent: how });
      } catch (error) {
        // Nothing was removed.
        if (life === 'on') spawn(boot(used));
        throw error;
      }
      if (used !== own) await wipeOwn();
      // Where there is no channel, as before the store is open, one is opened for this.
      const to = channel ?? options.tabs?.channel(name, () => undefined);
      to?.post({ v: 1, kind: 'signed-out' });
      if (to !== channel) to?.close();
      signedOut();
    },
    write: (step) => inOrder(() => write(step)),
    wake() {
      contend();
      leader?.wake();
    },
    show(chat) {
      if (leader) leader.show(chat);
      else ping();
    },
    async know(known, of) {
      if (leader) await leader.know(known, of);
      else post({ kind: 'know', known, of });
    },
    typing(chat) {
      if (leader) leader.typing(chat);
      else post({ kind: 'type', chat });
    },
  };
}
