// Parts of the page that few need at first. Each is a file of its own, loaded when it is shown.

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
        // Without a network the service worker has it. Where there is none, it is shown next time.
      });
    }, []);
    return Part ? <Part {...props} /> : null;
  };
}
