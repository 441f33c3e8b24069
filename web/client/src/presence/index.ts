// Who is online in the chats that the user looks at, as docs/presence.md says.
//
// The server tells a session about the chats that its client names. The tab that leads has the
// session, so it names the chats of all tabs, and tells the others what it learns.

import { hexOf } from '../core/hex.js';
import { isObject } from '../core/ended.js';
import { TidemarkError } from '../errors.js';
import { insides, type Inside } from '../shell/inside.js';
import { cell, type Cell } from '../shell/views.js';
import type { Client, View } from '../types.js';
import type { StreamEvent } from '../wire/events.js';
import type { MemberPresence } from '../wire.gen.js';

/** A look is repeated after so long. The server forgets it after a minute. */
const AGAIN_MS = 30_000;
const LASTS_MS = 60_000;
/** How long changes are collected before a look, and the least time between two looks. */
const SOON_MS = 50;
const EVERY_MS = 1_000;
/** A look that was not answered is tried again after so long. */
const FAILED_MS = 5_000;
/** For how long a lost connection leaves what is known. */
const STALE_MS = 10_000;
const MOST = 20;

/** Who is online in a chat. */
export interface ChatPresence {
  /** How many members are online, in a chat of more than 50 members. Else null. */
  readonly online_count: number | null;
  /** All members, the user too, or null in a chat of more than 50 members. */
  readonly members: readonly MemberPresence[] | null;
}

export interface Presence {
  /**
   * Returns who is online in a chat. While the view has a subscriber, the client looks at the chat.
   * The value is undefined before the server has told it, without a subscriber, after 10 s without
   * a connection, and if the server has no presence. Of all tabs together, the client looks at 20
   * chats at most.
   */
  chat(chatId: string): View<ChatPresence | undefined>;
  /** Resolves with whether others see when the user is online. Rejects with a `TidemarkError`. */
  visible(): Promise<boolean>;
  /**
   * Hides the user, or shows them again. To a user who hides, everybody is offline. Rejects with a
   * `TidemarkError`.
   */
  setVisible(visible: boolean): Promise<void>;
}

/** What a tab that does not lead wants to know. */
interface Looks {
  readonly kind: 'looks';
  readonly tab: string;
  /** The chats whose presence it shows, and others that it shows. */
  readonly wanted: readonly string[];
  readonly shown: readonly string[];
}

/** What the leader tells. Without `chat` it asks the others for their looks. */
interface Told {
  readonly kind: 'presence';
  readonly chat?: string;
  readonly value?: ChatPresence | undefined;
}

/** A chat that has a view. */
interface Looked {
  readonly value: Cell<ChatPresence | undefined>;
  readonly view: View<ChatPresence | undefined>;
  readers: number;
}

const made = new WeakMap<Client, Presence>();

/** Returns the presence of a client of this package, the same each time. */
export function presenceOf(client: Client): Presence {
  const found = made.get(client);
  if (found) return found;
  const inside = insides.get(client);
  if (!inside) throw new TidemarkError('INVALID', 'That is no client of this package.');
  const presence = newPresence(client, inside);
  made.set(client, presence);
  return presence;
}

