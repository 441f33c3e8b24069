// What the other entries of this package use of a client, apart from what is public.

import type { Client, Platform } from '../types.js';
import type { StreamEvent } from '../wire/events.js';
import type { Rest } from './rest.js';
import type { Tab } from './tab.js';
import type { Guard } from './views.js';

export interface Inside {
  readonly platform: Platform;
  readonly rest: Rest;
  readonly guard: Guard;
  readonly tab: Tab;
  /** The chats that have a timeline on this page. */
  open(): readonly string[];
  /** Is set by an entry, and called for each event of the stream that this tab holds. */
  event?(event: StreamEvent): void;
  /** Is set by an entry, and called for each notice of another tab that the core does not know. */
  notice?(notice: object): void;
}

export const insides = new WeakMap<Client, Inside>();
