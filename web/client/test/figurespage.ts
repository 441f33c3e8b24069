// A page that catches up and says when, for test/browser. Nothing of a test runs in the browser
// meanwhile: a driver reports each frame to its inspector, which costs more than the client.

import { createClient } from '../src/index.js';
import { indexedDBStore } from '../src/store/indexeddb.js';
import { browserTabs } from '../src/tabs/index.js';

const query = new URLSearchParams(location.search);
const user = query.get('user') ?? '';
const messages = Number(query.get('messages'));

/** Tells the test, which answers when it has looked at the clock of the process. */
const tell = (what: string): Promise<unknown> => fetch(`/tell?${what}`, { method: 'POST' });

const client = createClient({
  url: query.get('server') ?? '', user, getToken: () => Promise.resolve(`dev:${user}`),
  store: indexedDBStore(), tabs: browserTabs(),
});
const look = (): void => {
  if (client.chats.get()[0]?.prefix !== messages) return;
  cancel();
  void tell('caught-up');
};
const cancel = client.chats.subscribe(look);
await tell('ready');
await client.start();
