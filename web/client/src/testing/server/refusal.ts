// How the fake server refuses.

import type { Problem, ProblemDetail } from '../../wire.gen.js';

const statuses = new Map([
  ['INVALID', 400], ['UNAUTHENTICATED', 401], ['NOT_A_MEMBER', 403], ['DENIED', 403],
  ['NOT_FOUND', 404], ['METHOD_NOT_ALLOWED', 405], ['CONFLICT', 409], ['EXPIRED', 409],
  ['REPLACED', 409], ['SESSION_GONE', 410], ['TOO_LARGE', 413], ['UNSUPPORTED_MEDIA_TYPE', 415],
  ['INVALID_SEQUENCE', 422], ['RATE_LIMITED', 429], ['INTERNAL', 500], ['UNAVAILABLE', 503],
]);

/** Why a request is refused. `retryAfter` is in seconds. */
export class Refusal extends Error {
  readonly code: string;
  readonly param: string | null;
  readonly retryAfter: number;

  constructor(code: string, detail: string, param: string | null = null, retryAfter = 0) {
    super(detail);
    this.code = code;
    this.param = param;
    this.retryAfter = retryAfter;
  }

  get status(): number {
    return statuses.get(this.code) ?? 500;
  }

  detail(): ProblemDetail {
    return { code: this.code, detail: this.message, param: this.param };
  }

  problem(requestId: string): Problem {
    return {
      type: 'about:blank', title: this.code, status: this.status, ...this.detail(),
      request_id: requestId,
    };
  }
}

export function invalid(param: string, detail: string): Refusal {
  return new Refusal('INVALID', `${param} ${detail}`, param);
}

export function invalidSequence(param: string, detail: string): Refusal {
  return new Refusal('INVALID_SEQUENCE', `${param} ${detail}`, param);
}

/** Returns the refusal that was thrown. Other errors are bugs of the fake, and go on. */
export function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  throw error;
}
