// The errors that the client throws, besides the problems of the server.

/** What the client throws. `code` tells the kinds apart, also between copies of the library. */
export class TidemarkError extends Error {
  readonly code: string;

  constructor(code: string, detail: string) {
    super(detail);
    this.name = 'TidemarkError';
    this.code = code;
  }
}

// The calls of `make` are marked as pure, so that a bundle has only the errors that it throws.
const make = (code: string) => (detail: string) => new TidemarkError(code, detail);

/**
 * The user is signed out, and the client stops trying. `getToken` throws it, and a store whose data
 * another tab has removed.
 */
export const signedOut = /* @__PURE__ */ make('SIGNED_OUT');
/** The client is not started, or was stopped. */
export const stopped = /* @__PURE__ */ make('STOPPED');
/** The term of a commit is not the latest: another tab leads. */
export const fenced = /* @__PURE__ */ make('FENCED');
/** The stored data are gone or belong to another user. */
export const storeLost = /* @__PURE__ */ make('STORE_LOST');
/** The browser gives no storage now. The client continues in memory, and tries again later. */
export const storeUnavailable = /* @__PURE__ */ make('STORE_UNAVAILABLE');
/** There is no space for a write. */
export const storeFull = /* @__PURE__ */ make('STORE_FULL');
/** Newer code has written data that this code can't read. Reload the page. */
export const storeOutdated = /* @__PURE__ */ make('STORE_OUTDATED');
/** There are sends that the server has not confirmed. */
export const unsent = (): TidemarkError =>
  new TidemarkError('UNSENT', 'Some messages are not confirmed yet.');
/** A draft is larger than the server takes. */
export const tooLarge = /* @__PURE__ */ make('TOO_LARGE');
/** `Options.url` is malformed, or a draft has no content, or something that the server refuses. */
export const invalid = /* @__PURE__ */ make('INVALID');

/** Returns the code of a `TidemarkError` or `Problem`, else undefined. */
export function codeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}
