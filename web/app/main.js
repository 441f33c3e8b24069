// Starts the page: who am I, then a client and its view, until the page or the user goes.

import { Api, Caller } from './api.js';
import { Client } from './client.js';
import { byId } from './dom.js';
import { Store } from './store.js';
import { View } from './view.js';

// sessionStorage belongs to one tab: two tabs are two users.
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
  await client.start(takePosition());
}

function leave() {
  if (!running) return;
  running.client.leave();
  running.view.close();
  running.store.close();
  running = null;
  sessionStorage.removeItem(WHO);
  welcome();
}

function welcome(problem = '') {
  document.title = 'Tidemark';
  byId('app').hidden = true;
  byId('welcome').hidden = false;
  byId('login-problem').textContent = problem;
  byId('user').focus();
}

// A reload goes on in the same session. The position is kept only from page to page: a duplicated tab copies
// sessionStorage, and two tabs in one session would take it from each other for ever.
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

byId('logout').addEventListener('click', leave);

byId('login').addEventListener('submit', (event) => {
  event.preventDefault();
  const who = { user: byId('user').value.trim(), token: byId('token').value.trim() };
  if (!who.user && !who.token) {
    welcome('Choose a name first.');
    return;
  }
  enter(who).catch((error) => welcome(error.message));
});

const saved = sessionStorage.getItem(WHO);
if (saved) enter(JSON.parse(saved)).catch((error) => welcome(error.message));
else welcome();
