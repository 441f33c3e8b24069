// The kinds of messages. There will be more. If a client does not know the kind of a message, it
// stores and acknowledges it, and neither shows nor counts it.

const SHOWN = ['message', 'system'];

/** Whether the page shows a message. */
export function isShown(message) {
  return SHOWN.includes(message?.kind);
}

/** Whether a message counts as unread, if another user sent it. */
export function counts(message) {
  return message?.kind === 'message';
}
