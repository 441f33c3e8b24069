// Settings, and the way out.

import { codeOf } from '@tidemark/client';
import { useEffect, useRef, useState } from 'preact/hooks';
import { later } from '../later';
import { canNotify, notifies, setNotify } from '../notify';
import { pushes, pushKey, signOut, startPush, stopPush } from '../push';
import type { Session } from '../session';
import { setTheme, theme, type Theme } from '../theme';
import { useEvent } from '../view';
import { problemWords } from '../words';
import { Dialog } from './Dialog';
import { Icon } from './Icon';

const Visible = later(() => import('./Presence').then((all) => all.Visible));

const Receipts = later(() => import('./Presence').then((all) => all.Receipts));

const Blocked = later(() => import('./Presence').then((all) => all.Blocked));

const THEMES: readonly (readonly [Theme, string])[] = [
  ['system', 'System'], ['light', 'Light'], ['dark', 'Dark'],
];

const BLOCKED = 'Your browser blocks notifications of this page. Allow them in its settings.';

export function Menu({ session }: { session: Session }) {
  const { user } = session;
  const [open, setOpen] = useState(false);
  const [colours, setColours] = useState(theme);
  const [notify, setWanted] = useState(notifies);
  const [push, setPush] = useState(false);
  const [canPush, setCanPush] = useState(false);
  const [problem, setProblem] = useState('');
  const [asking, setAsking] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);

  useEvent(document, 'pointerdown', ({ target }) => {
    if (open && !box.current?.contains(target as Node)) setOpen(false);
  });
  const keys = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || !open) return;
    event.stopPropagation();
    setOpen(false);
    button.current?.focus();
  };
  useEffect(() => {
    setPush(notifies() && pushes(user));
    if (open) pushKey(session).then((key) => setCanPush(key !== undefined), () => undefined);
  }, [open]);
  // The browser asks for its permission only in a click.
  const change = async (step: () => Promise<unknown>) => {
    let said = '';
    try {
      await step();
    } catch {
      said = 'It does not work now. Try again later.';
    }
    setProblem(Notification.permission === 'denied' ? BLOCKED : said);
    setWanted(notifies());
    setPush(pushes(user));
  };
  const leave = () => {
    setOpen(false);
    signOut(session, 'refuse').catch((error: unknown) => {
      if (codeOf(error) === 'UNSENT') setAsking(true);
    });
  };

  return (
    <div class="menu" ref={box} onKeyDown={keys}>
      <button class="button square" ref={button} aria-label="Settings" title="Settings"
        aria-expanded={open} aria-controls="menu" onClick={() => setOpen(!open)}
        data-testid="menu"><Icon name="more" /></button>
      {open && <div class="menu-box" id="menu" role="group" aria-label="Settings">
        <fieldset class="segments">
          <legend>Colours</legend>
          {THEMES.map(([value, label]) => (
            <label key={value}>
              <input type="radio" name="theme" value={value} checked={colours === value}
                onChange={() => {
                  setTheme(value);
                  setColours(value);
                }} />
              <span>{label}</span>
            </label>
          ))}
        </fieldset>
        {canNotify() && <button class="switch wide" role="switch" aria-checked={notify}
          data-testid="notify" onClick={() => void change(async () => {
            if (notify) await stopPush(session);
            await setNotify(!notify);
          })}>
          Notifications<span class="knob" aria-hidden="true" />
        </button>}
        {(canPush || push) && <button class="switch wide" role="switch" aria-checked={push}
          data-testid="push" onClick={() => void change(async () => {
            if (push) await stopPush(session);
            else if (await setNotify(true)) await startPush(session);
          })}>
          Also when closed<span class="knob" aria-hidden="true" />
        </button>}
        {problem !== '' && <p class="problem" role="alert">{problem}</p>}
        <Visible session={session} />
        <Receipts session={session} />
        <Blocked session={session} />
        <button class="button wide" onClick={leave} data-testid="logout">Sign out</button>
        <p class="hint">Signing out removes your messages from this browser.</p>
      </div>}
      {asking && <Unsent session={session} close={() => setAsking(false)} />}
    </div>
  );
}

function Unsent({ session, close }: { session: Session; close: () => void }) {
  const [problem, setProblem] = useState('');
  const discard = () => {
    signOut(session, 'discard')
      .catch((error: unknown) => setProblem(problemWords(error)));
  };
  return (
    <Dialog title="Not everything is sent" close={close}>
      <p>Some of your messages were not sent. If you sign out now, they are lost.</p>
      <p class="problem" role="alert">{problem}</p>
      <div class="actions">
        <button class="button" onClick={close} data-testid="stay">Stay</button>
        <button class="button danger" onClick={discard} data-testid="discard-all">
          Discard and sign out</button>
      </div>
    </Dialog>
  );
}
