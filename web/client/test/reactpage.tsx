// A small chat in React, for test/browser. The query names the server and the user.

import { StrictMode, useState, type ReactNode } from 'react';
import { createRoot } from 'react-dom/client';

import { createClient } from '../src/index.js';
import {
  TidemarkProvider, useChat, useChats, useClient, useConnection, useShown, useTimeline, useUnread,
} from '../src/react/index.js';

const query = new URLSearchParams(location.search);
const user = query.get('user') ?? '';
const client = createClient({
  url: query.get('server') ?? '', user, getToken: () => Promise.resolve(`dev:${user}`),
});
const phases: string[] = [client.state.get().phase];
client.state.subscribe(() => { phases.push(client.state.get().phase); });

function Chat({ id }: { id: string }): ReactNode {
  const chat = useChat(id);
  const { items, older } = useTimeline(id);
  const shown = useShown(id);
  return (
    <>
      <button id="older" onClick={() => void older()}>Older</button>
      <ol>
        {items.map((item) => (
          <li key={item.key} ref={shown(item)} data-tick={item.tick}>{item.content}</li>
        ))}
      </ol>
      <form action={(form) => { void chat.send({ content: form.get('text') as string }); }}>
        <input name="text" />
      </form>
    </>
  );
}

function App(): ReactNode {
  const { phase } = useConnection();
  const { total } = useUnread();
  const chats = useChats();
  const [open, setOpen] = useState('');
  const it = useClient();
  return (
    <>
      <p id="phase">{phase}</p>
      <p id="unread">{total}</p>
      {chats.map(({ chat }) => (
        <button key={chat.chat_id} className="chat" onClick={() => { setOpen(chat.chat_id); }}>
          {chat.peer?.user_id}
        </button>
      ))}
      <button id="new" onClick={() => {
        void it.createChat({ type: 'direct', member_ids: ['bob'] })
          .then(({ id }) => { setOpen(id); });
      }}>New</button>
      {open && <Chat id={open} />}
    </>
  );
}

const place = document.body.appendChild(document.createElement('main'));
let root = createRoot(place);
const render = () => {
  root.render(
    <StrictMode><TidemarkProvider client={client}><App /></TidemarkProvider></StrictMode>,
  );
};
render();

Object.assign(globalThis, {
  tidemark: {
    phases: () => phases,
    unmount: () => { root.unmount(); },
    mount: () => {
      root = createRoot(place);
      render();
    },
  },
});
