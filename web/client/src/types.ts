// The public types of the client. What the server sends keeps the names of openapi.yaml:
// wire.gen.ts has those types.

import type {
  Attachment, Block, Chat, CreateChat, DeliveryStatus, Message, NewMentions, Pin,
  ReceiptsSettings, StatusUpdate,
} from './wire.gen.js';

/** A way to carry the stream. Clients try them in the order of `Options.transports`. */
export type Transport = 'websocket' | 'sse' | 'longpoll';

/**
 * What the sender knows of their own message. `sent` means stored on the server, `delivered` and
 * `read` that all other members have received or read it. A tick never falls while its store lives,
 * except when the server's data were restored.
 */
export type Tick = 'sending' | 'sent' | 'delivered' | 'read' | 'failed';

/** A value that changes. `get` returns the same object until the value has changed. */
export interface View<T> {
  get(): T;
  /** Calls `changed` after each change, never during `subscribe`. Returns a function to stop it. */
  subscribe(changed: () => void): () => void;
}

/** A message to send. It needs `content` or an attachment. */
export interface Draft {
  /**
   * One of `Client.newMessageId`. If it is not known whether a send was kept, because the page
   * ended, send again under the same id: the message is stored once. Without it the client makes
   * one.
   */
  client_message_id?: string;
  /**
   * A message for the application itself. No timeline shows it, and it counts nowhere. Every member
   * gets it with the event `message`. If the server refuses it, it leaves the outbox: see
   * `Events.refused`.
   */
  kind?: 'control';
  content?: string;
  content_type?: string;
  attachments?: readonly Attachment[];
  mentions?: NewMentions;
  metadata?: Readonly<Record<string, unknown>>;
}

/** Why something did not work. `code` is one of openapi.yaml's, or one of the client's own. */
export interface Problem {
  readonly code: string;
  readonly detail: string;
  /** When the client tries again, in milliseconds since 1970. */
  readonly retryAt?: number;
}

export interface Options {
  /** The server, such as `https://chat.example.com`, without `/api/v1`. */
  url: string;
  /** The user whom the tokens name. Requests name them too, so a foreign token gets 403. */
  user: string;
  /**
   * Returns a token for `user`. If it rejects, the client tries again later, as after a network
   * error. An error with the code `SIGNED_OUT` (see `signedOut`) stops the tries.
   */
  getToken(why: 'start' | 'renew' | 'refused', signal: AbortSignal): Promise<string>;
  /** Where messages are kept. The default is `memoryStore()`. */
  store?: Store;
  /** Coordinates tabs, so that one of them holds the connection. Without it, each has its own. */
  tabs?: Tabs;
  /** The default is WebSocket, SSE, long-poll. */
  transports?: readonly Transport[];
  /**
   * Handles the messages of others, in order within a chat. A rejection repeats the message after a
   * pause. A message is acknowledged when it is handled and stored.
   */
  handle?(message: Message, signal: AbortSignal): Promise<void>;
  /** When `shown` counts as read: the tab has the focus (the default), or it is visible. */
  readWhen?: 'focused' | 'visible';
  /** How long an acknowledgement may be delayed, in milliseconds. Default and maximum: 5,000. */
  ackAfterMs?: number;
  platform?: Partial<Platform>;
}

