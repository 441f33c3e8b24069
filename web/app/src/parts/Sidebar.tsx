// The chats of the user, and who they are.

import type { Ref } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { go } from '../route';
import type { Session } from '../session';
import { useView } from '../view';
import { stateWords } from '../words';
import { Avatar } from './Avatar';
import { ChatList } from './ChatList';
import { Icon } from './Icon';
import { Menu } from './Menu';
import { NewChat } from './NewChat';

interface Props {
  session: Session;
  /** The open chat. */
  open: string | undefined;
  filter: Ref<HTMLInputElement>;
}

export function Sidebar({ session, open, filter }: Props) {
  const { client, network, user } = session;
  const [words, setWords] = useState('');
  const [creating, setCreating] = useState(false);
  const state = useView(client.state);
  const power = useView(network.power);
  const box = useRef<HTMLElement>(null);

  useEffect(() => {
    // The form of sign-in is gone, and the focus with it.
    if (document.activeElement === document.body) box.current?.focus();
  }, []);

  return (
    <header class="side" ref={box} tabIndex={-1}>
      <div class="bar">
        <Avatar name={user} />
        <span class="who">
          <strong data-testid="me"><bdi>{user}</bdi></strong>
          <span class="state" role="status" data-testid="connection"
            data-state={power === 'on' ? state.phase : 'offline'}>{stateWords(state, power)}</span>
        </span>
        <button class="button square" onClick={() => setCreating(true)} data-testid="new-chat"
          aria-label="New chat" title="New chat"><Icon name="write" /></button>
        <Menu session={session} />
      </div>
      <label class="filter">
        <Icon name="search" />
        <span class="unseen">Find a chat</span>
        <input ref={filter} type="search" placeholder="Find a chat" value={words}
          data-testid="filter" onInput={(event) => setWords(event.currentTarget.value)}
          aria-keyshortcuts="Control+K" autocomplete="off" />
      </label>
      <ChatList session={session} open={open} words={words} start={() => setCreating(true)} />
      <div class="bar foot">
        <button class="switch" role="switch" aria-checked={power === 'on'}
          onClick={() => network.turn(power === 'on' ? 'off' : 'on')} data-testid="online-switch"
          title="Offline, nothing is received or acknowledged, and your messages wait">
          <span class="knob" aria-hidden="true" />Online
        </button>
        <button class="button quiet" data-testid="hood" aria-label="Under the hood"
          title="Under the hood: frames, watermarks, and what happens without a network"
          onClick={() => go({ ...open !== undefined && { chat: open }, panel: 'hood' })}>
          <Icon name="hood" /> Under the hood
        </button>
      </div>
      {creating && <NewChat session={session} close={() => setCreating(false)} />}
    </header>
  );
}
