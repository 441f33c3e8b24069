// The client and its presence in one script: test/browser/presence.test.mjs.

export * from '../src/index.js';
export * from '../src/presence/index.js';