export interface Client {
  readonly user: string;
  readonly state: View<State>;
  /** The chats, latest activity first. */
  readonly chats: View<readonly Row[]>;
  readonly unread: View<Unread>;
  /** How many sends wait for the server. */
  readonly unsent: View<number>;
  /**
   * The id by which the server knows this browser as a device of the user. It is undefined before
   * `start` has resolved, and changes with the data.
   */
  readonly device: string | undefined;
  /**
   * Resolves when the store is loaded. It never waits for the network. It throws `INVALID` if
   * `Options.url` does not begin with `http://` or `https://`.
   */
  start(): Promise<void>;
  /** Sends due acknowledgements, for at most 5 s, and closes everything. `start` may follow. */
  stop(): Promise<void>;
  /** Tries to connect now, instead of after the present pause. */
  retryNow(): void;
  /** Asks the browser to keep the data when space is short. */
  persist(): Promise<boolean>;
  /**
   * Removes the user's data from this browser, in all tabs. Rejects with the code `UNSENT` if the
   * outbox is not empty, unless `unsent` is `discard`.
   */
  signOut(options?: { unsent?: 'refuse' | 'discard' }): Promise<void>;
  /**
   * Returns whether others see what the user reads, in a chat or, without one, in all. A chat whose
   * `chat_read_receipts` is not `optional` decides for its members. It is asked for at the server.
   * Rejects with a `TidemarkError`.
   */
  readReceipts(chatId?: string): Promise<ReceiptsSettings>;
  /**
   * Sets whether others see what the user reads from now on, in a chat or, without one, in all.
   * While it is `off`, the user does not see what others read. It has no effect in a chat that
   * decides for its members (`readReceipts`). Rejects with a `TidemarkError`.
   */
  setReadReceipts(
    setting: 'on' | 'off' | 'default', chatId?: string,
  ): Promise<ReceiptsSettings>;
  /**
   * Blocks another user. That closes the direct chat of the two: `row.chat.closed` is then true,
   * and sends fail with the code `DENIED`. Rejects with a `TidemarkError`.
   */
  block(userId: string): Promise<void>;
  /** Ends what `block` began, unless the other user has blocked this one, too. */
  unblock(userId: string): Promise<void>;
  /** Returns all whom the user has blocked, by id. Rejects with a `TidemarkError`. */
  blocks(): Promise<readonly Block[]>;
  createChat(request: CreateChat): Promise<ChatHandle>;
  chat(chatId: string): ChatHandle;
  /** Returns a new id for a send: see `Draft.client_message_id`. */
  newMessageId(): string;
  on<K extends keyof Events>(
    type: K, listener: (event: Events[K]) => void, options?: { signal?: AbortSignal },
  ): void;
}

export interface Events {
  /** A message of any member that the store has just taken, in order within a chat. */
  message: Message;
  problem: Problem;
  /** The server's data were replaced by older ones. What they lack is gone here, too. */
  restored: Restored;
  /**
   * The server refuses what no timeline shows as a message: a change of a message, a reaction, a
   * pin, or a control message.
   */
  refused: Refused;
  frame: Frame;
}

/** How many stored messages of a chat the server no longer has. */
export interface Restored {
  readonly chat_id: string;
  readonly lost: number;
}

/**
 * An edit, a redaction, a reaction, a pin or a control message that has left the outbox. Nobody
 * gets it, unless `problem.code` is `INTERNAL`: then it may be stored.
 */
export interface Refused {
  readonly chat_id: string;
  readonly client_message_id: string;
  readonly kind: Hidden;
  /** The message that would have changed, or would have got the reaction or the pin. */
  readonly relation?: Relating['relation'];
  /** What it would have said. */
  readonly content?: string;
  readonly problem: Problem;
}

/** What went over the wire, for a page that shows it. */
export interface Frame {
  readonly dir: 'in' | 'out';
  readonly transport: Transport | 'rest';
  readonly text: string;
}

/**
 * - `stopped`: before `start` and after `stop`.
 * - `loading`: the store is being read.
 * - `connecting`: there is no stream; `problem` says why, if the client knows.
 * - `catching-up`: the stream is open, and older messages are still coming.
 * - `live`: all messages are here, and new ones come as they are sent.
 * - `refused`: the server does not let this user in; the client rarely tries again.
 * - `outdated`: newer code has changed the store; reload the page.
 * - `signed-out`: the data are gone.
 */
export type Phase = 'stopped' | 'loading' | 'connecting' | 'catching-up' | 'live' | 'refused'
  | 'outdated' | 'signed-out';

export interface State {
  readonly phase: Phase;
  /** This tab holds the connection. */
  readonly leader: boolean;
  readonly transport?: Transport;
  /** Messages are kept on disk. */
  readonly durable: boolean;
  /** The server keeps files, which messages may name. Undefined: it has not said so yet. */
  readonly attachments?: boolean | undefined;
  readonly problem?: Problem;
}

/** A chat in the list. */
export interface Row {
  readonly chat: Chat;
  /** Up to here, this device has stored or skipped every message that the user may see. */
  readonly prefix: number;
  readonly unread: number;
  /** There may be more unread messages than `unread` says. */
  readonly atLeast: boolean;
  /** The user is no longer a member. */
  readonly left: boolean;
  /** The newest message that the client has, and shows. */
  readonly last?: Message;
}

export interface Unread {
  readonly total: number;
  readonly atLeast: boolean;
}

