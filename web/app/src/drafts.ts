// What is written and not sent, by chat. It survives a reload of the tab.

import type { Client } from '@tidemark/client';
import { Value } from './view';

const KEY = 'tidemark.drafts';
const SENDING = 'tidemark.sending';

type Drafts = Readonly<Record<string, string>>;

export const drafts = new Value<Drafts>(load());

export function setDraft(chat: string, text: string): void {
  const others = Object.entries(drafts.get()).filter(([id]) => id !== chat);
  const next = Object.fromEntries(text === '' ? others : [...others, [chat, text]]);
  drafts.set(next);
  sessionStorage.setItem(KEY, JSON.stringify(next));
}

export function clearDrafts(): void {
  drafts.set({});
  sendings = [];
}

/** What was sent, as long as it is not known whether the client has kept it. */
interface Sending {
  readonly chat: string;
  readonly client_message_id: string;
  readonly content: string;
}

/** Sends a text of the user. If the tab is reloaded before it is kept, `resend` sends it again. */
export async function send(client: Client, chat: string, content: string): Promise<void> {
  const one = { chat, client_message_id: client.newMessageId(), content };
  sendings = [...sendings, one];
  save();
  await keep(client, one);
}

/** Sends what was under way when the tab was reloaded. It is stored once in any case. */
export function resend(client: Client): void {
  for (const one of sendings) {
    keep(client, one).catch(() => {
      // The user finds the text where they wrote it.
      if (!drafts.get()[one.chat]) setDraft(one.chat, one.content);
    });
  }
}

let sendings = JSON.parse(sessionStorage.getItem(SENDING) ?? '[]') as readonly Sending[];

function save(): void {
  sessionStorage.setItem(SENDING, JSON.stringify(sendings));
}

async function keep(client: Client, one: Sending): Promise<void> {
  const { chat, content, client_message_id } = one;
  try {
    await client.chat(chat).send({ content, client_message_id });
  } finally {
    sendings = sendings.filter((other) => other !== one);
    save();
  }
}

function load(): Drafts {
  return JSON.parse(sessionStorage.getItem(KEY) ?? '{}') as Drafts;
}
