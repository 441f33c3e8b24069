import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Icon } from './Icon';

interface Props {
  title: string;
  close: () => void;
  children: ComponentChildren;
}

/** A panel beside the chat, or over it where there is no room. */
export function Panel({ title, close, children }: Props) {
  const button = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    button.current?.focus({ preventScroll: true });
    return () => {
      if (before instanceof HTMLElement) before.focus({ preventScroll: true });
    };
  }, []);
  return (
    <aside class="panel" aria-label={title}>
      <div class="bar">
        <h2>{title}</h2>
        <button class="button square" ref={button} aria-label="Close" onClick={close}
          data-testid="close-panel"><Icon name="close" /></button>
      </div>
      <div class="panel-body" tabIndex={0} role="region" aria-label={title}>{children}</div>
    </aside>
  );
}