export interface ChatHandle {
  readonly id: string;
  readonly row: View<Row | undefined>;
  /** Who is typing now. */
  readonly typing: View<readonly string[]>;
  timeline(options?: { page?: number }): Timeline;
  /** Returns how far each member is. Rejects with a `TidemarkError`. */
  status(sequence?: number): Promise<DeliveryStatus>;
  /**
   * Resolves when the draft is in the outbox. Rejects with the code `TOO_LARGE` or `INVALID`, or
   * that of a store that failed.
   */
  send(draft: Draft): Promise<Sent>;
  /**
   * Replaces the whole content of a message of the user. What the draft leaves out is removed. It
   * is sent as by `send`, and `confirmed` resolves with the message of the kind `edit`. If the
   * server refuses the edit, it leaves the outbox: see `Events.refused`.
   */
  edit(sequence: number, draft: Draft): Promise<Sent>;
  /**
   * Removes what a message says, for everybody, as `edit` replaces it. Owners and admins of a group
   * may do that with messages of others.
   */
  redact(sequence: number): Promise<Sent>;
  /**
   * Adds a reaction of the user to a message. It is sent as by `send`, and `confirmed` resolves
   * with the message of the kind `react`. Rejects with the code `INVALID` if the emoji is empty,
   * has white space, has only invisible characters, or has more than 64 bytes.
   */
  react(sequence: number, emoji: string): Promise<Sent>;
  /** Undoes a reaction, which `EmojiCount.own` names. */
  unreact(own: number): Promise<Sent>;
  /**
   * Pins a message for all members. In a group, only owners and admins may do that. `confirmed`
   * resolves with the message of the kind `pin`.
   */
  pin(sequence: number): Promise<Sent>;
  /** Undoes a pin, which `Pin.pin_sequence` names. */
  unpin(pin: number): Promise<Sent>;
  /**
   * Returns what is pinned now, the newest pin first. It is asked for at the server. `message` is
   * null if the user may not see it. Only those who may pin get such a pin, because it counts, and
   * they may undo it. Rejects with a `TidemarkError`.
   */
  pins(): Promise<readonly Pin[]>;
  /** Reports that the message and all before it are on screen. `watchShown` calls it. */
  shown(sequence: number): void;
  /**
   * Counts the messages from a sequence on as unread, although the user has read them. Null ends
   * that, and so does reading further. Rejects with a `TidemarkError`.
   */
  markUnread(from: number | null): Promise<void>;
  /** Tells the other members that the user is typing, at most once in 3 s. */
  type(): void;
}

export interface Sent {
  readonly client_message_id: string;
  /** The outbox survives the tab. */
  readonly durable: boolean;
  /**
   * Resolves with the stored message. Rejects with a `TidemarkError` if the send failed, and with
   * the code `SIGNED_OUT` after a sign-out.
   */
  confirmed(signal?: AbortSignal): Promise<Message>;
}

export interface Timeline {
  /**
   * What to show, oldest first: messages, then the sends that wait. It stays as it is after `stop`,
   * and is empty after a sign-out.
   */
  readonly items: View<readonly Item[]>;
  /** Loads older messages. Resolves with false if there are none. */
  older(): Promise<boolean>;
  close(): void;
}

/**
 * - `message`: a stored message.
 * - `waiting`: a send that is not confirmed.
 * - `gap`: messages that the user may not see.
 * - `hole`: messages that are not loaded yet.
 */
export interface Item {
  /** It is the same before and after the confirmation. */
  readonly key: string;
  readonly kind: 'message' | 'waiting' | 'gap' | 'hole';
  readonly mine: boolean;
  readonly sequence?: number;
  /**
   * Of a message: the last sequence that is read with it. Messages of a kind that the client does
   * not know may follow it, and are not shown. `shown` and `data-sequence` take `sequence` or this.
   */
  readonly through?: number;
  readonly content?: string;
  /** `message.revision` says whether it was edited, or redacted. Then it says nothing. */
  readonly message?: Message;
  /** The user has changed the message, and the server has not said yet that it is done. */
  readonly revising?: 'edit' | 'redact';
  /** The reactions to a message. Undefined: there are none. */
  readonly reactions?: readonly EmojiCount[];
  /** Only of the user's own messages. */
  readonly tick?: Tick;
  /** Why a send failed. */
  readonly problem?: Problem;
  retry?(): void;
  discard?(): void;
}

