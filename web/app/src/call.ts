// Calls of the API that the client library does not make.

import type { Session } from './session';

/** Makes a call. `refused` makes an error of the status of an answer that is none. */
export async function call(
  { bearer, network }: Session, path: string, init: RequestInit,
  refused: (status: number) => Error = () => new Error(),
): Promise<Response> {
  const answer = await network.fetch(`/api/v1/${path}`, {
    ...init,
    headers: { 'Authorization': `Bearer ${bearer}`, 'Content-Type': 'application/json' },
  });
  if (!answer.ok) throw refused(answer.status);
  return answer;
}
