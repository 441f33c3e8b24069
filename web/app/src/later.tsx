// Parts of the page that most users do not need at first. Each is a separate file, loaded when the
// page shows it.

import type { ComponentChild, ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';

/** Returns a component that shows `before`, or nothing, until its part is loaded. */
export function later<P extends object>(
  load: () => Promise<ComponentType<P>>, before: ComponentChild = null,
): ComponentType<P> {
  let Part: ComponentType<P> | undefined;
  return function Later(props: P) {
    const [, show] = useState({});
    useEffect(() => {
      if (Part) return;
      load().then((part) => {
        Part = part;
        show({});
      }, () => {
        // Without a network, the service worker has the file. Without a service worker, the next
        // attempt loads it.
      });
    }, []);
    return Part ? <Part {...props} /> : before;
  };
}
