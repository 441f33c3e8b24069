// What the pages of a user and of a chat have in common.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Paged } from './paged';
import { hrefOf } from './route';
import { searchProblem, timeOfDay } from './words';

interface HeadProps {
  kind: 'user' | 'chat';
  id: string;
  at: number | undefined;
  busy: boolean;
  reload: () => void;
  children?: ComponentChildren;
}

/** The head of a result. It gets the focus, so that a reader is told that there is a result. */
export function Head({ kind, id, at, busy, reload, children }: HeadProps) {
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    title.current?.focus();
    document.title = `${id} · Tidemark console`;
    return () => { document.title = 'Tidemark console'; };
  }, []);
  return (
    <div class="found-head">
      <p><a href={hrefOf({ at: 'overview' })}>← Overview</a></p>
      <div class="found-title">
        <h1 ref={title} tabIndex={-1} data-testid="found"><span class="soft">
          {kind === 'user' ? 'User' : 'Chat'}</span> <bdi>{id}</bdi></h1>
        {children}
        <span class="hint as-of">{at === undefined ? '' : `As of ${timeOfDay(at)}`}</span>
        <button class="button small" data-testid="refresh" disabled={busy} onClick={reload}>
          Refresh</button>
      </div>
    </div>
  );
}

interface SectionProps<T> {
  id: string;
  title: string;
  hint: string;
  /** What is looked up, for problems. */
  what: string;
  list: Paged<T>;
  /** Says that the list is empty. Undefined: it is not. */
  empty: string | undefined;
  children?: ComponentChildren;
}

/** A list that comes in pages, with its problems and a button for more. */
export function Section<T>({ id, title, hint, what, list, empty, children }: SectionProps<T>) {
  return (
    <section aria-labelledby={`${id}-title`} data-testid={id} aria-busy={list.busy}>
      <h2 id={`${id}-title`}>{title}</h2>
      <p class="hint">{hint}</p>
      {list.pages.length > 0 && (empty === undefined ? children
        : <p class="empty card" data-testid={`${id}-empty`}>{empty}</p>)}
      {list.pages.length === 0 && list.busy && <p class="empty card">Asking the server …</p>}
      {list.problem && <p class="problem" role="alert" data-testid={`${id}-problem`}>
        {searchProblem(list.problem, what)}</p>}
      {list.more && <button class="button more" data-testid={`${id}-more`} disabled={list.busy}
        onClick={() => list.next()}>{list.busy ? 'Loading …' : 'Load more'}</button>}
    </section>
  );
}
