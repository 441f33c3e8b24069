// What the user has sent, as long as it is not known whether the client has kept it.

import type { Client } from '@tidemark/client';

const KEY = 'tidemark.sending';

interface Sending {
  readonly user: string;
  readonly chat: string;
  readonly client_message_id: string;
  readonly content: string;
}

let all: readonly Sending[] = [];

/** Sends a text. If the tab is reloaded before the client has kept it, `resend` sends it again. */
export function send(client: Client, chat: string, content: string): Promise<void> {
  const one = { user: client.user, chat, client_message_id: client.newMessageId(), content };
  save([...all, one]);
  return keep(client, one).finally(() => drop(one));
}

/** Sends what was under way when the tab was reloaded. It is stored once in any case. */
export function resend(client: Client): void {
  const saved = JSON.parse(sessionStorage.getItem(KEY) ?? '[]') as readonly Sending[];
  all = saved.filter(({ user }) => user === client.user);
  for (const one of all) {
    keep(client, one).then(() => drop(one), () => {
      // The next reload tries again.
    });
  }
}

async function keep(
  client: Client, { chat, client_message_id, content }: Sending,
): Promise<void> {
  await client.chat(chat).send({ client_message_id, content });
}

function drop(one: Sending): void {
  save(all.filter((other) => other !== one));
}

function save(sendings: readonly Sending[]): void {
  all = sendings;
  sessionStorage.setItem(KEY, JSON.stringify(all));
}
