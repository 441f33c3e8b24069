// The page of someone who is not signed in.

import { useEffect, useRef, useState } from 'preact/hooks';
import { takesNames, type Who } from '../who';
import { TickMark } from './Tick';

const NAME = '[A-Za-z0-9_.:\\-]{1,64}';

interface Props {
  enter: (who: Who) => void;
  /** The user can type now. */
  ready: () => void;
  /** Why the user has to sign in again. */
  problem: string;
}

export function SignIn({ enter, ready, problem }: Props) {
  const [byName, setByName] = useState<boolean>();
  const [missing, setMissing] = useState('');
  const field = useRef<HTMLInputElement>(null);

  useEffect(() => {
    void takesNames().then(setByName);
  }, []);
  useEffect(() => {
    if (byName === undefined) return;
    field.current?.focus();
    ready();
  }, [byName]);

  const submit = (event: Event) => {
    event.preventDefault();
    const text = field.current?.value.trim() ?? '';
    if (text === '') {
      setMissing(byName ? 'Choose a name first.' : 'Paste an access token first.');
      return;
    }
    setMissing('');
    if (field.current) field.current.value = '';
    enter(byName ? { name: text } : { token: text });
  };

  return (
    <main class="welcome">
      <form class="welcome-card" autocomplete="off" onSubmit={submit}>
        <img src="/icon.svg" alt="" width="52" height="52" />
        <h1>Tidemark</h1>
        <p class="soft">Is it stored? Has it reached them? Have they read it?</p>
        {byName === true && <>
          <label for="user">Your name</label>
          <input id="user" ref={field} data-testid="user" pattern={NAME} maxLength={64}
            autocapitalize="none" autocomplete="off" spellcheck={false} placeholder="alice"
            title="Letters, digits and _ . : -" />
        </>}
        {byName === false && <>
          <label for="token">Access token</label>
          <input id="token" ref={field} data-testid="token" type="password" autocomplete="off"
            spellcheck={false} placeholder="eyJ…" aria-describedby="token-hint" />
          <p class="hint" id="token-hint">It says who you are. On the server's machine,
            {' '}<code>tidemark token --user alice</code> prints one.</p>
        </>}
        <p class="problem" role="alert" data-testid="login-problem">{missing || problem}</p>
        <button class="button primary wide" type="submit" data-testid="login"
          disabled={byName === undefined}>Sign in</button>
        <p class="hint center">Open this page in two tabs, sign in as two people, and watch the
          ticks.</p>
        <Legend />
      </form>
    </main>
  );
}

export function Legend() {
  return (
    <ul class="legend" aria-label="What the ticks mean">
      {([['sent', 'stored'], ['delivered', 'delivered'], ['read', 'read']] as const)
        .map(([tick, words]) => (
          <li key={tick}>
            <span class="tick" data-tick={tick}><TickMark tick={tick} /></span> {words}
          </li>
        ))}
    </ul>
  );
}
