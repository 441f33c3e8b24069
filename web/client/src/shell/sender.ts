// Sends what is in the outbox.

import { pauseAfter } from '../core/pause.js';
import { bodyOf, dueSends, newAttempts, refused, type Attempts } from '../core/outbox.js';
import { entryOf } from '../core/plan.js';
import type { OutboxItem, Refused } from '../types.js';
import { has } from '../wire/events.js';
import type { Message } from '../wire.gen.js';
import { pathOf, type CatchUp } from './catchup.js';
import type { Reign } from './reign.js';

export interface Sender {
  /** Sends what is due. */
  poke(): void;
  /** The page ends, and the outbox with it: sends the next of each chat once more, in order. */
  last(): void;
}

/** How often a stored send looks whether the stream and its chat are of the same data. */
const LOOK_MS = 500;
const FAILED_MS = 5_000;

/**
 * `ready` reports whether the stream is open, and the server has all cursors. `refuse` tells the
 * application that a message stays as it is.
 */
export function senderOf(
  reign: Reign, catchUp: CatchUp, ready: () => boolean, refuse: (event: Refused) => void,
): Sender {
  const { data, rest, platform } = reign;
  const busy = new Set<string>();
  const attempts = new Map<string, Attempts>();

  const attemptsOf = (item: OutboxItem): Attempts => {
    const found = attempts.get(item.client_message_id) ?? newAttempts();
    attempts.set(item.client_message_id, found);
    return found;
  };
  const isDue = (item: OutboxItem): boolean => data.outbox.some((one) =>
    one.client_message_id === item.client_message_id && one.state === 'due');
  const post = (item: OutboxItem, last: boolean) =>
    rest.call('POST', pathOf(item.chat_id, '/messages'), bodyOf(item, attemptsOf(item)),
      last ? { last } : { signal: reign.end });

  /** Stores an answer. If the stream is of other data, it returns, and the send is repeated. */
  async function take(item: OutboxItem, message: Message, of: string): Promise<void> {
    const { client_message_id: id, chat_id: chat } = item;
    while (isDue(item)) {
      if (!ready()) {
        await reign.pause(LOOK_MS);
      } else if (reign.session?.incarnation !== of) {
        await reign.pause(FAILED_MS);
        return;
      } else if (data.chats.get(chat)?.incarnation === of) {
        if (await reign.take(of, [entryOf(message)], [id])) await reign.pause(LOOK_MS);
        return;
      } else if (data.chats.has(chat)) {
        // It is of other data until the sync.
        await reign.pause(LOOK_MS);
      } else {
        await catchUp.learn(chat);
        // The user is no member any more: there is no place for it.
        if (!data.chats.has(chat)) await reign.commit(() => ({ sent: [id] }));
      }
    }
  }

  /** Whether the server may have another message in the place of the one that an item changes. */
  const isUnsure = ({ relation, chat_id: chat }: OutboxItem): boolean => {
    const row = data.chats.get(chat);
    return relation !== undefined && row?.left === false
      && !(ready() && row.incarnation === reign.session?.incarnation);
  };

  /** Sends an item until it is stored, or fails, or leaves the outbox otherwise. */
  async function send(item: OutboxItem): Promise<void> {
    const { client_message_id: id, chat_id: chat, kind, relation, content } = item;
    while (isDue(item)) {
      if (isUnsure(item)) {
        await reign.pause(FAILED_MS);
        continue;
      }
      const asked = reign.session?.incarnation;
      const answer = await post(item, false);
      if (answer.is === 'ok' && has('message', answer.body)) {
        await take(item, answer.body as Message, answer.of ?? asked ?? '');
        continue;
      }
      const result = answer.is === 'ok' ? { pause: true }
        : refused(item, answer, attemptsOf(item), platform.now());
      if ('failed' in result) {
        const { failed: problem } = result;
        if (kind) {
          refuse({
            chat_id: chat, client_message_id: id, kind, problem, ...relation && { relation },
            ...content !== undefined && { content },
          });
        }
        await reign.commit(() => kind
          ? { sent: [id] } : { failed: [{ client_message_id: id, problem }] });
        if (answer.status === 403 || answer.status === 404) catchUp.refresh(chat);
        return;
      }
      if (result.pause) {
        const after = answer.is === 'retry' ? answer.after : undefined;
        await reign.pause(after ?? pauseAfter(attemptsOf(item).tries, reign.random()));
      }
    }
  }

  async function run(item: OutboxItem): Promise<void> {
    try {
      await send(item);
    } catch (error) {
      reign.failed(error);
      // What failed at once would do so again and again.
      if (!reign.end.aborted) await reign.pause(FAILED_MS);
    } finally {
      attempts.delete(item.client_message_id);
      busy.delete(item.chat_id);
      if (!reign.end.aborted) poke();
    }
  }

  function poke(): void {
    for (const item of dueSends(data.outbox, busy)) {
      busy.add(item.chat_id);
      reign.spawn(run(item));
    }
  }

  return {
    poke,
    last() {
      for (const item of dueSends(data.outbox, new Set())) {
        if (!isUnsure(item)) reign.spawn(post(item, true));
      }
    },
  };
}
