// Search in the messages that are loaded.

import { useEffect, useRef } from 'preact/hooks';
import { Icon } from './Icon';

interface Props {
  words: string;
  setWords: (words: string | undefined) => void;
  /** How many messages have the words, and which of them is shown. */
  hits: number;
  hit: number;
  setHit: (hit: number) => void;
  /** All messages of the chat are loaded. */
  complete: boolean;
}

export function Search({ words, setWords, hits, hit, setHit, complete }: Props) {
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const step = (by: number) => {
    if (hits > 0) setHit((hit + by + hits) % hits);
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    step(event.shiftKey ? 1 : -1);
  };
  const count = hits === 0 ? 'Nothing found' : `${hit + 1} of ${hits}`;
  return (
    <search class="search">
      <label class="filter">
        <Icon name="search" />
        <span class="unseen">Search in this chat</span>
        <input ref={field} type="search" value={words} placeholder="Search in this chat"
          data-testid="search-text" autocomplete="off" onKeyDown={keys}
          onInput={(event) => setWords(event.currentTarget.value)} />
      </label>
      <span class="soft count" role="status" data-testid="search-count">
        {words.trim() === '' ? '' : count}
        {words.trim() !== '' && !complete && <span class="hint"> in the loaded messages</span>}
      </span>
      <button class="button square" aria-label="Older match" disabled={hits < 2}
        onClick={() => step(-1)}><Icon name="previous" /></button>
      <button class="button square" aria-label="Newer match" disabled={hits < 2}
        onClick={() => step(1)}><Icon name="next" /></button>
      <button class="button square" aria-label="Close the search"
        onClick={() => setWords(undefined)}><Icon name="close" /></button>
    </search>
  );
}
