// What is wrong with the connection or the store, and what happens next. Nothing if all is well.

import { codeOf, type State } from '@tidemark/client';
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Switch } from '../network';
import type { Session } from '../session';
import { useView } from '../view';
import { plural, problemWords } from '../words';

// A connection that comes within this time needs no banner.
const PATIENCE_MS = 1_500;

export function Banner({ session: { client, network } }: { session: Session }) {
  const state = useView(client.state);
  const power = useView(network.power);
  const unsent = useView(client.unsent);
  const trying = power === 'on' && state.phase === 'connecting';
  const late = useLate(trying, state.problem !== undefined);
  const seconds = useSeconds(trying ? state.problem?.retryAt : powerEnd(power));
  const waiting = unsent > 0 ? ` ${plural(unsent, 'message')} not sent yet.` : '';

  const [kind, words] = sayWhat(state, power, seconds, late);
  if (kind === undefined) return null;
  const action = kind === 'connecting' && seconds !== undefined &&
    <button class="button small" onClick={() => client.retryNow()}>Try now</button>;
  return (
    <section class="banner" data-kind={kind} aria-label="Connection" data-testid="banner">
      <p role="status">{words}{kind === 'outdated' ? '' : waiting}</p>
      {action}
      {kind === 'outdated' &&
        <button class="button small" onClick={() => location.reload()}>Reload</button>}
      {kind === 'offline' && power === 'off' &&
        <button class="button small" onClick={() => network.turn('on')}>Go online</button>}
    </section>
  );
}

/** Says that the server has lost messages, until the user has read it. */
export function Lost({ session: { lost } }: { session: Session }) {
  const count = useView(lost);
  if (count === 0) return null;
  return (
    <section class="banner" aria-label="Lost messages" data-testid="restored">
      <p role="status">The server went back to an earlier state of its data.
        {' '}{plural(count, 'message')} {count === 1 ? 'is' : 'are'} lost.</p>
      <button class="button small" onClick={() => lost.set(0)}>Close</button>
    </section>
  );
}

type Said = [kind?: string, words?: ComponentChildren];

function sayWhat(state: State, power: Switch, seconds: number | undefined, late: boolean): Said {
  const { phase, problem, durable } = state;
  const soon = seconds === undefined ? '' : ` Trying again in ${seconds} s.`;
  if (phase === 'outdated') return ['outdated', 'A newer version of this page is available.'];
  if (power === 'off') return ['offline', 'You are offline. Nothing is received or acknowledged.'];
  if (power !== 'on') {
    return ['offline', `The network of this tab is off for ${seconds ?? 0} s.`];
  }
  if (phase === 'refused') {
    return ['refused', `The server does not let you in. ${problemWords(problem)}`];
  }
  if (phase === 'connecting' && problem) {
    const busy = codeOf(problem) !== undefined && problem.code === 'RATE_LIMITED';
    return ['connecting', (busy ? problemWords(problem) : 'The connection is lost.') + soon];
  }
  if (phase === 'connecting' && late) return ['connecting', 'Waiting for the server …'];
  if ((phase === 'live' || phase === 'catching-up') && !durable) {
    return ['volatile', 'Messages are not kept in this browser: there is no storage for them.'];
  }
  return [];
}

function powerEnd(power: Switch): number | undefined {
  return typeof power === 'number' ? power : undefined;
}

/** Returns the seconds until a time, counted down. */
function useSeconds(until: number | undefined): number | undefined {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (until === undefined) return undefined;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 250);
    return () => clearInterval(timer);
  }, [until]);
  return until === undefined ? undefined : Math.max(0, Math.ceil((until - now) / 1_000));
}

/** Returns true from when a condition has held for a while, or a reason has come, until it ends. */
function useLate(condition: boolean, reason: boolean): boolean {
  const [late, setLate] = useState(false);
  useEffect(() => {
    if (!condition) setLate(false);
    else if (reason) setLate(true);
    const timer = setTimeout(() => setLate(condition), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [condition, reason]);
  return condition && late;
}