function newPresence(client: Client, inside: Inside): Presence {
  const { platform, rest, guard, tab } = inside;
  const self = hexOf(platform.random(8));
  const views = new Map<string, Looked>();
  const known = new Map<string, ChatPresence>();
  /** The chats that the stream has told of. What it tells of a chat first is about all members. */
  const begun = new Set<string>();
  /** What other tabs want, and until when. */
  const others = new Map<string, Looks & { readonly until: number }>();
  /** The chats of the last look. Undefined: the server tells this session of the typing in all. */
  let said: string | undefined;
  let saidAt = -Infinity;
  let ranAt = -Infinity;
  /** The answer of a poll may be lost. */
  let gap = false;
  let session = '';
  let led = false;
  let online = false;
  let calling = false;
  let cancelLook: (() => void) | undefined;
  let lookAt = Infinity;
  let cancelStale: (() => void) | undefined;

  // ---- What is known ----

  function set(id: string, value: ChatPresence | undefined): void {
    if (value) known.set(id, value);
    else known.delete(id);
    const view = views.get(id);
    if (view?.readers) view.value.set(value);
    if (led && others.size > 0) tell(id);
  }

  function tell(chat: string): void {
    post({ kind: 'presence', chat, value: known.get(chat) });
  }

  function forget(keep: readonly string[] = []): void {
    for (const id of known.keys()) if (!keep.includes(id)) set(id, undefined);
  }

  function post(notice: Looks | Told): void {
    tab.post(notice);
  }

  // ---- Looks ----

  const mine = (): Looks => ({
    kind: 'looks', tab: self,
    wanted: [...views].filter(([, { readers }]) => readers > 0).map(([id]) => id),
    shown: inside.open(),
  });

  /** Looks soon, unless an earlier look is planned. */
  function soon(ms = Math.max(SOON_MS, ranAt + EVERY_MS - platform.monotonic())): void {
    const at = platform.monotonic() + ms;
    if (at >= lookAt) return;
    cancelLook?.();
    lookAt = at;
    cancelLook = platform.timer(ms, () => {
      lookAt = Infinity;
      look();
    });
  }

  function stop(): void {
    cancelLook?.();
    lookAt = Infinity;
  }

  /** Says which chats are shown, if that is new, or was said long ago. */
  function look(): void {
    const own = mine();
    const now = platform.monotonic();
    ranAt = now;
    if (!online) return;
    if (!led) {
      const text = own.wanted.join(' ');
      // A tab that wants nothing says it once.
      if (text || said) post(own);
      said = text;
      if (text) soon(AGAIN_MS);
      return;
    }
    for (const [id, { until }] of others) if (until <= now) others.delete(id);
    const tabs = [own, ...others.values()];
    const wanted = tabs.flatMap((one) => one.wanted);
    if (!session || said === undefined && wanted.length === 0) return;
    const all = [...new Set([...wanted, ...tabs.flatMap((one) => one.shown)])];
    const rowOf = (id: string) => client.chat(id).row.get();
    // The server leaves out chats that the user may not see. They would still count below MOST.
    const chats = all.filter((id) => rowOf(id)?.left === false).slice(0, MOST);
    // A tab that has just begun to lead may not have all chats yet.
    forget(all.filter((id) => chats.includes(id) || !rowOf(id)));
    for (const id of begun) if (!chats.includes(id)) begun.delete(id);
    const text = [...chats].sort().join(' ');
    if (!calling && (text !== said || now - saidAt >= AGAIN_MS)) {
      said = text;
      saidAt = now;
      say(chats);
    }
    if (text) soon(AGAIN_MS);
  }

  function say(chats: readonly string[]): void {
    const frame = { type: 'look', payload: { chat_ids: chats } };
    if (tab.leader?.send(frame)) return;
    calling = true;
    const path = `/sessions/${encodeURIComponent(session)}/look`;
    const call = async (chat_ids: readonly string[]) => rest.call('PUT', path, { chat_ids });
    // A poll that resumes goes on with the looks before it. What its lost answer had is told again
    // if the chats are new.
    const before = gap ? call([]) : Promise.resolve();
    gap = false;
    void before.then(() => call(chats)).then((answer) => {
      calling = false;
      if (answer.is !== 'retry') {
        soon();
        return;
      }
      saidAt = -Infinity;
      soon(answer.after ?? FAILED_MS);
    });
  }

  /** The server may have forgotten the looks. */
  function restart(): void {
    saidAt = -Infinity;
    soon(SOON_MS);
  }

  // ---- What happens ----

  inside.event = (event: StreamEvent): void => {
    if (event.type === 'session') {
      session = event.payload.session_id;
      // The tab that led before may have looked.
      said = event.payload.resumed ? said ?? '' : undefined;
      begun.clear();
      restart();
    } else if (event.type === 'membership' && event.payload.change === 'removed') {
      const { chat_id: id, user_id: user } = event.payload;
      const old = known.get(id);
      if (!old?.members) return;
      set(id, { ...old, members: old.members.filter((one) => one.user_id !== user) });
    } else if (event.type === 'presence') {
      const value = read(event.payload);
      const { chat_id: id } = event.payload;
      if (!value) return;
      const { members } = value;
      const old = begun.has(id) ? known.get(id)?.members ?? [] : [];
      begun.add(id);
      const merged = new Map([...old, ...members ?? []].map((one) => [one.user_id, one]));
      set(id, { ...value, members: members && [...merged.values()] });
    }
  };

  inside.notice = (notice): void => {
    const { kind } = notice as Looks | Told;
    if (kind === 'looks' && led) {
      const looks = notice as Looks;
      if (looks.wanted.length === 0) others.delete(looks.tab);
      else others.set(looks.tab, { ...looks, until: platform.monotonic() + LASTS_MS });
      for (const id of looks.wanted) if (known.has(id)) tell(id);
      soon();
    } else if (kind === 'presence' && !led) {
      const { chat, value } = notice as Told;
      if (chat !== undefined) set(chat, value);
      else soon(SOON_MS);
    }
  };

  function connected(): void {
    const { phase, leader, transport } = client.state.get();
    const before = online;
    online = phase === 'live' || phase === 'catching-up';
    if (leader !== led) {
      led = leader;
      said = undefined;
      session = tab.leader?.session()?.session_id ?? '';
      others.clear();
      if (led) post({ kind: 'presence' });
      soon(SOON_MS);
    }
    if (online) {
      cancelStale?.();
      cancelStale = undefined;
      if (!before) {
        // A poll that resumes goes on without a first event.
        gap = led && transport === 'longpoll';
        if (gap) restart();
        soon(SOON_MS);
      }
    } else if (phase !== 'connecting') {
      stop();
      forget();
    } else cancelStale ??= platform.timer(STALE_MS, () => { forget(); });
  }

  client.state.subscribe(connected);
  // The user may have left a chat, or come to one.
  client.chats.subscribe(() => { if (said !== undefined || views.size > 0) soon(); });
  connected();

  async function settings(method: string, body?: object): Promise<boolean> {
    const answer = await rest.call(method, body ? '/presence/settings' : '/presence', body);
    if (answer.is === 'refused') {
      throw new TidemarkError(answer.problem.code, answer.problem.detail);
    }
    const value: unknown = answer.is === 'ok' && isObject(answer.body) && answer.body['visible'];
    if (typeof value !== 'boolean' || answer.is !== 'ok') {
      throw new TidemarkError('UNREACHABLE', 'The server did not answer.');
    }
    return value;
  }

  function viewOf(id: string): Looked {
    const value = cell<ChatPresence | undefined>(guard, undefined);
    const one: Looked = {
      value, readers: 0,
      view: {
        get: () => value.get(),
        subscribe(changed) {
          if (one.readers++ === 0) {
            // Another tab may look at it already.
            value.set(known.get(id));
            soon();
          }
          const end = value.subscribe(changed);
          let ended = false;
          return () => {
            end();
            if (ended) return;
            ended = true;
            if (--one.readers > 0) return;
            value.set(undefined);
            soon();
          };
        },
      },
    };
    views.set(id, one);
    return one;
  }

  return {
    chat: (id) => (views.get(id) ?? viewOf(id)).view,
    visible: () => settings('GET'),
    async setVisible(visible) { await settings('PUT', { visible }); },
  };
}

/** Returns what an event says, or undefined if it is broken. */
function read(payload: object): ChatPresence | undefined {
  const { online_count: count = null, members = null } = payload as Record<string, unknown>;
  if (members === null) {
    return typeof count === 'number' ? { online_count: count, members } : undefined;
  }
  const each = (one: unknown) => isObject(one) && typeof one['user_id'] === 'string'
    && typeof one['online'] === 'boolean'
    && ['string', 'object'].includes(typeof one['last_seen_at']);
  return Array.isArray(members) && members.every(each)
    ? { online_count: null, members: members as MemberPresence[] } : undefined;
}
