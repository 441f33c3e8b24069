// Who uses this tab. It is all that the sign-in needs.

/** A name works with `serve --dev` only. Every other server needs an access token. */
export type Who = { readonly name: string } | { readonly token: string };

// sessionStorage belongs to one tab, so two tabs can have two users. Tokens are kept in it, and
// sent in headers, never in a URL.
const WHO = 'tidemark.who';
// localStorage belongs to all tabs.
const OUT = 'tidemark.out ';

/** What is remembered in a tab, and the last sign-out of the user that this tab knows of. */
interface Saved { readonly who: Who; readonly user: string; readonly out: string | null }

export function remember(who: Who, user: string): void {
  const saved: Saved = { who, user, out: localStorage.getItem(OUT + user) };
  sessionStorage.setItem(WHO, JSON.stringify(saved));
}

/** Lets the tabs that show another page now forget the user, too, when they come back. */
export function signedOutOf(user: string): void {
  localStorage.setItem(OUT + user, String(Date.now()));
}

/** Returns who was signed in to this tab before a reload. */
export function remembered(): Who | undefined {
  const text = sessionStorage.getItem(WHO);
  if (text === null) return undefined;
  const { who, user, out } = JSON.parse(text) as Saved;
  if (localStorage.getItem(OUT + user) === out) return who;
  forget();
  return undefined;
}

/** Removes all that this page keeps of a user in the tab. */
export function forget(): void {
  for (const key of Object.keys(sessionStorage)) {
    if (key.startsWith('tidemark.')) sessionStorage.removeItem(key);
  }
}

/** Returns whether a name is enough. If the server cannot be reached, the answer is true. */
export async function takesNames(): Promise<boolean> {
  try {
    const headers = { Authorization: 'Bearer dev:visitor' };
    const answer = await fetch('/api/v1/chats?limit=1', { headers, cache: 'no-store' });
    return answer.status !== 401;
  } catch {
    return true;
  }
}
