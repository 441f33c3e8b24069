// The blocks of code in documents, for the tests that compile and run them.

import { readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.join(import.meta.dirname, '../..');

function read(page) {
  return readFileSync(path.join(ROOT, page), 'utf8');
}

/** Returns the blocks of one language, in order. */
export function blocksOf(page, language) {
  const fence = new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, 'gms');
  const blocks = [...read(page).matchAll(fence)].map(([, code]) => code);
  if (blocks.length === 0) throw new Error(`${page} has no block of ${language}`);
  return blocks;
}

/** Returns the only block of a language that has a text. */
export function blockWith(page, language, text) {
  const found = blocksOf(page, language).filter((code) => code.includes(text));
  if (found.length !== 1) throw new Error(`${page} has ${found.length} blocks with ${text}`);
  return found[0];
}

/** Returns the blocks that a line with the name of their file precedes, by that name. */
export function filesOf(page) {
  const named = /^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$/gms;
  const files = new Map([...read(page).matchAll(named)].map(([, name, code]) => [name, code]));
  if (files.size === 0) throw new Error(`${page} names no files`);
  return files;
}