/** How many members have reacted to a message with one emoji. */
export interface EmojiCount {
  readonly emoji: string;
  readonly count: number;
  /** The user is one of them. What they have just done counts, before the server has answered. */
  readonly mine: boolean;
  /** The sequence of the user's reaction, for `unreact`. Null until the server has stored it. */
  readonly own: number | null;
}

// ---- Storage ------------------------------------------------------------------------------------

/**
 * Keeps the data of one user. Each call is one atomic step. Each call but `open` first compares the
 * identity that `open` gave, and throws `StoreLost` if the data are gone or another user's.
 *
 * `commit` is for the leader. Its term must be the one that the last `lead` of any tab returned,
 * else it throws `Fenced` and changes nothing. The other calls are for every tab.
 *
 * Every call may throw `StoreUnavailable`: there is no database, it does not answer, or it failed
 * three times. The client then continues with `memoryStore()`, and tries `open` again later. The
 * step may have happened. All steps may be repeated: a second `add` of an id changes nothing.
 */
export interface Store {
  /** Whether a resolved step survives the end of the process. */
  readonly durable: boolean;
  /** Is set by the client. The store calls it when the data have vanished under it. */
  onlost?: (why: string) => void;
  /**
   * Opens the data of a user at a server, which is the origin and path of `Options.url`. It may be
   * called again, after `close` or an error; if the identity is another one then, start over.
   *
   * Throws `StoreOutdated` if newer code has written what this code can't read. Throws `SignedOut`
   * once if another tab has removed the data that this store had open before.
   */
  open(user: string, server: string): Promise<Opened>;
  /** Raises the term and returns it. All older terms are fenced from now on. */
  lead(): Promise<number>;
  commit(term: number, change: Change): Promise<Committed>;
  /** Adds a send to the end of the outbox. Returns its ordinal. Throws `StoreFull`. */
  add(send: NewSend): Promise<number>;
  /** Makes a failed send due again, under a new id if one is given; or removes it. */
  edit(clientMessageId: string, change: { to: 'due'; newId?: string } | { to: 'discarded' }):
    Promise<void>;
  /** Raises `read` of a chat, at most to its prefix. Returns the value after that. */
  markRead(chatId: string, through: number): Promise<number>;
  /** The at most `limit` last entries that begin below `before`, oldest first. */
  page(chatId: string, before: number, limit: number): Promise<readonly Entry[]>;
  /** The chats that changed after revision `since`, and the whole outbox. */
  changes(since: number): Promise<Changes>;
  /** Removes everything, and leaves a mark, so that other tabs get `StoreLost`. Throws `Unsent`. */
  wipe(options: { unsent: 'refuse' | 'discard' }): Promise<void>;
  close(): void;
}

/** A message, or without one a range that the user may not see. `from` and `to` are included. */
export interface Entry {
  readonly chat_id: string;
  readonly from: number;
  readonly to: number;
  readonly message?: Message;
}

/** What a send does to an earlier message, and to which one. */
export interface Relating {
  readonly kind: 'edit' | 'redact' | 'react' | 'pin';
  readonly relation: {
    readonly sequence: number;
    /** Of a reaction. */
    readonly emoji?: string;
  };
}

/** The kinds of sends that no timeline shows as a message. */
export type Hidden = Relating['kind'] | 'control';

/** A send in the outbox, unchanged until it leaves. */
export interface NewSend extends Omit<Draft, 'kind'> {
  /** Undefined: it is shown. */
  kind?: Hidden;
  /** Of all of them but a control message. */
  relation?: Relating['relation'];
  client_message_id: string;
  chat_id: string;
  /** The last sequence on screen. */
  seen: number;
  /** The head of the chat that was known. The message can only be stored above it. */
  after: number;
  /** When it was written, in milliseconds since 1970. */
  at: number;
}

export interface OutboxItem extends NewSend {
  /** Grows in the order of writing. */
  readonly ordinal: number;
  readonly state: 'due' | 'failed';
  readonly problem?: Problem;
}

/** What the leader keeps of a chat. */
export interface ChatFacts {
  /** The last answer of the server. */
  readonly chat: Chat;
  /** The life of the server's data that the entries are from. */
  readonly incarnation: string;
  /** Nothing at or below is kept for certain. */
  readonly base: number;
  /** The acknowledgement that the server has confirmed. */
  readonly acknowledged: number;
  /** The read mark that the server has confirmed. */
  readonly readConfirmed: number;
  /** The boundaries of others that the server has told, the latest of each. */
  readonly boundaries: readonly StatusUpdate[];
  /** The current members without the user; null: not known. */
  readonly members: readonly string[] | null;
  readonly membersVersion: number;
  /** The highest ticks that were shown. They fall only with a rebase. */
  readonly latch: { readonly delivered: number; readonly read: number };
  readonly left: boolean;
}

