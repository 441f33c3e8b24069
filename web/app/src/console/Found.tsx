// What the pages of a user, of a chat and of outlets have in common.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Refusal } from './api';
import type { Paged } from './paged';
import { hrefOf } from './route';
import { timeOfDay } from './words';

interface HeadProps {
  /** What stands before the id. */
  kind: string;
  id: string;
  /** Where the link above leads, by default the overview. */
  up?: readonly [href: string, text: string];
  at: number | undefined;
  busy: boolean;
  reload: () => void;
  children?: ComponentChildren;
}

/** The head of a result. It gets the focus, so that a reader is told that there is a result. */
export function Head({ kind, id, up, at, busy, reload, children }: HeadProps) {
  const [href, text] = up ?? [hrefOf({ at: 'overview' }), 'Overview'];
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    title.current?.focus();
    document.title = `${id} · Tidemark console`;
    return () => { document.title = 'Tidemark console'; };
  }, []);
  return (
    <div class="found-head">
      <p><a href={href}>← {text}</a></p>
      <div class="found-title">
        <h1 ref={title} tabIndex={-1} data-testid="found"><span class="soft">
          {kind}</span> <bdi>{id}</bdi></h1>
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
  /** Says what a problem is. */
  says: (why: Refusal) => string;
  list: Paged<T>;
  /** Says that the list is empty. Undefined: it is not. */
  empty: string | undefined;
  children?: ComponentChildren;
}

/** A list that comes in pages, with its problems and a button for more. */
export function Section<T>({ id, title, hint, says, list, empty, children }: SectionProps<T>) {
  return (
    <section aria-labelledby={`${id}-title`} data-testid={id} aria-busy={list.busy}>
      <h2 id={`${id}-title`}>{title}</h2>
      <p class="hint">{hint}</p>
      {list.pages.length > 0 && (empty === undefined ? children
        : <p class="empty card" data-testid={`${id}-empty`}>{empty}</p>)}
      {list.pages.length === 0 && list.busy && <p class="empty card">Asking the server …</p>}
      {list.problem && <p class="problem" role="alert" data-testid={`${id}-problem`}>
        {says(list.problem)}</p>}
      {list.more && <button class="button more" data-testid={`${id}-more`} disabled={list.busy}
        onClick={() => list.next()}>{list.busy ? 'Loading …' : 'Load more'}</button>}
    </section>
  );
}
