// What is pinned in a chat. The server has the list, so there is none without a connection.

import { codeOf, type ChatHandle, type Client, type Message, type Pin } from '@tidemark/client';
import { useEffect } from 'preact/hooks';
import type { Session } from '../session';
import { useView, Value } from '../view';
import { messageText } from '../words';
import { Icon } from './Icon';

/** After how long the list is asked for again if there was no answer. */
const AGAIN_MS = 5_000;

const known = new WeakMap<ChatHandle, Value<readonly Pin[]>>();

/** Returns the pins of the open chat as the server listed them last, the latest one first. */
export function pinsOf(chat: ChatHandle): Value<readonly Pin[]> {
  const pins = known.get(chat) ?? new Value<readonly Pin[]>([]);
  known.set(chat, pins);
  return pins;
}

/** Returns the pins without what a redaction removes: one of them, or the text of a message. */
function without(pins: readonly Pin[], by: Message, target: number): readonly Pin[] {
  const revision =
    { sequence: by.sequence, kind: by.kind, by: by.sender_id, revised_at: by.created_at };
  return pins.filter(({ pin_sequence: pin }) => pin !== target).map((pin) =>
    pin.message?.sequence !== target ? pin : {
      ...pin, message: {
        ...pin.message, content: '', attachments: [], metadata: null, mentions: null, revision,
      },
    });
}

/**
 * Keeps the pins of a chat as the server has them, until the result is called. One request is on
 * its way at a time.
 */
function follow(
  client: Client, chat: ChatHandle, value: Value<readonly Pin[]>, live: boolean,
): () => void {
  const end = new AbortController();
  let state: 'idle' | 'asking' | 'again' = 'idle';
  let timer = 0;
  /** What was changed since the request. Its answer may lack that. */
  const changed = new Set<number>();
  const isChanged = ({ pin_sequence: pin, message }: Pin) =>
    changed.has(pin) || message !== null && changed.has(message.sequence);
  const ask = () => {
    clearTimeout(timer);
    if (end.signal.aborted) return;
    if (state !== 'idle') {
      state = 'again';
      return;
    }
    state = 'asking';
    changed.clear();
    void chat.pins().then((pins) => {
      if (pins.some(isChanged)) state = 'again';
      if (state === 'asking' && !end.signal.aborted) value.set(pins);
    }, (error: unknown) => {
      // The next connection asks, too.
      if (live && codeOf(error) === 'UNREACHABLE') timer = window.setTimeout(ask, AGAIN_MS);
    }).then(() => {
      const again = state === 'again';
      state = 'idle';
      if (again) ask();
    });
  };
  client.on('message', (message) => {
    const { chat_id: id, kind, relation } = message;
    if (id !== chat.id || !relation || kind === 'react') return;
    const named = relation.sequences ?? [relation.sequence];
    let isAbout = false;
    for (const sequence of named) {
      const pins = value.get();
      if (state !== 'idle') changed.add(sequence);
      const isIt = pins.some(({ pin_sequence: pin, message: target }) =>
        pin === sequence || target?.sequence === sequence);
      if (isIt && kind === 'redact') value.set(without(pins, message, sequence));
      isAbout ||= isIt;
    }
    if (isAbout || kind === 'pin') ask();
  }, { signal: end.signal });
  client.on('restored', ask, { signal: end.signal });
  if (live) ask();
  return () => end.abort();
}

/** The line above the messages: the latest pinned message, and how many there are. */
export function Pinned({ session: { client }, chat }: { session: Session; chat: ChatHandle }) {
  const value = pinsOf(chat);
  const pins = useView(value);
  const live = useView(client.state).phase === 'live';
  useEffect(() => follow(client, chat, value, live), [client, chat, live]);
  // Of a chat that is closed, nobody notices what is redacted.
  useEffect(() => () => value.set([]), [value]);

  const latest = pins.find(({ message }) => message !== null)?.message;
  // Only those who may pin get a pin without its message. There is no other place to undo it.
  const hidden = pins.findLast(({ message }) => message === null);
  if (pins.length === 0) return null;
  return (
    <p class="pinned" data-testid="pinned">
      <Icon name="pin" />
      <span class="unseen">Pinned:</span>
      <span class="preview">
        {latest ? <><bdi>{latest.sender_id}</bdi>: <bdi>{messageText(latest)}</bdi></>
          : 'A message that you cannot see'}</span>
      {hidden && <button type="button" class="button small" data-testid="unpin-hidden"
        title="Unpins a message from a time when you were not in the chat"
        onClick={() => void chat.unpin(hidden.pin_sequence).catch(() => undefined)}>
        Unpin a hidden message</button>}
      {pins.length > 1 && <span class="badge" title="Pinned messages">{pins.length}
        <span class="unseen"> pinned messages</span></span>}
    </p>
  );
}
