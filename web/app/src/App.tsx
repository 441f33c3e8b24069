// Who is signed in, and what they see.

import { useEffect, useState } from 'preact/hooks';
import { clearDrafts } from './drafts';
import type { Session } from './inside';
import { SignIn } from './parts/SignIn';
import { reset } from './route';
import { forget, remember, remembered, type Who } from './who';

type Inside = typeof import('./inside');

type Step =
  | { readonly at: 'signed-out'; readonly problem: string }
  | { readonly at: 'loading' }
  | { readonly at: 'signed-in'; readonly inside: Inside; readonly session: Session };

export function App() {
  const [step, setStep] = useState<Step>(
    remembered() ? { at: 'loading' } : { at: 'signed-out', problem: '' });

  const leave = (problem: string) => {
    forget();
    clearDrafts();
    reset();
    setStep({ at: 'signed-out', problem });
  };

  const enter = async (who: Who) => {
    try {
      const inside = await load();
      const session = inside.begin(who);
      remember(who, session.user);
      setStep({ at: 'signed-in', inside, session });
    } catch (error) {
      setStep({ at: 'signed-out', problem: error instanceof Error ? error.message : '' });
    }
  };

  useEffect(() => {
    const who = remembered();
    if (who) void enter(who);
  }, []);

  useEffect(() => step.at === 'signed-in' ? step.inside.follow(step.session, leave) : undefined,
    [step]);

  if (step.at === 'loading') return null;
  if (step.at === 'signed-out') {
    return <SignIn enter={(who) => void enter(who)} ready={prepare} problem={step.problem} />;
  }
  const { inside: { Workspace }, session } = step;
  return <Workspace key={session.user} session={session} />;
}

async function load(): Promise<Inside> {
  try {
    return await import('./inside');
  } catch {
    throw new Error('The page did not load completely. Check your network and reload it.');
  }
}

/** Loads the rest while the user types their name. */
function prepare(): void {
  load().catch(() => {
    // It is said when they sign in.
  });
}