/** A chat as the store has it. */
export interface StoredChat extends ChatFacts {
  /**
   * The store computes it: the greatest p for which entries cover all of base + 1 … p. It is never
   * below base.
   */
  readonly prefix: number;
  /** The store computes it: messages of the kind `message` by others above `read`, up to prefix. */
  readonly unread: number;
  /** What the user has read: the greatest of all tabs and devices, at most the prefix. */
  readonly read: number;
  /** The newest stored message that is shown. */
  readonly last?: Message;
  /** The revision of the last change. */
  readonly rev: number;
}

export interface Position {
  readonly session_id: string;
  readonly event_id: number;
}

export interface Opened {
  /** Identifies these data. It changes when they were removed and begun anew. */
  readonly id: string;
  /** The device id of these data. */
  readonly device: string;
  readonly rev: number;
  readonly position?: Position;
  readonly chats: readonly StoredChat[];
  readonly outbox: readonly OutboxItem[];
}

/** One step of the leader. The parts are applied in the order of these fields. */
export interface Change {
  /**
   * Drops the entries above `through`, messages that were changed above it, and sends that change
   * a message above it; sets the incarnation; lowers prefix, base, read, the marks that the server
   * confirmed, boundaries, latch, and `seen` and `after` of the sends to at most `through`. Does
   * nothing for a chat that is not known.
   */
  readonly rebase?: readonly {
    readonly chat_id: string; readonly through: number; readonly incarnation: string;
  }[];
  /** A new chat needs all facts. Its entries may be in the same step. */
  readonly chats?: readonly ({ readonly chat_id: string } & Partial<ChatFacts>)[];
  /**
   * What is stored stays as it is: an entry fills only the sequences that no other covers. But the
   * state of a message with the greatest revision is the one that stays. It may also come as the
   * target of a relation, which itself is stored without it. The chat must be known, or in `chats`.
   * Throws `StoreFull`.
   */
  readonly entries?: readonly Entry[];
  /** Raises `read`, at most to the prefix: what another device has read. */
  readonly read?: readonly { readonly chat_id: string; readonly through: number }[];
  /** The ids of sends that are stored, which leave the outbox. */
  readonly sent?: readonly string[];
  readonly failed?: readonly { readonly client_message_id: string; readonly problem: Problem }[];
  /** Null forgets it. */
  readonly position?: Position | null;
}

export interface Committed {
  readonly rev: number;
  /** The chats that the change touched, as they are now. */
  readonly chats: readonly StoredChat[];
}

export interface Changes {
  readonly rev: number;
  readonly position?: Position;
  readonly chats: readonly StoredChat[];
  readonly outbox: readonly OutboxItem[];
}

// ---- Tabs and platform --------------------------------------------------------------------------

export interface Tabs {
  /** Resolves when this tab leads. The result gives the lead up. `steal` takes it from a tab. */
  lead(name: string, options: { signal: AbortSignal; steal?: boolean }): Promise<() => void>;
  /** Passes small notices between the tabs of one user. A notice may be lost. */
  channel(name: string, notice: (notice: object) => void): Channel;
}

export interface Channel {
  post(notice: object): void;
  close(): void;
}

/** Everything the client takes from its surroundings. The simulation gives its own. */
export interface Platform {
  /** Milliseconds since 1970, for the age of things only. */
  now(): number;
  /** Milliseconds that never go back. */
  monotonic(): number;
  random(bytes: number): Uint8Array;
  /** Calls `run` once after `ms` milliseconds. The result ends that. */
  timer(ms: number, run: () => void): () => void;
  fetch: typeof globalThis.fetch;
  /** Is absent where there is none. */
  WebSocket?: typeof globalThis.WebSocket | undefined;
  /** Is absent outside of a page. */
  page?: Page | undefined;
  /** Asks for storage that the browser does not remove by itself. */
  persist?: (() => Promise<boolean>) | undefined;
}

export interface Page {
  visible(): boolean;
  focused(): boolean;
  on(what: PageEvent, run: () => void): () => void;
}

export type PageEvent = 'visible' | 'hidden' | 'freeze' | 'resume' | 'pagehide' | 'pageshow'
  | 'online';
