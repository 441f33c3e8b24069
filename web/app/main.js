// Starts the page: it finds out who the user is, and runs a client with its view.

import { Api, Caller } from './api.js';
import { Client } from './client.js';
import { byId } from './dom.js';
import { Store } from './store.js';
import { View } from './view.js';

// sessionStorage belongs to one tab, so two tabs can have two users.
const WHO = 'tidemark.who';
const POSITION = 'tidemark.position';

let running = null;

async function enter(who) {
  const caller = new Caller(who);
  const store = await Store.open(caller.user);
  sessionStorage.setItem(WHO, JSON.stringify(who));
  byId('welcome').hidden = true;
  byId('app').hidden = false;
  const client = new Client({ api: new Api(caller), store });
  running = { client, store, view: new View(client) };
  client.addEventListener('connection', () => {
    if (client.connection === 'refused' && running?.client === client) {
      leave(`Sign in again: ${client.problem}.`);
    }
  });
  await client.start(takePosition());
}

function leave(problem = '') {
  if (!running) return;
  running.client.leave();
  running.view.close();
  running.store.close();
  running = null;
  sessionStorage.removeItem(WHO);
  welcome(problem);
}

// Asks for a name where a name is enough, and for a token elsewhere. The token is kept in the tab,
// and sent in headers, never in a URL.
async function welcome(problem = '') {
  document.title = 'Tidemark';
  byId('app').hidden = true;
  byId('welcome').hidden = false;
  byId('login-problem').textContent = problem;
  byId('token').value = '';
  const names = await Api.takesNames();
  byId('by-name').hidden = !names;
  byId('by-token').hidden = names;
  byId('enter').disabled = false;
  byId(names ? 'user' : 'token').focus();
}

// A reload continues the session. The position is stored only between two pages, because a
// duplicated tab copies sessionStorage. Two tabs in one session would take it from each other
// without end.
function takePosition() {
  const position = sessionStorage.getItem(POSITION) ?? '';
  sessionStorage.removeItem(POSITION);
  return position;
}

window.addEventListener('pagehide', () => {
  if (!running) return;
  running.client.leave();
  sessionStorage.setItem(POSITION, running.client.position);
});

window.addEventListener('pageshow', (event) => {
  if (event.persisted && running) running.client.goOnline(takePosition());
});

// The browser notices a lost network long before a connection does.
for (const type of ['online', 'offline']) {
  window.addEventListener(type, () => running?.client.networkChanged(type === 'online'));
}

byId('logout').addEventListener('click', () => leave());

byId('login').addEventListener('submit', (event) => {
  event.preventDefault();
  const byName = byId('by-token').hidden;
  const who = byName
    ? { user: byId('user').value.trim() }
    : { token: byId('token').value.trim() };
  if (!who.user && !who.token) {
    const problem = byName ? 'Choose a name first.' : 'Paste an access token first.';
    byId('login-problem').textContent = problem;
    return;
  }
  enter(who).catch((error) => welcome(error.message));
});

const saved = sessionStorage.getItem(WHO);
if (saved) enter(JSON.parse(saved)).catch((error) => welcome(error.message));
else welcome();
