// The page of a signed-in user: chats, the open chat, and a panel beside it.

import { useRef } from 'preact/hooks';
import { later } from '../later';
import { go, route } from '../route';
import type { Session } from '../session';
import { useEvent, useView } from '../view';
import { Banner, Lost } from './Banner';
import { Conversation } from './Conversation';
import { Legend } from './SignIn';
import { Sidebar } from './Sidebar';

const Hood = later(() => import('../hood/Hood').then((all) => all.Hood));
const WhoHasIt = later(() => import('./WhoHasIt').then((all) => all.WhoHasIt));

export function Workspace({ session }: { session: Session }) {
  const { chat, panel } = useView(route);
  const filter = useRef<HTMLInputElement>(null);

  useEvent(window, 'keydown', (event) => {
    const { key, ctrlKey, metaKey } = event as KeyboardEvent;
    if (key !== 'k' || !(ctrlKey || metaKey)) return;
    event.preventDefault();
    go({});
    filter.current?.focus();
  });
  const close = () => go(chat === undefined ? {} : { chat });

  return (
    <div class="app" data-open={chat !== undefined} data-panel={panel !== undefined}>
      <div class="banners">
        <Banner session={session} />
        <Lost session={session} />
      </div>
      <Sidebar session={session} open={chat} filter={filter} />
      <main class="main">
        {chat === undefined
          ? <Nothing />
          : <Conversation key={chat} session={session} id={chat} />}
      </main>
      {panel === 'hood' && <Hood session={session} chat={chat} close={close} />}
      {typeof panel === 'number' && chat !== undefined &&
        <WhoHasIt key={panel} session={session} chat={chat} sequence={panel} close={close} />}
    </div>
  );
}

function Nothing() {
  return (
    <div class="nothing">
      <img src="/icon.svg" alt="" width="64" height="64" />
      <h1>Choose a chat, or start one</h1>
      <Legend />
    </div>
  );
}
