// The open chat: its head, its messages, and what the user writes.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { later } from '../later';
import { go, route } from '../route';
import type { Session } from '../session';
import { useEvent, useView } from '../view';
import { chatName, plural, typingWords } from '../words';
import { Avatar } from './Avatar';
import { Composer } from './Composer';
import { Icon } from './Icon';
import { Log } from './Log';

const PAGE = 60;
const Pinned = later(() => import('./Pins').then((all) => all.Pinned));
const Seen = later(() => import('./Presence').then((all) => all.Seen), 'Direct chat');

export function Conversation({ session, id }: { session: Session; id: string }) {
  const { client } = session;
  const [chat, timeline] = useMemo(() => {
    const handle = client.chat(id);
    return [handle, handle.timeline({ page: PAGE })] as const;
  }, [client, id]);
  useEffect(() => () => timeline.close(), [timeline]);
  const row = useView(chat.row);
  const typing = typingWords(useView(chat.typing));
  const { phase } = useView(client.state);
  const [search, setSearch] = useState<string>();
  const text = useRef<HTMLTextAreaElement>(null);

  useEvent(window, 'keydown', (event) => {
    const { key, ctrlKey, metaKey } = event as KeyboardEvent;
    if (key === 'f' && (ctrlKey || metaKey) && search === undefined) {
      // The browser finds only what is on the screen. A second time is its own search.
      event.preventDefault();
      setSearch('');
    }
    if (key !== 'Escape') return;
    if (search !== undefined) setSearch(undefined);
    else if (route.get().panel !== undefined) go({ chat: id });
    else if (document.activeElement !== text.current) text.current?.focus();
  });

  if (!row) {
    return (
      <div class="nothing">
        <p>{phase === 'live' ? 'This chat does not exist, or you are not a member.'
          : 'Loading the chat …'}</p>
        <button class="button" onClick={() => go({})}>Back to the chats</button>
      </div>
    );
  }
  const name = chatName(row.chat);
  const head = row.chat.type === 'group' ? plural(row.chat.member_count, 'member')
    : <Seen session={session} chat={row.chat} />;
  const newest = row.chat.head_sequence;
  return (
    <section class="conversation" aria-label={`Chat: ${name}`}>
      <div class="bar">
        <button class="button square back" aria-label="Back to the chats" data-testid="back"
          onClick={() => go({})}><Icon name="back" /></button>
        <Avatar name={name} />
        <span class="who">
          <h1 data-testid="chat-name"><bdi>{name}</bdi></h1>
          <span class="state" data-testid="chat-members" data-typing={typing !== ''}>
            {typing === '' ? head : `${typing} …`}</span>
        </span>
        <button class="button square" aria-label="Search in this chat" data-testid="search"
          aria-keyshortcuts="Control+F" title="Search" aria-pressed={search !== undefined}
          onClick={() => setSearch(search === undefined ? '' : undefined)}>
          <Icon name="search" /></button>
        <button class="button square" aria-label="Who has what" data-testid="info"
          title="Who has received and read what" disabled={newest === 0}
          onClick={() => go({ chat: id, panel: lastSequence(timeline.items.get()) || newest })}>
          <Icon name="people" /></button>
        <button class="button square narrow-only" aria-label="Under the hood"
          onClick={() => go({ chat: id, panel: 'hood' })}><Icon name="hood" /></button>
      </div>
      {!row.left && <Pinned session={session} chat={chat} />}
      <Log session={session} chat={chat} timeline={timeline} row={row} search={search}
        setSearch={setSearch} write={() => text.current?.focus()} />
      <Composer session={session} chat={chat} row={row} text={text} />
    </section>
  );
}

function lastSequence(items: readonly { sequence?: number }[]): number {
  for (let i = items.length - 1; i >= 0; i--) {
    const sequence = items[i]?.sequence;
    if (sequence !== undefined) return sequence;
  }
  return 0;
}
