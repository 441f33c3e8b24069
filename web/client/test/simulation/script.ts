// A random script of requests, and what a server answers to it in a form that can be compared.

import { Dice } from '../../src/testing/random.js';
import type { World } from './worlds.js';
import type { Wire } from './websocket.js';

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** What a device has heard of its stream since it was last asked. */
interface Heard {
  readonly events: { type: string; payload: Json }[];
  ended: string | undefined;
}

/** One device with at most one stream. */
class Device {
  readonly user: string;
  readonly name: string | undefined;
  readonly #world: World;
  readonly #touch: () => void;
  #heard: Heard = { events: [], ended: undefined };
  session: string | undefined;
  /** The ids of the events of the session whose number does not depend on timing. */
  ids: number[] = [];
  lastId = 0;
  #abort: AbortController | undefined;
  #wire: Wire | undefined;
  polling = false;
  /** The highest status of each chat and member. */
  readonly statuses = new Map<string, string>();
  readonly own = new Map<string, string>();

  constructor(world: World, user: string, name: string | undefined, touch: () => void) {
    this.#world = world;
    this.user = user;
    this.name = name;
    this.#touch = touch;
  }

  get connected(): boolean {
    return this.#abort !== undefined || this.#wire !== undefined || this.polling;
  }

  get framing(): boolean {
    return this.#wire !== undefined;
  }

  async open(transport: 'ws' | 'sse' | 'poll', after: number | undefined): Promise<void> {
    this.cut();
    const query = new URLSearchParams({ ticket: `dev:${this.user}` });
    if (this.name !== undefined) query.set('device_id', this.name);
    const resume = after !== undefined && this.session !== undefined;
    if (resume && transport !== 'sse') {
      query.set('session_id', this.session ?? '');
      query.set('after_event_id', String(after));
    } else if (resume) {
      query.set('last_event_id', `${this.session ?? ''}.${String(after)}`);
    } else if (transport === 'poll') {
      this.session = undefined;
    }
    if (transport === 'ws') await this.#openSocket(query);
    else if (transport === 'sse') await this.#openEvents(query);
    else await this.#poll(resume ? after : undefined);
  }

