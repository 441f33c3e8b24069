// A change that an operator asked for, and what came of it.

import { useRef, useState } from 'preact/hooks';
import { Refusal } from './api';
import { outletProblem } from './words';

/** What is under way, and what the last change came to. */
export interface Doing {
  readonly busy: boolean;
  readonly problem: string;
  readonly done: string;
  /** Runs a change, unless one is under way. It returns what to say. */
  run(change: () => Promise<string>): void;
}

export function useDoing(): Doing {
  const [state, setState] = useState({ busy: false, problem: '', done: '' });
  const busy = useRef(false);
  return {
    ...state,
    run: (change) => {
      if (busy.current) return;
      busy.current = true;
      setState({ busy: true, problem: '', done: '' });
      change().then(
        (done) => setState({ busy: false, problem: '', done }),
        (error: unknown) => {
          const why = error instanceof Refusal ? error : new Refusal(0, '', '');
          setState({ busy: false, problem: outletProblem(why), done: '' });
        },
      ).finally(() => { busy.current = false; });
    },
  };
}
