// Clients on the fake server, in virtual time.

import assert from 'node:assert/strict';

import { createClient, memoryStore, type Client, type Options } from '../src/index.js';
import {
  FakeServer, type FakeServerOptions, type Place, type VirtualTabs,
} from '../src/testing/index.js';
import type { Message } from '../src/wire.gen.js';

export interface Tab { readonly client: Client; readonly place: Place; readonly end: () => void }

/** A server with the chat `team` of some users. */
export class Scene {
  readonly server: FakeServer;
  #sent = 0;

  constructor(...users: string[]);
  constructor(options: FakeServerOptions, ...users: string[]);
  constructor(first: string | FakeServerOptions, ...rest: string[]) {
    const users = typeof first === 'string' ? [first, ...rest] : rest;
    this.server = new FakeServer(typeof first === 'string' ? {} : first);
    this.call(users[0] ?? '', 'POST', '/chats', {
      type: 'group', chat_id: 'team', member_ids: users, history: 'full',
    });
  }

  call(user: string, method: string, path: string, body?: object): unknown {
    const answer = this.server.call(user, method, path, body);
    assert.ok(answer.status < 300, JSON.stringify(answer));
    return answer.body;
  }

  says(user: string, content: string, more: object = {}): Message {
    return this.call(user, 'POST', '/chats/team/messages',
      { client_message_id: `x${++this.#sent}`, content, seen_sequence: 0, ...more }) as Message;
  }

  /** What the server knows of a user. */
  state(user: string): { acked: number; read: number } {
    const { last_acked_sequence: acked, last_read_sequence: read } =
      this.call(user, 'GET', '/chats/team/delivery-state') as Record<string, number>;
    return { acked: acked ?? 0, read: read ?? 0 };
  }

  tab(user: string, options: Partial<Options> = {}, tabs?: VirtualTabs): Tab {
    const place = this.server.place();
    const own = tabs?.tab();
    const client = createClient({
      url: this.server.url, user, getToken: this.server.getToken(user),
      store: memoryStore({ durable: true }), platform: place.platform,
      ...own && { tabs: own.tabs }, ...options,
    });
    return { client, place, end: () => { own?.end(); } };
  }

  async started(user: string, options: Partial<Options> = {}, tabs?: VirtualTabs): Promise<Tab> {
    const tab = this.tab(user, options, tabs);
    await this.within(5_000, tab.client.start());
    await this.until(() => tab.client.state.get().phase === 'live');
    return tab;
  }

  async until(done: () => boolean, ms = 30_000): Promise<void> {
    assert.ok(await this.server.clock.runUntil(done, ms), `not within ${ms} ms`);
  }

  pass(ms: number): Promise<void> {
    return this.server.clock.run(ms);
  }

  /** Lets time pass until a promise has settled. */
  async within<T>(ms: number, promise: Promise<T>): Promise<T> {
    let settled = false;
    const done = promise.finally(() => { settled = true; });
    done.catch(() => undefined);
    await this.until(() => settled, ms);
    return done;
  }
}
