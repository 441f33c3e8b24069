// What is asked once, and lists that come in pages.

import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { Refusal } from './api';

interface Pagination {
  readonly has_more: boolean;
  readonly next_cursor: string | null;
}

/** The pages of a list that have come. */
export interface Paged<T> {
  readonly pages: readonly T[];
  /** When the first page came. */
  readonly at: number | undefined;
  readonly busy: boolean;
  readonly more: boolean;
  readonly problem: Refusal | undefined;
  next(): void;
  reload(): void;
}

type Page = { readonly pagination?: Pagination };

const NOTHING = { pages: [], at: undefined, problem: undefined } as const;

/** Asks for the first page, and for further ones when `next` is called. */
export function usePaged<T extends object>(
  get: (cursor: string | null, signal: AbortSignal) => Promise<T & Page>,
): Paged<T> {
  const latest = useRef(get);
  latest.current = get;
  const [list, setList] = useState<Pick<Paged<T & Page>, 'pages' | 'at' | 'problem'>>(NOTHING);
  const [busy, setBusy] = useState(true);
  const call = useRef<AbortController>(undefined);

  const load = useCallback((before: readonly (T & Page)[]) => {
    call.current?.abort();
    const { signal } = call.current = new AbortController();
    setBusy(true);
    latest.current(before.at(-1)?.pagination?.next_cursor ?? null, signal).then((page) => {
      if (signal.aborted) return;
      setList(({ at }) => ({
        pages: [...before, page], at: before.length > 0 ? at : Date.now(), problem: undefined,
      }));
      setBusy(false);
    }, (error: unknown) => {
      if (signal.aborted) return;
      const problem = error instanceof Refusal ? error : new Refusal(0, '', String(error));
      setList((old) => ({ ...old, problem }));
      setBusy(false);
    });
  }, []);
  useEffect(() => {
    load([]);
    return () => call.current?.abort();
  }, []);

  return {
    ...list, busy,
    more: list.pages.at(-1)?.pagination?.has_more ?? false,
    next: () => load(list.pages),
    reload: () => load([]),
  };
}
