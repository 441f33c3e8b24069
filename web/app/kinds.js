// The kinds of messages. There will be more: a client stores and acknowledges a message of a kind
// that it does not know, and neither shows nor counts it.

const SHOWN = ['message', 'system'];

/** Whether a message is for the eyes of the user. */
export function isShown(message) {
  return SHOWN.includes(message?.kind);
}

/** Whether a message of others counts as unread. */
export function counts(message) {
  return message?.kind === 'message';
}