  async #openSocket(query: URLSearchParams): Promise<void> {
    const base = this.#world.base.replace(/^http/, 'ws');
    const wire = await this.#world.connect(`${base}/ws?${query.toString()}`);
    this.#wire = wire;
    wire.onclose = (code) => {
      if (this.#wire !== wire) return;
      this.#wire = undefined;
      this.#end(`close ${String(code)}`);
    };
    wire.onmessage = (text) => {
      if (this.#wire === wire) this.#take(JSON.parse(text) as { [key: string]: Json });
    };
  }

  async #openEvents(query: URLSearchParams): Promise<void> {
    const abort = new AbortController();
    this.#abort = abort;
    const response = await this.#world.fetch(`${this.#world.base}/events?${query.toString()}`, {
      signal: abort.signal,
    });
    if (response.status !== 200) {
      this.#abort = undefined;
      this.#end(`status ${String(response.status)}`);
      return;
    }
    void this.#read(response, abort);
  }

  async #read(response: Response, abort: AbortController): Promise<void> {
    const decoder = new TextDecoder();
    const reader = response.body?.getReader();
    let text = '';
    try {
      for (;;) {
        const part = await reader?.read();
        if (part === undefined || part.done) break;
        text += decoder.decode(part.value, { stream: true });
        const blocks = text.split('\n\n');
        text = blocks.pop() ?? '';
        if (this.#abort === abort) blocks.forEach((b) => {
          this.#block(b);
        });
      }
      if (this.#abort === abort) this.#end('end');
    } catch {
      if (this.#abort === abort) this.#end('broken');
    }
    if (this.#abort === abort) this.#abort = undefined;
  }

  #block(block: string): void {
    const field = (name: string): string | undefined => block.split('\n')
      .find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
    const data = field('data');
    if (data === undefined) return;
    const id = field('id')?.split('.').at(-1);
    this.#take({
      ...(id === undefined ? {} : { id: Number(id) }), type: field('event') ?? '',
      payload: JSON.parse(data) as Json,
    });
  }

  /** Polls until there is nothing more. */
  async #poll(after: number | undefined): Promise<void> {
    this.polling = true;
    let from = after;
    for (let i = 0; i < 50; i++) {
      const query = new URLSearchParams({ ticket: `dev:${this.user}`, wait_seconds: '0' });
      if (this.name !== undefined) query.set('device_id', this.name);
      if (this.session !== undefined) {
        query.set('session_id', this.session);
        query.set('after_event_id', String(from ?? this.lastId));
      }
      from = undefined;
      const response = await this.#world.fetch(
        `${this.#world.base}/poll?${query.toString()}`, {});
      const body = await response.json() as { session_id?: string; events?: Json[] };
      if (response.status !== 200) {
        this.polling = false;
        this.#end(`status ${String(response.status)}`);
        return;
      }
      this.session = body.session_id;
      const events = body.events ?? [];
      for (const e of events) this.#take(e as { [key: string]: Json });
      if (events.length === 0) return;
    }
  }

  /** Fetches what a long-poll would get. */
  async refresh(): Promise<void> {
    if (this.polling) await this.#poll(undefined);
  }

  cut(): void {
    const abort = this.#abort;
    const wire = this.#wire;
    this.#abort = undefined;
    this.#wire = undefined;
    this.polling = false;
    abort?.abort();
    wire?.cut();
  }

  /** Ends the session, if the transport can say so. */
  goodbye(): void {
    this.#wire?.close(1000);
  }

  send(frame: object): void {
    this.#wire?.send(JSON.stringify(frame));
  }

  #end(why: string): void {
    this.#touch();
    this.#heard.ended = why;
  }

  #take(e: { [key: string]: Json }): void {
    this.#touch();
    const { type, payload } = e;
    if (typeof type !== 'string' || payload === undefined) throw new Error('no event');
    if (type === 'session' && typeof payload === 'object' && payload !== null &&
      !Array.isArray(payload) && typeof payload['session_id'] === 'string') {
      if (payload['session_id'] !== this.session) this.ids = [];
      this.session = payload['session_id'];
    }
    if (typeof e['id'] === 'number') {
      this.lastId = e['id'];
      if (['message', 'gap', 'membership'].includes(type)) this.ids.push(e['id']);
    }
    this.#heard.events.push({ type, payload });
  }

  take(): Heard {
    const heard = this.#heard;
    this.#heard = { events: [], ended: undefined };
    return heard;
  }
}

/** Makes answers of two servers comparable. */
class Normalizer {
  readonly #names = new Map<string, string>();

  /** From now on, `id` is shown as `name`. */
  name(id: string, name: string): void {
    if (!this.#names.has(id)) this.#names.set(id, name);
  }

  /** Returns a text without ids that have names. */
  text(s: string): string {
    let result = s;
    for (const [id, name] of this.#names) result = result.replaceAll(id, name);
    return result;
  }

  json(value: Json): Json {
    if (typeof value === 'string') return this.#text(value);
    if (Array.isArray(value)) return value.map((v) => this.json(v));
    if (typeof value !== 'object' || value === null) return value;
    const result: { [key: string]: Json } = {};
    for (const key of Object.keys(value).sort()) {
      const v = value[key] ?? null;
      if (['detail', 'title', 'request_id', 'type_', 'event_id'].includes(key)) continue;
      if (key === 'message_id' && typeof v === 'string') result[key] = 'M';
      else if (key === 'incarnation') result[key] = 'I';
      else if (key === 'next_cursor') result[key] = this.#token(v);
      else result[key] = this.json(v);
    }
    return result;
  }

  #token(v: Json): Json {
    return typeof v === 'string' && !/^\d+$/.test(v) ? 'token' : v;
  }

  #text(s: string): string {
    const named = this.#names.get(s);
    if (named !== undefined) return named;
    return /^\d{4}-\d\d-\d\dT[\d:.]+Z$/.test(s) ? 'T' : s;
  }
}

