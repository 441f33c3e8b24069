// Tells a chat which of its messages are on screen.

import type { ChatHandle } from './types.js';

/** A message counts as shown when this much of it is visible, or all of it. */
const PIXELS = 40;
const SHOWN_MS = 300;
/** So that a row is looked at again when a fiftieth more of it is visible. */
const STEPS = 50;

/**
 * Watches the elements with `data-sequence` below `list`. A message that is visible for 300 ms is
 * shown, and so are all before it. Returns what ends that.
 */
export function watchShown(chat: ChatHandle, list: Element): () => void {
  const timers = new Map<Element, ReturnType<typeof setTimeout>>();
  /** Those that are visible, and have been for long enough. */
  const seen = new Set<Element>();
  const drop = (element: Element): void => {
    clearTimeout(timers.get(element));
    timers.delete(element);
    seen.delete(element);
  };
  const tell = (element: Element): void => {
    const sequence = Number(element.getAttribute('data-sequence'));
    if (sequence > 0) chat.shown(sequence);
  };
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting, intersectionRect, boundingClientRect } of entries) {
      // A row at the edge may be cut by a part of a pixel.
      const enough = Math.min(PIXELS, boundingClientRect.height - 1);
      if (!isIntersecting || intersectionRect.height < enough) drop(target);
      else if (!timers.has(target) && !seen.has(target)) {
        timers.set(target, setTimeout(() => {
          timers.delete(target);
          seen.add(target);
          tell(target);
        }, SHOWN_MS));
      }
    }
  }, { threshold: Array.from({ length: STEPS + 1 }, (_, i) => i / STEPS) });
  const look = (): void => {
    for (const element of list.querySelectorAll('[data-sequence]')) sight.observe(element);
  };
  const changes = new MutationObserver(look);
  changes.observe(list, {
    childList: true, subtree: true, attributes: true, attributeFilter: ['data-sequence'],
  });
  // What was shown while the user was elsewhere is read when they return.
  const focus = (): void => { for (const element of seen) tell(element); };
  addEventListener('focus', focus);
  look();
  return () => {
    sight.disconnect();
    changes.disconnect();
    removeEventListener('focus', focus);
    for (const element of [...timers.keys()]) drop(element);
  };
}
