// The credentials of the fake server: tokens, tickets and one API key.

import type { VirtualClock } from '../clock.js';
import type { Dice } from '../random.js';
import { validId } from './decode.js';
import { invalid, Refusal } from './refusal.js';

/** Who calls. `expires` is 0 if the credentials do not end. */
export interface Identity {
  readonly user: string;
  readonly backend: boolean;
  readonly expires: number;
  readonly ticket?: string;
}

interface Ticket {
  readonly user: string;
  readonly expires: number;
  redeemed: boolean;
  session: string | undefined;
  connections: number;
  ends: number;
}

const ticketLife = 30_000;

export class Auth {
  readonly apiKey = 'tmk_test';
  readonly #clock: VirtualClock;
  readonly #dice: Dice;
  readonly #resumeMs: number;
  readonly #tickets = new Map<string, Ticket>();
  /** Tokens that were made before this count as wrong. */
  #validFrom = 0;
  #made = 0;

  constructor(clock: VirtualClock, dice: Dice, resumeMs: number) {
    this.#clock = clock;
    this.#dice = dice;
    this.#resumeMs = resumeMs;
  }

  /** Returns a token for a user: a JWT whose signature is the number of the token. */
  token(user: string, seconds: number): { token: string; expires: number } {
    const iat = Math.floor(this.#clock.now() / 1000);
    const part = (o: object): string => Buffer.from(JSON.stringify(o)).toString('base64url');
    const expires = (iat + seconds) * 1000;
    const claims = part({ sub: user, iat, exp: iat + seconds });
    return { token: `${part({ alg: 'none' })}.${claims}.${String(++this.#made)}`, expires };
  }

  /** Makes all tokens and tickets until now wrong. */
  revoke(): void {
    this.#validFrom = this.#made + 1;
    this.#tickets.clear();
  }

  forgetTickets(): void {
    this.#tickets.clear();
  }

  /** Returns the caller that the headers name. `user` is '' for a backend without a user. */
  header(headers: ReadonlyMap<string, string>): Identity {
    const [scheme, token] = (headers.get('authorization') ?? '').split(' ', 2);
    if (scheme?.toLowerCase() !== 'bearer' || token === undefined) {
      throw new Refusal('UNAUTHENTICATED', 'credentials are missing');
    }
    const named = headers.get('x-user-id');
    if (named !== undefined && !validId(named)) throw invalid('X-User-ID', 'must be one user id');
    if (token.startsWith('tmk_')) {
      if (token !== this.apiKey) throw new Refusal('UNAUTHENTICATED', 'the API key is unknown');
      return { user: named ?? '', backend: true, expires: 0 };
    }
    return this.#own(named, this.#bearer(token));
  }

  /** Returns the caller of a stream, by the header or by a ticket, which is then used up. */
  stream(
    headers: ReadonlyMap<string, string>, query: URLSearchParams, session: string | undefined,
  ): Identity {
    return this.#byTicket(headers, query, (t) => {
      if (!t.redeemed) {
        t.redeemed = true;
      } else if (session === undefined || t.session !== session) {
        throw wrongTicket();
      }
    });
  }

  /** Returns the caller of `POST /acks`, by the header or by a ticket, which stays valid. */
  beacon(headers: ReadonlyMap<string, string>, query: URLSearchParams): Identity {
    return this.#byTicket(headers, query, () => undefined);
  }

  issue(who: Identity): { ticket: string; expires: number } {
    const ticket = this.#dice.text(26).toUpperCase();
    const ends = Math.min(this.#clock.now() + ticketLife,
      who.expires === 0 ? Number.POSITIVE_INFINITY : who.expires);
    this.#tickets.set(ticket, {
      user: who.user, expires: who.expires, redeemed: false, session: undefined, connections: 0,
      ends,
    });
    return { ticket, expires: ends };
  }

  /** A connection of this caller holds the session. */
  bind(who: Identity, session: string): void {
    const t = this.#tickets.get(who.ticket ?? '');
    if (t === undefined) return;
    if (t.session !== session) {
      t.session = session;
      t.connections = 0;
    }
    t.connections++;
  }

  /** The connection has ended. */
  leave(who: Identity, session: string): void {
    const t = this.#tickets.get(who.ticket ?? '');
    if (t?.session !== session || t.connections === 0) return;
    if (--t.connections === 0) t.ends = this.#clock.now() + this.#resumeMs;
  }

  #byTicket(
    headers: ReadonlyMap<string, string>, query: URLSearchParams, accept: (t: Ticket) => void,
  ): Identity {
    const name = query.get('ticket') ?? '';
    if (name === '' || headers.has('authorization')) {
      const who = this.header(headers);
      if (who.user === '') throw invalid('X-User-ID', 'is missing');
      return who;
    }
    if (name.startsWith('dev:')) return this.#bearer(name);
    const t = this.#tickets.get(name);
    const now = this.#clock.now();
    if (t === undefined || (t.connections === 0 && now >= t.ends) ||
      (t.expires !== 0 && now >= t.expires)) throw wrongTicket();
    accept(t);
    return this.#own(headers.get('x-user-id'), {
      user: t.user, backend: false, expires: t.expires, ticket: name,
    });
  }

  #own(named: string | undefined, who: Identity): Identity {
    if (named !== undefined && named !== who.user) {
      throw new Refusal('DENIED', 'X-User-ID names another user', 'X-User-ID');
    }
    return who;
  }

  #bearer(token: string): Identity {
    if (token.startsWith('dev:')) {
      const user = token.slice(4);
      if (!validId(user)) throw new Refusal('UNAUTHENTICATED', 'the user id after dev: is wrong');
      return { user, backend: false, expires: 0 };
    }
    const [, claims, number] = token.split('.');
    let named: unknown;
    try {
      named = JSON.parse(Buffer.from(claims ?? '', 'base64url').toString());
    } catch {
      named = undefined;
    }
    if (!isClaims(named) || Number(number) < this.#validFrom) {
      throw new Refusal('UNAUTHENTICATED', 'the token is wrong');
    }
    if (named.exp * 1000 <= this.#clock.now()) {
      throw new Refusal('UNAUTHENTICATED', 'the token has expired');
    }
    return { user: named.sub, backend: false, expires: named.exp * 1000 };
  }
}

function wrongTicket(): Refusal {
  return new Refusal('UNAUTHENTICATED', 'the ticket is unknown, used or expired');
}

function isClaims(value: unknown): value is { sub: string; exp: number } {
  return typeof value === 'object' && value !== null && 'sub' in value && 'exp' in value &&
    typeof value.sub === 'string' && typeof value.exp === 'number';
}