/** Returns a field that is a text, else ''. */
function textOf(value: Json, field: string): string {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return '';
  const found = value[field];
  return typeof found === 'string' ? found : '';
}

/** Returns a field that is a number, else 0. */
function numberOf(value: Json, field: string): number {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 0;
  const found = value[field];
  return typeof found === 'number' ? found : 0;
}

/** A run of a script. Its observations have one line for each thing that was seen. */
export class Script {
  readonly #lines: string[] = [];
  readonly #tag: string;
  readonly #dice: Dice;
  readonly #world: World;
  readonly #normal = new Normalizer();
  readonly #users: string[];
  readonly #devices: Device[];
  readonly #chats = new Map<string, string>();
  /** The reactions and pins that were stored. */
  readonly #annotations: { readonly chat: string; readonly sequence: number }[] = [];
  readonly #steps: number;
  #last = 0;
  #sends = 0;
  #sessions = 0;

  /** `tag` is part of all ids, so that one server can take many scripts. */
  constructor(world: World, seed: number, steps: number, tag: string) {
    this.#world = world;
    this.#steps = steps;
    this.#dice = new Dice(seed, 77);
    this.#tag = tag;
    this.#users = ['ann', 'bob', 'cid'].map((u) => `${u}-${tag}`);
    this.#last = world.now();
    const touch = (): void => {
      this.#last = world.now();
    };
    const [ann = '', bob = '', cid = ''] = this.#users;
    this.#devices = [[ann, 'phone'], [ann, 'web'], [bob, 'phone'], [bob, undefined], [cid, 'web']]
      .map(([user, name]) => new Device(world, user ?? '', name, touch));
    for (const n of ['g1', 'g2']) this.#chats.set(n, `${n}-${tag}`);
    this.#chats.set('none', 'none');
  }

  /** Returns what was seen, without the tag and the ids that the server made. */
  get lines(): string[] {
    return this.#lines.map((line) => this.#normal.text(line).replaceAll(`-${this.#tag}`, ''));
  }

