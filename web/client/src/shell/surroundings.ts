// What the client takes from the browser or from Node, unless it is given something else.

import type { Page, Platform } from '../types.js';

/** The real clock, network and page. */
export function surroundings(): Platform {
  const { document, navigator, WebSocket } = globalThis as Partial<typeof globalThis>;
  const page: Page | undefined = document && {
    visible: () => document.visibilityState === 'visible',
    focused: () => document.hasFocus(),
    on(what, run) {
      const [target, event] = what === 'visible' || what === 'hidden'
        ? [document, 'visibilitychange']
        : what === 'freeze' || what === 'resume' ? [document, what] : [globalThis, what];
      const listener = (): void => {
        if (event !== 'visibilitychange' || document.visibilityState === what) run();
      };
      target.addEventListener(event, listener);
      return () => { target.removeEventListener(event, listener); };
    },
  };
  return {
    now: () => Date.now(),
    monotonic: () => performance.now(),
    random: (bytes) => crypto.getRandomValues(new Uint8Array(bytes)),
    timer(ms, run) {
      const timer = setTimeout(run, ms);
      return () => { clearTimeout(timer); };
    },
    fetch: (input, init) => fetch(input, init),
    WebSocket,
    page,
    persist: () => navigator?.storage.persist() ?? Promise.resolve(false),
  };
}
