// The page of an operator who has not entered a key.

import { useEffect, useRef, useState } from 'preact/hooks';

interface Props {
  enter: (key: string) => void;
  /** Why the last key gave no figures. */
  problem: string;
  checking: boolean;
}

export function KeyForm({ enter, problem, checking }: Props) {
  const [missing, setMissing] = useState('');
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);

  const submit = (event: Event) => {
    event.preventDefault();
    if (checking) return;
    const key = field.current?.value.trim() ?? '';
    // A header can have no other characters, and a key has none.
    const bad = key === '' ? 'Paste an API key first.'
      : /^[\x21-\x7e]+$/.test(key) ? '' : 'This is no API key: it has characters that no key has.';
    setMissing(bad);
    if (bad === '') enter(key);
  };

  return (
    <main class="welcome">
      <form class="welcome-card" autocomplete="off" onSubmit={submit} aria-busy={checking}>
        <img src="/icon.svg" alt="" width="52" height="52" />
        <h1>Tidemark console</h1>
        <p class="soft">What all nodes do, and where a user or a chat stands.</p>
        <label for="key">API key</label>
        <input id="key" ref={field} data-testid="key" type="password" autocomplete="off"
          spellcheck={false} placeholder="tmk_…" aria-describedby="key-hint" readOnly={checking} />
        <p class="hint" id="key-hint">It needs the scope <code>stats</code>, and <code>admin</code>
          for outlets. This page keeps it in memory only: a reload forgets it.</p>
        <p class="problem" role="alert" data-testid="key-problem">{missing || problem}</p>
        <button class="button primary wide" type="submit" data-testid="open"
          aria-disabled={checking}>
          {checking ? 'Asking the server …' : 'Open the console'}</button>
        <details class="how">
          <summary>How do I get a key?</summary>
          <p class="hint">On the server's machine, make one:</p>
          <pre tabIndex={0}>tidemark api-key --name console --scope stats</pre>
          <p class="hint">It prints the key, and a line for the file that the server reads
            (<code>--api-keys-file</code>).</p>
        </details>
      </form>
    </main>
  );
}
