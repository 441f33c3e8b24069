'use client';

// Hooks over the views of a client. The module may be imported on a server, where the hooks give
// what there is before a client has started.

import {
  createContext, createElement, useCallback, useContext, useEffect, useMemo, useState,
  useSyncExternalStore, type ReactNode,
} from 'react';

import type {
  ChatHandle, Client, Item, Row, State, Timeline, Unread, View,
} from '../types.js';
import { watchShown } from '../watch.js';

const Context = createContext<Client | undefined>(undefined);

// A server renders these, and a page while it takes over what a server has rendered.
const NONE: readonly never[] = [];
const STOPPED: State = { phase: 'stopped', leader: false, durable: false };
const UNREAD: Unread = { total: 0, atLeast: false };
const EMPTY: View<readonly never[]> = { get: () => NONE, subscribe: () => () => undefined };

function useView<T>(view: View<T>, before: T): T {
  return useSyncExternalStore(
    useCallback((changed: () => void) => view.subscribe(changed), [view]),
    () => view.get(), () => before,
  );
}

/** How many providers hold a client. */
const held = new WeakMap<Client, number>();

/** Starts a client for its first holder. The result stops it after the last one. */
function hold(client: Client): () => void {
  const count = (change: number) => {
    const now = (held.get(client) ?? 0) + change;
    held.set(client, now);
    return now;
  };
  // What fails is in `useConnection`, and tried again.
  if (count(1) === 1) client.start().catch(() => undefined);
  return () => {
    // A provider that is mounted again at once, as StrictMode does, finds the client running.
    setTimeout(() => {
      if (count(-1) === 0) client.stop().catch(() => undefined);
    });
  };
}

/** Gives a client to the hooks below it. It starts the client, and stops it at the end. */
export function TidemarkProvider(
  { client, children }: { client: Client; children?: ReactNode },
): ReactNode {
  useEffect(() => hold(client), [client]);
  return createElement(Context.Provider, { value: client }, children);
}

/** Returns the client of the nearest provider. */
export function useClient(): Client {
  const client = useContext(Context);
  if (!client) throw new Error('This hook needs a TidemarkProvider above it.');
  return client;
}

/** Returns how the client is connected. */
export function useConnection(): State {
  return useView(useClient().state, STOPPED);
}

/** Returns the chats, latest activity first. */
export function useChats(): readonly Row[] {
  return useView(useClient().chats, NONE);
}

/** Returns how much is unread in all chats together. */
export function useUnread(): Unread {
  return useView(useClient().unread, UNREAD);
}

/** Returns how many sends wait for the server. */
export function useUnsent(): number {
  return useView(useClient().unsent, 0);
}

/** Returns a chat, which may be used in handlers of events. */
export function useChat(id: string): ChatHandle {
  const client = useClient();
  return useMemo(() => client.chat(id), [client, id]);
}

/** Returns what the list of chats says of one chat. */
export function useRow(id: string): Row | undefined {
  return useView(useChat(id).row, undefined);
}

/** Returns who is typing now. */
export function useTyping(id: string): readonly string[] {
  return useView(useChat(id).typing, NONE);
}

/** Returns the messages of a chat, oldest first, and how to load older ones. */
export function useTimeline(id: string): {
  readonly items: readonly Item[]; readonly older: () => Promise<boolean>;
} {
  const chat = useChat(id);
  const [opened, setOpened] = useState<{ chat: ChatHandle; timeline: Timeline }>();
  useEffect(() => {
    const timeline = chat.timeline();
    setOpened({ chat, timeline });
    return () => { timeline.close(); };
  }, [chat]);
  const timeline = opened?.chat === chat ? opened.timeline : undefined;
  const items = useView<readonly Item[]>(timeline?.items ?? EMPTY, NONE);
  const older = useCallback(() => timeline?.older() ?? Promise.resolve(false), [timeline]);
  return { items, older };
}

/**
 * Returns what makes a `ref` of an item: `<li ref={shown(item)}>`. Messages that stay on screen
 * count as read.
 */
export function useShown(id: string): (item: Item) => (element: Element | null) => void {
  const chat = useChat(id);
  const { shown, watch } = useMemo(() => watcher(chat), [chat]);
  useEffect(watch, [watch]);
  return shown;
}

function watcher(chat: ChatHandle) {
  /** The parents of items, and what ends watching them. */
  const lists = new Map<Element, () => void>();
  let watching = false;
  const begin = (list: Element) => {
    lists.set(list, watching ? watchShown(chat, list) : () => undefined);
  };
  return {
    shown: ({ sequence }: Item) => (element: Element | null) => {
      if (!element) return;
      if (sequence === undefined) element.removeAttribute('data-sequence');
      else element.setAttribute('data-sequence', String(sequence));
      const list = element.parentElement;
      if (list && !lists.has(list)) begin(list);
    },
    watch: () => {
      watching = true;
      for (const list of lists.keys()) begin(list);
      return () => {
        watching = false;
        for (const end of lists.values()) end();
      };
    },
  };
}
