// Tells a chat which of its messages are on screen.

import type { ChatHandle } from './types.js';

/** A message counts as shown when this much of it is visible, or all of it. */
const PIXELS = 40;
const SHOWN_MS = 300;

/**
 * Watches the elements with `data-sequence` below `list`. A message that is visible for 300 ms is
 * shown, and so are all before it. Returns what ends that.
 */
export function watchShown(chat: ChatHandle, list: Element): () => void {
  const timers = new Map<Element, ReturnType<typeof setTimeout>>();
  let highest = 0;
  const drop = (element: Element): void => {
    clearTimeout(timers.get(element));
    timers.delete(element);
  };
  const seen = (element: Element): void => {
    timers.delete(element);
    highest = Math.max(highest, Number(element.getAttribute('data-sequence')) || 0);
    chat.shown(highest);
  };
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting, intersectionRect, boundingClientRect } of entries) {
      // A row at the edge may be cut by a part of a pixel.
      const enough = Math.min(PIXELS, boundingClientRect.height - 1);
      drop(target);
      if (isIntersecting && intersectionRect.height >= enough) {
        timers.set(target, setTimeout(() => { seen(target); }, SHOWN_MS));
      }
    }
  }, { threshold: [0, 0.25, 0.5, 0.75, 1] });
  const look = (): void => {
    for (const element of list.querySelectorAll('[data-sequence]')) sight.observe(element);
  };
  const changes = new MutationObserver(look);
  changes.observe(list, {
    childList: true, subtree: true, attributes: true, attributeFilter: ['data-sequence'],
  });
  // What was shown while the user was elsewhere is read when they return.
  const focus = (): void => { if (highest > 0) chat.shown(highest); };
  addEventListener('focus', focus);
  look();
  return () => {
    sight.disconnect();
    changes.disconnect();
    removeEventListener('focus', focus);
    for (const element of [...timers.keys()]) drop(element);
  };
}
