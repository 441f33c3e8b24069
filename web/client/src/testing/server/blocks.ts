// Who has blocked whom, and who is banned from which group: docs/moderation.md.

import type { ChatRecord } from './data.js';
import { Refusal } from './refusal.js';

/** Users, each with the time of their block or ban. */
export type Times = ReadonlyMap<string, number>;

export class Blocks {
  readonly #of = new Map<string, Map<string, number>>();

  copy(): Blocks {
    const copy = new Blocks();
    for (const [name, users] of this.#of) copy.#of.set(name, new Map(users));
    return copy;
  }

  /** Those whom a user has blocked, or who are banned from a chat. */
  of(name: string): Times {
    return this.#of.get(name) ?? new Map();
  }

  /** Returns whether it is new. */
  add(name: string, user: string, now: number): boolean {
    const users = this.#of.get(name) ?? new Map<string, number>();
    if (users.has(user)) return false;
    this.#of.set(name, users.set(user, now));
    return true;
  }

  remove(name: string, user: string): void {
    this.#of.get(name)?.delete(user);
  }

  /** Whether one of two users has blocked the other one. */
  apart(one: string, other: string): boolean {
    return this.of(one).has(other) || this.of(other).has(one);
  }

  /** Whether nobody can write in a chat. */
  closed(chat: ChatRecord): boolean {
    const [one = '', other = ''] = chat.members.keys();
    return chat.type === 'direct' && this.apart(one, other);
  }
}

/** The refusal of a closed chat says the same to both. */
export function closed(): Refusal {
  return new Refusal('DENIED',
    'this chat is closed: its members cannot write to each other');
}
