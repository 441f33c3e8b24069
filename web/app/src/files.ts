// Files of messages, as docs/attachments.md says.

import { codeOf, type Attachment, type ChatHandle } from '@tidemark/client';
import { call } from './call';
import type { Session } from './session';
import { problemWords } from './words';

const UNSENT = 'The files cannot be sent now. Try again.';
const REFUSED: Readonly<Record<number, string>> = {
  400: 'The server does not accept a file.',
  404: 'This server keeps no files.',
  413: 'A file is larger than 100 MiB.',
  429: 'You have sent too many files today.',
};

/**
 * The files that are uploaded: a send after a failed one uploads only the others. The server
 * removes a file that no message names after 24 hours.
 */
const kept = new WeakMap<File, Kept>();

interface Kept { readonly attachment: Attachment; readonly at: number }

const KEPT_MS = 23 * 3_600_000;

/** Uploads files and sends a message with them. Rejects with an Error with words for the user. */
export async function sendFiles(
  session: Session, chat: ChatHandle, text: string, files: readonly File[],
): Promise<void> {
  try {
    const attachments: Attachment[] = [];
    for (const file of files) attachments.push(await once(session, file));
    await chat.send({ content: text.trim() && text, attachments });
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Error(codeOf(error) ? problemWords(error) : UNSENT);
  }
}

async function once(session: Session, file: File): Promise<Attachment> {
  const found = kept.get(file);
  if (found && Date.now() - found.at < KEPT_MS) return found.attachment;
  const at = Date.now();
  const attachment = await upload(session, file);
  kept.set(file, { attachment, at });
  return attachment;
}

async function upload(session: Session, file: File): Promise<Attachment> {
  const { network } = session;
  if (file.size === 0) throw new Refused('A file is empty.');
  const type = file.type || 'application/octet-stream';
  const bytes = await file.arrayBuffer();
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
  const sha256 = Array.from(hash, (byte) => byte.toString(16).padStart(2, '0')).join('');
  const announced = await call(session, 'attachments', {
    method: 'POST',
    body: JSON.stringify({ name: file.name, type, size: file.size, sha256 }),
  }, refused);
  const { attachment_id: id, url, method, headers } = await announced.json() as Upload;
  const { ok, status } = await network.fetch(url, { method, headers, body: bytes });
  // The bytes are there already if an answer was lost.
  if (!ok && status !== 409 && status !== 412) throw refused(status);
  return { s3_ref: id, name: file.name, content_type: type, size: file.size };
}

interface Upload {
  readonly attachment_id: string;
  readonly url: string;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Returns the URL of a file of a message. It is valid for five minutes. */
export async function addressOf(
  session: Session, chat: string, sequence: number, id: string,
): Promise<string> {
  const at = new URLSearchParams({ chat_id: chat, sequence: String(sequence) }).toString();
  const file = await call(session, `attachments/${encodeURIComponent(id)}?${at}`, {}, refused);
  return (await file.json() as { url: string }).url;
}

/** Has words for the user. */
class Refused extends Error {}

function refused(status: number): Error {
  return new Refused(REFUSED[status] ?? UNSENT);
}
