// What a user sees while the tab is hidden: the count in the title, and notifications.

import type { Client, Message } from '@tidemark/client';
import { alone, pushes, startPush } from './push';
import { go, route } from './route';
import type { Session } from './session';
import type { Shown } from './sw';
import { chatName, messageText } from './words';

const WANTED = 'tidemark.notify';

/** Whether the user wants notifications, and the browser allows them. */
export function notifies(): boolean {
  return canNotify() && Notification.permission === 'granted' &&
    localStorage.getItem(WANTED) === 'yes';
}

/** Returns whether the browser has what notifications need. */
export function canNotify(): boolean {
  return 'Notification' in window && 'serviceWorker' in navigator;
}

/** Switches notifications, and asks the browser if it has not been asked. */
export async function setNotify(wanted: boolean): Promise<boolean> {
  if (wanted && await Notification.requestPermission() !== 'granted') wanted = false;
  if (wanted) localStorage.setItem(WANTED, 'yes');
  else localStorage.removeItem(WANTED);
  return wanted;
}

/** Follows a client until the signal aborts. */
export function announce(session: Session, signal: AbortSignal): void {
  const { client, user } = session;
  const count = () => {
    const { total, atLeast } = client.unread.get();
    document.title = total > 0 ? `(${total}${atLeast ? '+' : ''}) Tidemark` : 'Tidemark';
    closeRead(session).catch(() => {
      // The browser has no badge.
    });
  };
  count();
  const end = client.unread.subscribe(count);
  signal.addEventListener('abort', () => {
    end();
    document.title = 'Tidemark';
  });
  client.on('message', (message) => void notify(client, message), { signal });
  if (!canNotify()) return;
  // sw.ts posts a question about a chat, a chat that the user chose, or a new subscription.
  navigator.serviceWorker.addEventListener('message', ({ data, ports }: MessageEvent<Told>) => {
    const { chat, user: of } = data;
    if (ports[0]) {
      const mine = of === undefined ? pushes(user) : of === user;
      const shown = !document.hidden && route.get().chat === chat;
      ports[0].postMessage(mine ? shown ? 2 : 1 : 0);
    } else if (chat) go({ chat });
    else renewPush(session);
  }, { signal });
}

interface Told {
  readonly chat?: string;
  readonly user?: string;
}

/** Closes the notifications of what the user has read meanwhile, and corrects the app's badge. */
async function closeRead({ client, user }: Session): Promise<void> {
  if (!pushes(user)) return;
  await close(({ chat, to }) => {
    const row = client.chat(chat).row.get();
    return row?.unread === 0 && row.prefix >= to;
  });
  await navigator.setAppBadge(client.unread.get().total);
}

async function close(which: (shown: Shown) => boolean): Promise<void> {
  const worker = await navigator.serviceWorker.ready;
  await alone(async () => {
    for (const one of await worker.getNotifications()) if (which(one.data as Shown)) one.close();
  });
}

/** Registers the browser again for its user. */
export function renewPush(session: Session): void {
  if (!notifies() || !pushes(session.user)) return;
  startPush(session).catch(() => {
    // The next start tries again.
  });
}

async function notify(client: Client, message: Message): Promise<void> {
  const { relation } = message;
  if (relation && message.kind === 'redact' && canNotify()) {
    // The text that it shows is gone. After an edit the message still waits to be read.
    const named = relation.sequences ?? [relation.sequence];
    await close(({ chat, to }) => chat === message.chat_id && named.includes(to));
  }
  const mine = message.sender_id === client.user;
  // Of several hidden tabs only one notifies: the one with the connection.
  if (!document.hidden || mine || message.kind !== 'message') return;
  if (!client.state.get().leader || !notifies()) return;
  const { chat_id: chat, sequence: to } = message;
  const row = client.chat(chat).row.get();
  if (!row || row.unread === 0) return; // It was read on another device.
  const worker = await navigator.serviceWorker.getRegistration();
  const group = row.chat.type === 'group' ? `${message.sender_id}: ` : '';
  await alone(async () => {
    await worker?.showNotification(chatName(row.chat), {
      body: group + messageText(message).slice(0, 200),
      icon: '/icon.svg',
      tag: chat,
      data: { chat, to, user: client.user } satisfies Shown,
    });
  });
}
