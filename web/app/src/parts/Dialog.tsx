import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

interface Props {
  title: string;
  close: () => void;
  children: ComponentChildren;
}

/** A dialog over the page. The browser keeps the focus in it, and gives it back. */
export function Dialog({ title, close, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog class="dialog" ref={dialog} aria-labelledby="dialog-title" onClose={close}
      onKeyDown={(event) => event.stopPropagation()}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}
