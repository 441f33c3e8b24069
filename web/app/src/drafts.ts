// What is written and not sent, by chat. It survives a reload of the tab.

import { Value } from './view';

const KEY = 'tidemark.drafts';

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
}

function load(): Drafts {
  return JSON.parse(sessionStorage.getItem(KEY) ?? '{}') as Drafts;
}
