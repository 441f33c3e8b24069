// What a user sees while the tab is hidden: the count in the title, and notifications.

import type { Client, Message } from '@tidemark/client';
import { go } from './route';
import { chatName, messageText } from './words';

const WANTED = 'tidemark.notify';

/** Whether the user wants notifications, and the browser allows them. */
export function notifies(): boolean {
  return canNotify() && Notification.permission === 'granted' &&
    localStorage.getItem(WANTED) === 'yes';
}

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
export function announce(client: Client, signal: AbortSignal): void {
  const title = () => {
    const { total, atLeast } = client.unread.get();
    document.title = total > 0 ? `(${total}${atLeast ? '+' : ''}) Tidemark` : 'Tidemark';
  };
  title();
  const end = client.unread.subscribe(title);
  signal.addEventListener('abort', () => {
    end();
    document.title = 'Tidemark';
  });
  client.on('message', (message) => void notify(client, message), { signal });
}

async function notify(client: Client, message: Message): Promise<void> {
  const mine = message.sender_id === client.user;
  // Of several hidden tabs only one notifies: the one with the connection.
  if (!document.hidden || mine || message.kind !== 'message') return;
  if (!client.state.get().leader || !notifies()) return;
  const row = client.chat(message.chat_id).row.get();
  if (!row || row.unread === 0) return; // It was read on another device.
  const worker = await navigator.serviceWorker.getRegistration();
  const group = row.chat.type === 'group' ? `${message.sender_id}: ` : '';
  await worker?.showNotification(chatName(row.chat), {
    body: group + messageText(message).slice(0, 200),
    icon: '/icon.svg',
    tag: message.chat_id,
    data: { chat: message.chat_id },
  });
}

// The service worker tells which notification was chosen.
if ('serviceWorker' in navigator) {
  navigator.serviceWorker.addEventListener('message', ({ data }: MessageEvent<unknown>) => {
    if (typeof data !== 'object' || data === null || !('chat' in data)) return;
    if (typeof data.chat === 'string') go({ chat: data.chat });
  });
}
