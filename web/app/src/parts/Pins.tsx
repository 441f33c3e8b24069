// What is pinned in a chat. The server has the list, so there is none without a connection.

import type { ChatHandle, Pin } from '@tidemark/client';
import { useEffect } from 'preact/hooks';
import type { Session } from '../session';
import { useView, Value } from '../view';
import { messageText } from '../words';
import { Icon } from './Icon';

const known = new WeakMap<ChatHandle, Value<readonly Pin[]>>();

/** Returns the pins of a chat as they were told last, the latest one first. */
export function pinsOf(chat: ChatHandle): Value<readonly Pin[]> {
  const pins = known.get(chat) ?? new Value<readonly Pin[]>([]);
  known.set(chat, pins);
  return pins;
}

/** The line above the messages: the latest pinned message, and how many there are. */
export function Pinned({ session: { client }, chat }: { session: Session; chat: ChatHandle }) {
  const value = pinsOf(chat);
  const pins = useView(value);
  const live = useView(client.state).phase === 'live';
  useEffect(() => {
    const end = new AbortController();
    let asked = 0;
    let answered = 0;
    const ask = () => {
      const mine = ++asked;
      chat.pins().then((list) => {
        if (mine < answered || end.signal.aborted) return;
        answered = mine;
        value.set(list);
      }, () => {
        // The next connection asks again.
      });
    };
    client.on('message', ({ chat_id, kind, relation }) => {
      if (chat_id !== chat.id || !relation || kind === 'react') return;
      const isAbout = ({ pin_sequence: pin, message }: Pin) =>
        relation.sequence === pin || relation.sequence === message.sequence;
      // An answer that is on its way may lack it.
      if (kind === 'pin' || answered < asked || value.get().some(isAbout)) ask();
    }, { signal: end.signal });
    client.on('restored', ask, { signal: end.signal });
    if (live) ask();
    return () => end.abort();
  }, [client, chat, live]);

  const [latest] = pins;
  if (!latest) return null;
  return (
    <p class="pinned" data-testid="pinned">
      <Icon name="pin" />
      <span class="unseen">Pinned:</span>
      <span class="preview"><bdi>{latest.message.sender_id}</bdi>: {messageText(latest.message)}
      </span>
      {pins.length > 1 && <span class="badge" title="Pinned messages">{pins.length}</span>}
    </p>
  );
}