  async run(): Promise<void> {
    const [ann = '', bob = '', cid = ''] = this.#users;
    await this.#call(ann, 'POST', '/chats', {
      type: 'group', chat_id: this.#chat('g1'), member_ids: [bob, cid],
    });
    await this.#settle();
    await this.#call(bob, 'POST', '/chats', {
      type: 'group', chat_id: this.#chat('g2'), member_ids: [ann], name: 'Zwei',
      history: this.#dice.oneIn(2) ? 'full' : 'since_join',
    });
    await this.#settle();
    for (let i = 0; i < this.#steps; i++) {
      this.#lines.push(`-- step ${String(i)}`);
      await this.#step();
      await this.#settle();
      for (const device of this.#devices) await device.refresh();
      this.#observe();
    }
    await this.#finish();
    for (const device of this.#devices) device.cut();
  }

  #chat(name: string): string {
    return this.#chats.get(name) ?? name;
  }

  #settle(): Promise<void> {
    return this.#world.quiet(() => this.#last);
  }

  async #call(user: string, method: string, path: string, body?: object): Promise<Json> {
    const init: RequestInit = {
      method, headers: {
        authorization: `Bearer dev:${user}`,
        ...(body === undefined || this.#dice.oneIn(30) ? {}
          : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    };
    const response = await this.#world.fetch(this.#world.base + path, init);
    const text = await response.text();
    const answer = text === '' ? null : JSON.parse(text) as Json;
    const shown = method === 'GET' && path.startsWith('/sessions') ? this.#sorted(answer) : answer;
    this.#lines.push(`${user} ${method} ${this.#path(path)} ${JSON.stringify(body ?? null)} → ` +
      `${String(response.status)} ${JSON.stringify(this.#normal.json(this.#sorted(shown)))}`);
    return answer;
  }

  #path(path: string): string {
    return path.replaceAll(/cursor=[^&]+/g, 'cursor=…').replaceAll(/sessions\/.+/g, 'sessions/…');
  }

  /** Sorts lists whose order depends on ids that the server makes. */
  #sorted(answer: Json): Json {
    if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) return answer;
    const copy = { ...answer };
    for (const name of ['states', 'pending', 'sessions', 'status_updates']) {
      const list = copy[name];
      if (!Array.isArray(list)) continue;
      copy[name] = [...list].sort((a, b) => {
        const [x, y] = [a, b].map((v) => JSON.stringify(this.#normal.json(v)));
        return (x ?? '') < (y ?? '') ? -1 : 1;
      });
    }
    return copy;
  }

  // ---- Steps ------------------------------------------------------------------------------------

  async #step(): Promise<void> {
    const roll = this.#dice.roll(100);
    if (roll < 24) await this.#send();
    else if (roll < 44) await this.#stream();
    else if (roll < 56) await this.#acknowledge();
    else if (roll < 64) await this.#members();
    else if (roll < 70) await this.#sync();
    else if (roll < 76) await this.#manage();
    else if (roll < 82) await this.#annotate();
    else await this.#read();
  }

  #anyChat(): string {
    return this.#dice.oneIn(12) ? 'none' : this.#dice.pick([...this.#chats.keys()]);
  }

  async #send(): Promise<void> {
    const d = this.#dice;
    const user = d.pick(this.#users);
    const chat = this.#chat(this.#anyChat());
    const n = d.oneIn(4) ? d.roll(this.#sends + 1) : ++this.#sends;
    const message: Record<string, unknown> = {
      client_message_id: `m${String(n)}`, content: `text ${String(n)}`,
    };
    if (d.oneIn(5)) message['seen_sequence'] = d.roll(6);
    if (d.oneIn(8)) message['metadata'] = { n };
    if (d.oneIn(8)) message['mentions'] = { user_ids: [d.pick(this.#users)] };
    if (d.oneIn(16)) message['mentions'] = { all: true };
    if (d.oneIn(16)) message['attachments'] = [{ name: 'a.png', size: n }];
    if (d.oneIn(20)) message['content'] = '';
    if (d.oneIn(20)) message['content'] = 'x'.repeat(65_537);
    if (d.oneIn(20)) message['content_type'] = 'text/markdown';
    if (d.oneIn(24)) message['kind'] = d.oneIn(2) ? 'system' : 'message';
    if (d.oneIn(24)) message['client_message_id'] = 'a b';
    if (d.oneIn(24)) message['send_by'] = '2020-01-01T00:00:00Z';
    if (d.oneIn(24)) message['seen_sequence'] = -1;
    const framing = this.#devices.filter((v) => v.framing && v.user === user);
    const times = 1 + (d.oneIn(4) ? d.roll(5) : 0);
    const device = framing[0];
    if (device !== undefined && d.oneIn(3) && message['content'] !== 'x'.repeat(65_537)) {
      device.send({
        type: 'send_message', request_id: `r${String(n)}`, payload: { chat_id: chat, ...message },
      });
      this.#lines.push(`${user} sends ${JSON.stringify(message)} as a frame to ${chat}`);
    } else {
      for (let i = 0; i < times; i++) {
        if (i > 0) message['client_message_id'] = `m${String(++this.#sends)}`;
        await this.#call(user, 'POST', `/chats/${chat}/messages`, message);
      }
    }
    await this.#authorRetry(user, chat);
  }

  /** Reacts to a message, pins it, or undoes what one of these requests did. */
  async #annotate(): Promise<void> {
    const d = this.#dice;
    const user = d.pick(this.#users);
    const chat = this.#chat(d.pick(['g1', 'g2']));
    for (let left = 1 + d.roll(4); left > 0; left--) {
      const kind = d.pick(['react', 'react', 'pin', 'redact']);
      const mine = this.#annotations.filter((one) => one.chat === chat);
      const sequence = kind === 'redact' && mine.length > 0 ? d.pick(mine).sequence : 1 + d.roll(6);
      const emoji = d.pick(['👍', '🎉', '👍 ']);
      const n = String(++this.#sends);
      const answer = await this.#call(user, 'POST', `/chats/${chat}/messages`, {
        client_message_id: `m${n}`, kind,
        relation: kind === 'react' ? { sequence, emoji } : { sequence },
      });
      const stored = numberOf(answer, 'sequence');
      if (stored > 0 && kind !== 'redact') this.#annotations.push({ chat, sequence: stored });
    }
    await this.#authorRetry(user, chat);
    const reader = d.pick(this.#users);
    await this.#call(reader, 'GET', `/chats/${chat}/messages?reactions=true&limit=20`);
    await this.#call(reader, 'GET', `/chats/${chat}/pins`);
    await this.#call(reader, 'GET', `/chats/${chat}/messages/${String(1 + d.roll(4))}/reactions`);
  }

  /** If the author has not received all before their message, the server tries again in 1 s. */
  async #authorRetry(user: string, chat: string): Promise<void> {
    await this.#settle();
    const answer = await this.#world.fetch(`${this.#world.base}/chats/${chat}`, {
      headers: { authorization: `Bearer dev:${user}` },
    });
    const body = await answer.json() as Record<string, unknown>;
    if (body['head_sequence'] !== body['last_acked_sequence']) await this.#world.pause(1100);
  }

  async #stream(): Promise<void> {
    const d = this.#dice;
    const device = d.pick(this.#devices);
    const roll = d.roll(10);
    const name = `${device.user}/${device.name ?? '-'}`;
    if (device.connected && roll < 3) {
      this.#lines.push(`${name} is cut`);
      device.cut();
      return;
    }
    if (device.framing && roll < 5) {
      this.#lines.push(`${name} says goodbye`);
      device.goodbye();
      return;
    }
    const transport = d.pick(['ws', 'sse', 'poll'] as const);
    const back = d.roll(8);
    const choice = d.roll(10);
    let after: number | undefined;
    if (choice < 7 && device.session !== undefined) {
      after = choice < 4 ? device.lastId : device.ids.at(-1 - back) ?? device.lastId;
      if (choice === 6) after += 1000;
    }
    const at = after === undefined ? 'anew' : `from ${String(choice)}/${String(back)}`;
    this.#lines.push(`${name} opens ${transport} ${at}`);
    await device.open(transport, after);
  }

  async #acknowledge(): Promise<void> {
    const d = this.#dice;
    const user = d.pick(this.#users);
    const chat = this.#chat(this.#anyChat());
    const marks: Record<string, unknown> = {};
    if (!d.oneIn(4)) marks['last_acked_sequence'] = d.roll(8);
    if (d.oneIn(2)) marks['last_read_sequence'] = d.roll(8);
    if (d.oneIn(24)) marks['last_acked_sequence'] = '1';
    const device = this.#devices.find((v) => v.framing && v.user === user);
    const roll = d.roll(10);
    if (device !== undefined && roll < 4) {
      device.send({ type: roll < 3 ? 'ack' : 'read', payload: { chat_id: chat, ...marks } });
      this.#lines.push(`${user} acknowledges ${chat} ${JSON.stringify(marks)} by a frame`);
    } else if (roll < 6) {
      await this.#call(user, 'PATCH', `/chats/${chat}/delivery-state`, marks);
    } else if (roll < 9) {
      const other = this.#chat(this.#anyChat());
      await this.#call(user, 'POST', '/acks', {
        chats: [{ chat_id: chat, ...marks }, { chat_id: other, last_acked_sequence: d.roll(4) },
          { chat_id: chat, last_read_sequence: 1 }],
        ...(d.oneIn(8) ? { incarnation: 'another' } : {}),
      });
    } else {
      await this.#call(user, 'PUT', `/chats/${chat}/delivery-state/unread`, {
        from_sequence: d.oneIn(3) ? null : d.roll(6),
      });
    }
  }

  async #members(): Promise<void> {
    const d = this.#dice;
    const [user, other] = [d.pick(this.#users), d.pick(this.#users)];
    const chat = this.#chat(this.#anyChat());
    const role = d.pick(['owner', 'admin', 'member', 'reader', 'king']);
    const roll = d.roll(10);
    if (roll < 4) {
      await this.#call(user, 'POST', `/chats/${chat}/members`, {
        user_ids: [other], ...(d.oneIn(3) ? { role } : {}),
      });
    } else if (roll < 8) {
      await this.#call(user, 'DELETE', `/chats/${chat}/members/${other}`);
    } else {
      await this.#call(user, 'PATCH', `/chats/${chat}/members/${other}`, d.oneIn(2) ? { role }
        : { metadata: { role }, ...(d.oneIn(2) ? { role } : {}) });
    }
  }

  async #sync(): Promise<void> {
    const d = this.#dice;
    const device = d.pick(this.#devices);
    const cursors = [...this.#chats.values()].filter(() => !d.oneIn(3)).map((chat_id) => ({
      chat_id, last_acked_sequence: d.roll(6),
      ...(d.oneIn(8) ? { incarnation: 'another' } : {}),
    }));
    const request = {
      chats: cursors, status_updates: d.oneIn(2), limit: 1 + d.roll(6),
      ...(device.session !== undefined && !d.oneIn(3) ? { session_id: device.session } : {}),
    };
    if (device.framing && d.oneIn(3)) {
      device.send({ type: 'sync_request', request_id: 's', payload: request });
      this.#lines.push(`${device.user} syncs by a frame`);
      return;
    }
    const { session_id: session, ...shown } = request;
    const line = this.#lines.length;
    await this.#call(device.user, 'POST', '/sync', request);
    if (session !== undefined) {
      this.#lines[line] = (this.#lines[line] ?? '').replace(session, 'S');
    }
    this.#lines.push(JSON.stringify(shown));
  }

  async #manage(): Promise<void> {
    const d = this.#dice;
    const [user, other] = [d.pick(this.#users), d.pick(this.#users)];
    const roll = d.roll(10);
    if (roll < 3) {
      const answer = await this.#call(user, 'POST', '/chats', {
        type: 'direct', member_ids: [other],
      });
      this.#nameChat(answer, `dm ${[user, other].sort().join(' ')}`);
    } else if (roll < 6) {
      const key = `k${String(d.roll(2))}`;
      const answer = await this.#call(user, 'POST', '/chats', {
        type: 'group', client_chat_id: key, member_ids: d.oneIn(4) ? [] : [other],
      });
      this.#nameChat(answer, `${key} ${user}`);
    } else if (roll < 8) {
      await this.#call(user, 'PATCH', `/chats/${this.#chat(this.#anyChat())}`, d.pick([
        { name: `n${String(d.roll(3))}` }, { metadata: { a: d.roll(3) } }, { metadata: {} }, {},
        { read_receipts: 'off' }, { read_receipts: 'on' },
      ]));
    } else if (roll < 9) {
      await this.#call(user, 'POST', `/chats/${this.#chat(this.#anyChat())}/typing`);
    } else {
      const device = this.#devices.find((v) => v.user === user && v.session !== undefined);
      if (device?.session === undefined) await this.#call(user, 'DELETE', '/sessions');
      else await this.#call(user, 'DELETE', `/sessions/${device.session}`);
    }
  }

  #nameChat(answer: Json, name: string): void {
    if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) return;
    const id = answer['chat_id'];
    if (typeof id !== 'string') return;
    this.#normal.name(id, name);
    this.#chats.set(name, id);
  }

  async #read(): Promise<void> {
    const d = this.#dice;
    const user = d.pick(this.#users);
    const chat = `/chats/${this.#chat(this.#anyChat())}`;
    const page = d.oneIn(2) ? '' : `limit=${String(d.roll(3))}`;
    const paths = ['/chats', chat, `${chat}/members`, `${chat}/messages`, '/delivery-states',
      `${chat}/delivery-state`, '/unread', '/sessions', '/pending', `${chat}/delivery-status`];
    const roll = d.roll(paths.length + 3);
    const path = paths[roll];
    if (path !== undefined) {
      const answer = await this.#call(user, 'GET', path + (page === '' ? '' : `?${page}`));
      await this.#nextPage(user, path, page, answer);
    } else if (roll === paths.length) {
      const at = d.oneIn(2) ? 'after' : 'before';
      await this.#call(user, 'GET',
        `${chat}/messages?${at}_sequence=${String(d.roll(7))}&limit=${String(1 + d.roll(4))}`);
    } else if (roll === paths.length + 1) {
      await this.#call(user, 'GET', `${chat}/delivery-status?for_sequence=${String(d.roll(6))}`);
    } else {
      const query = new URLSearchParams([...this.#chats.values()].map((id) => ['chat_id', id]));
      const line = this.#lines.length;
      await this.#call(user, 'GET', `/statuses?${query.toString()}`);
      this.#lines[line] = (this.#lines[line] ?? '').replace(/GET \S+/, 'GET /statuses');
    }
  }

  async #nextPage(user: string, path: string, page: string, answer: Json): Promise<void> {
    if (typeof answer !== 'object' || answer === null || Array.isArray(answer)) return;
    const next = answer['pagination'];
    if (typeof next !== 'object' || next === null || Array.isArray(next)) return;
    const token = next['next_cursor'];
    // The order of these lists is that of ids that the server makes.
    const ordered = !path.startsWith('/delivery-states') && !path.startsWith('/pending');
    if (typeof token !== 'string' || !ordered || path.endsWith('/messages')) return;
    await this.#call(user, 'GET', `${path}?${page}&cursor=${encodeURIComponent(token)}`);
  }

  // ---- Observations -----------------------------------------------------------------------------

  #observe(): void {
    this.#devices.forEach((device, i) => {
      const { events, ended } = device.take();
      const name = `${device.user}/${device.name ?? '-'}`;
      const chats = new Map<string, string[]>();
      const seen: string[] = [];
      for (const { type, payload } of events) {
        const p = this.#normal.json(payload) as { [key: string]: Json };
        if (type === 'session') {
          this.#normal.name(textOf(payload, 'session_id'),
            `S${String(i)}.${String(++this.#sessions)}`);
          seen.push(`session ${JSON.stringify({ ...p, session_id: 'S' })}`);
        } else if (type === 'message' || type === 'gap') {
          const id = textOf(p, 'chat_id');
          const list = chats.get(id) ?? [];
          chats.set(id, list);
          list.push(JSON.stringify(p));
        } else if (type === 'status_update') {
          // When users are told of themselves is not determined.
          const about = textOf(p, 'user_id');
          if (about === device.user) continue;
          this.#raise(device.statuses, `${textOf(p, 'chat_id')} ${about}`, p);
        } else if (type === 'own_state') {
          device.own.set(textOf(p, 'chat_id'), JSON.stringify(p));
        } else if (type !== 'caught_up' || !seen.includes('caught_up {}')) {
          seen.push(`${type} ${JSON.stringify(this.#sorted(p))}`);
        }
      }
      for (const line of seen.sort()) this.#lines.push(`${name} hears ${line}`);
      for (const [chat, list] of [...chats].sort()) {
        this.#lines.push(`${name} hears of ${chat}: ${list.join(' ')}`);
      }
      if (ended !== undefined) this.#lines.push(`${name}: ${ended}`);
    });
  }

  #raise(all: Map<string, string>, key: string, p: { [key: string]: Json }): void {
    const before = JSON.parse(all.get(key) ?? '{}') as Record<string, number>;
    const marks = ['last_acked_sequence', 'last_read_sequence', 'all_acked_sequence',
      'all_read_sequence'];
    const now = Object.fromEntries(marks.map((m) => (
      [m, Math.max(before[m] ?? 0, Number(p[m] ?? 0))])));
    all.set(key, JSON.stringify(now));
  }

  async #finish(): Promise<void> {
    await this.#settle();
    await this.#settle();
    for (const user of this.#users) {
      await this.#call(user, 'GET', '/chats');
      await this.#call(user, 'GET', '/delivery-states');
    }
    for (const device of this.#devices) {
      await device.refresh();
      const name = `${device.user}/${device.name ?? '-'}`;
      for (const [key, marks] of [...device.statuses].sort()) {
        this.#lines.push(`${name} status ${key} ${marks}`);
      }
      for (const [, own] of [...device.own].sort()) this.#lines.push(`${name} own ${own}`);
    }
  }
}
