// Parts of the page that most users do not need at first. Each is a separate file, loaded when the
// page shows it.

import type { ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';

/** Returns a component that shows nothing until its part is loaded. */
export function later<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
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
    return Part ? <Part {...props} /> : null;
  };
}
