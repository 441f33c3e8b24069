// One signed-in user: their credentials, their network and their client.

import { createClient, signedOut, type Client } from '@tidemark/client';
import { indexedDBStore } from '@tidemark/client/store-indexeddb';
import { browserTabs } from '@tidemark/client/tabs';
import { Network } from './network';
import { Value } from './view';
import type { Who } from './who';

export interface Session {
  readonly user: string;
  /** The server runs with --dev, where a name is enough. */
  readonly dev: boolean;
  readonly bearer: string;
  readonly client: Client;
  readonly network: Network;
  /** How many messages the server has lost since the page was opened. */
  readonly lost: Value<number>;
}

const OFFLINE = 'tidemark.offline';

/** Makes the client of a user. Throws an Error with words for the user. */
export function begin(who: Who): Session {
  const dev = 'name' in who;
  const user = dev ? who.name : subjectOf(who.token);
  const bearer = dev ? `dev:${who.name}` : who.token;
  const network = new Network(sessionStorage.getItem(OFFLINE) ? 'off' : 'on');
  const client = createClient({
    url: location.origin,
    user,
    store: indexedDBStore(),
    tabs: browserTabs(),
    getToken: (why) => {
      // A page has no way to renew a pasted token. It is used until the server refuses it: the
      // clock of this device may be wrong.
      return !dev && why === 'refused'
        ? Promise.reject(signedOut('The access token is not valid any more.'))
        : Promise.resolve(bearer);
    },
    platform: { fetch: network.fetch, WebSocket: network.WebSocket },
  });
  network.power.subscribe(() => {
    const power = network.power.get();
    if (power === 'off') sessionStorage.setItem(OFFLINE, 'yes');
    else sessionStorage.removeItem(OFFLINE);
    if (power === 'on') client.retryNow();
  });
  const lost = new Value(0);
  client.on('restored', (event) => lost.set(lost.get() + event.lost));
  return { user, dev, bearer, client, network, lost };
}

function subjectOf(token: string): string {
  try {
    const part = token.split('.')[1]?.replaceAll('-', '+').replaceAll('_', '/') ?? '';
    const { sub } = JSON.parse(atob(part)) as { sub?: unknown };
    if (typeof sub === 'string' && sub !== '') return sub;
  } catch {
    // Falls through: the text is not a token.
  }
  throw new Error('This is not an access token: it names no user.');
}
