// The list of chats, latest activity first. The arrow keys move in it.

import type { Row } from '@tidemark/client';
import { useRef, useState } from 'preact/hooks';
import { Virtualizer, type VirtualizerHandle } from 'virtua';
import { drafts } from '../drafts';
import { later } from '../later';
import { go } from '../route';
import type { Session } from '../session';
import { shortTime } from '../time';
import { useView } from '../view';
import { chatName, plural, preview, typingWords } from '../words';
import { Avatar } from './Avatar';

const Dot = later(() => import('./Presence').then((all) => all.Dot));

interface Props {
  session: Session;
  open: string | undefined;
  /** Only chats with these words in their name are shown. */
  words: string;
  /** Starts a new chat. */
  start: () => void;
}

export function ChatList({ session, open, words, start }: Props) {
  const { client } = session;
  const all = useView(client.chats);
  const { phase } = useView(client.state);
  const list = useRef<VirtualizerHandle>(null);
  const box = useRef<HTMLElement>(null);
  const [focused, setFocused] = useState(0);

  const wanted = words.trim().toLocaleLowerCase();
  const chats = wanted === ''
    ? all
    : all.filter(({ chat }) => chatName(chat).toLocaleLowerCase().includes(wanted));
  const current = Math.max(0, chats.findIndex(({ chat }) => chat.chat_id === open));
  // One chat is in the order of Tab: the one that had the focus last, or the open one.
  const stop = focused < chats.length && box.current?.contains(document.activeElement)
    ? focused
    : current;

  const move = (event: KeyboardEvent) => {
    const to = {
      ArrowDown: stop + 1, ArrowUp: stop - 1, Home: 0, End: chats.length - 1,
    }[event.key];
    if (to === undefined || to < 0 || to >= chats.length) return;
    event.preventDefault();
    setFocused(to);
    list.current?.scrollToIndex(to, { align: 'nearest' });
    requestAnimationFrame(() => {
      box.current?.querySelector<HTMLElement>(`[data-index="${to}"]`)?.focus();
    });
  };

  return (
    <nav class="chats" aria-label="Chats" data-testid="chats" ref={box} onKeyDown={move}>
      {chats.length === 0 && (wanted !== ''
        ? <p class="empty">No chat has this name.</p>
        : phase === 'live'
          ? <div class="empty" data-testid="no-chats">
              <p>No chats yet.</p>
              <button class="button primary" onClick={start}>Start the first one</button>
            </div>
          : <p class="empty">Loading the chats …</p>)}
      <Virtualizer ref={list} data={chats} as="ul" item="li" keepMounted={[stop]}>
        {(row, index) => (
          <ChatLink key={row.chat.chat_id} session={session} row={row} index={index}
            open={row.chat.chat_id === open} stop={index === stop}
            focused={() => setFocused(index)} />
        )}
      </Virtualizer>
    </nav>
  );
}

interface LinkProps {
  session: Session;
  row: Row;
  index: number;
  open: boolean;
  stop: boolean;
  focused: () => void;
}

function ChatLink({ session, row, index, open, stop, focused }: LinkProps) {
  const { client, user } = session;
  const { chat, last, unread, atLeast } = row;
  const id = chat.chat_id;
  const typing = typingWords(useView(client.chat(id).typing));
  const draft = useView(drafts)[id];
  const name = chatName(chat);
  const count = `${unread}${atLeast ? '+' : ''}`;
  const label = unread === 0 ? '' : `, ${plural(unread, 'unread message')}`;
  const show = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go({ chat: id });
  };
  return (
    <a class="chat" href={`#chat/${encodeURIComponent(id)}`} tabIndex={stop ? 0 : -1}
      data-index={index} data-testid="chat" data-name={name} data-chat={id}
      aria-current={open ? 'page' : undefined} onClick={show} onFocus={focused}>
      <Avatar name={name} />
      <span class="chat-lines">
        <span class="chat-line">
          <strong><bdi>{name}</bdi></strong>
          <Dot session={session} chat={chat} />
          {last && <time dateTime={last.created_at}>{shortTime(new Date(last.created_at))}</time>}
        </span>
        <span class="chat-line">
          <span class="preview" dir="auto" data-testid="preview">
            {typing !== ''
              ? <span class="accent">{typing} …</span>
              : draft !== undefined && !open
                ? <><span class="draft">Draft:</span> {draft}</>
                : row.left ? 'You are no longer a member' : preview(row, user)}
          </span>
          {unread > 0 && <span class="badge" aria-hidden="true" data-testid="unread">{count}</span>}
          <span class="unseen">{label}</span>
        </span>
      </span>
    </a>
  );
}
