// What the drawer asks the server itself. It does not use the network that the page can switch off:
// a visitor sees what the server knows of a tab that is cut off.

import type { DeliveryStatus } from '@tidemark/client';
import type { Session } from '../session';

export interface PendingList {
  readonly pending: readonly {
    readonly chat_id: string; readonly first_undelivered_sequence: number | null;
  }[];
}

async function get<T>({ bearer }: Session, path: string): Promise<T> {
  const answer = await fetch(`/api/v1${path}`, {
    headers: { Authorization: `Bearer ${bearer}` }, cache: 'no-store',
  });
  if (!answer.ok) throw new Error(`${answer.status}`);
  return await answer.json() as T;
}

export function pendingRows(session: Session): Promise<PendingList> {
  return get(session, '/pending');
}

export function statusOf(session: Session, chat: string): Promise<DeliveryStatus> {
  return get(session, `/chats/${encodeURIComponent(chat)}/delivery-status`);
}

/** Writes messages as another member. This works with `serve --dev` only. */
export async function writeAs(user: string, chat: string, count: number): Promise<void> {
  const batch = Date.now().toString(36);
  for (let i = 1; i <= count; i++) {
    await fetch(`/api/v1/chats/${encodeURIComponent(chat)}/messages`, {
      method: 'POST',
      headers: { 'Authorization': `Bearer dev:${user}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({
        client_message_id: `hood-${batch}-${i}`, content: `Message ${i} of ${count}`,
        seen_sequence: 0,
      }),
    });
  }
}
