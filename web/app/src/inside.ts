// What a signed-in user needs. It is a file of its own: the sign-in does not wait for it.

import { codeOf } from '@tidemark/client';
import { drafts, setDraft } from './drafts';
import { announce, renewPush } from './notify';
import { resend } from './sending';
import type { Session } from './session';
import { signedOutOf } from './who';
import { problemWords } from './words';

export { Workspace } from './parts/Workspace';
export { begin, type Session } from './session';

/** Runs the client of a session until the result is called. */
export function follow(session: Session, leave: (why: string) => void): () => void {
  const { client, user } = session;
  const end = new AbortController();
  announce(session, end.signal);
  // After CONFLICT the message may be deleted, so its text must not come back.
  client.on('refused', ({ chat_id: chat, content = '', problem }) => {
    if (problem.code !== 'CONFLICT' && !drafts.get()[chat]) setDraft(chat, content);
  }, { signal: end.signal });
  const changed = () => {
    const { phase, problem } = client.state.get();
    if (phase === 'signed-out') {
      signedOutOf(user);
      leave('');
    }
    const code = codeOf(problem);
    if (phase === 'refused' && (code === 'UNAUTHENTICATED' || code === 'SIGNED_OUT')) {
      leave('Sign in again: your access token is not valid any more.');
    }
  };
  const unfollow = client.state.subscribe(changed);
  client.start().then(() => {
    resend(client);
    renewPush(session);
  }, (error: unknown) => leave(problemWords(error)));
  return () => {
    unfollow();
    end.abort();
    void client.stop();
  };
}
