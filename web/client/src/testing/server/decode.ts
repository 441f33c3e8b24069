// Reads the bodies and frames of requests as the real server does.

import type { Draft, Kind } from './data.js';
import { invalid, invalidSequence, Refusal } from './refusal.js';

export type Fields = Readonly<Record<string, unknown>>;

const maxSequence = Number.MAX_SAFE_INTEGER;
const maxBody = 400 << 10;

/** Returns the fields of a JSON object. */
export function body(text: string): Fields {
  if (text.length > maxBody) throw new Refusal('TOO_LARGE', 'the body is too large');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refusal('INVALID', 'the body is malformed');
  }
  return fields(value, 'the body');
}

export function fields(value: unknown, name: string): Fields {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new Refusal('INVALID', `${name} must be an object`);
  }
  return value as Fields;
}

export function validId(id: string): boolean {
  return /^(\.{0,2}[A-Za-z0-9_:-]|\.{3})[A-Za-z0-9_.:-]*$/.test(id) && id.length <= 128 &&
    !id.startsWith('erased:');
}

export function checkId(field: string, id: string): string {
  if (!validId(id)) throw invalid(field, 'must be an id');
  return id;
}

export function text(f: Fields, field: string): string | undefined {
  const value = f[field] ?? undefined;
  if (value === undefined) return undefined;
  if (typeof value !== 'string') throw invalid(field, 'must be a string');
  if (/\p{Surrogate}/u.test(value)) throw invalid(field, 'holds half of a surrogate');
  return value;
}

export function id(f: Fields, field: string): string | undefined {
  const value = text(f, field);
  return value === undefined ? undefined : checkId(field, value);
}

export function flag(f: Fields, field: string): boolean | undefined {
  const value = f[field] ?? undefined;
  if (value === undefined || typeof value === 'boolean') return value;
  throw invalid(field, 'must be true or false');
}

export function ids(f: Fields, field: string): string[] | undefined {
  return list(f, field)?.map((one) => {
    if (typeof one !== 'string') throw invalid(field, 'must be a string');
    return checkId(field, one);
  });
}

/** Returns the chats of a look. There may be none. */
export function look(f: Fields): string[] {
  const chats = ids(f, 'chat_ids');
  if (chats === undefined) throw invalid('chat_ids', 'is missing');
  return chats;
}

export function list(f: Fields, field: string): unknown[] | undefined {
  const value = f[field] ?? undefined;
  if (value === undefined) return undefined;
  if (!Array.isArray(value)) throw invalid(field, 'must be an array');
  return value as unknown[];
}

export function object(f: Fields, field: string, most: number): Fields | undefined {
  const value = f[field] ?? undefined;
  if (value === undefined) return undefined;
  if (typeof value !== 'object' || Array.isArray(value)) throw invalid(field, 'must be an object');
  if (bytes(JSON.stringify(value)) > most) throw tooLarge(field);
  return value as Fields;
}

export function sequence(f: Fields, field: string, least: number): number | undefined {
  const value = f[field] ?? undefined;
  if (value === undefined) return undefined;
  if (typeof value !== 'number' || !Number.isInteger(value)) {
    throw invalid(field, 'must be an integer');
  }
  if (value < least || value > maxSequence) throw invalidSequence(field, 'is out of range');
  return value;
}

export function bytes(s: string): number {
  return new TextEncoder().encode(s).length;
}

function tooLarge(field: string): Refusal {
  return new Refusal('TOO_LARGE', `${field} is too large`, field);
}

/** Decodes a message. Without `chat`, the fields must name one. */
export function draft(f: Fields, chat?: string): Draft {
  const to = chat ?? id(f, 'chat_id');
  if (to === undefined) throw invalid('chat_id', 'is missing');
  const key = id(f, 'client_message_id');
  const content = text(f, 'content') ?? '';
  const contentType = text(f, 'content_type') ?? 'text/plain';
  const attachments = (list(f, 'attachments') ?? []).map((a, i) => {
    const one = fields(a, `attachments[${String(i)}]`);
    if ('s3_ref' in one) throw invalid('attachments', 'has the reserved name s3_ref');
    return one;
  });
  const metadata = object(f, 'metadata', 4096) ?? null;
  const kind = text(f, 'kind') ?? 'message';
  if (!isKind(kind)) {
    throw invalid('kind', 'must be message, system, edit, redact, react, pin or control');
  }
  const mentions = mentionsOf(f);
  const { relation, emoji, list: named } = relationOf(f);
  const seen = sequence(f, 'seen_sequence', 0) ?? null;
  const until = text(f, 'send_by');
  const sendBy = until === undefined ? null : Date.parse(until);
  if (Number.isNaN(sendBy)) throw invalid('send_by', 'must be a time');
  if (contentType === '') throw invalid('content_type', 'is empty');
  if (key === undefined) throw invalid('client_message_id', 'is missing');
  if (bytes(content) > 65_536) throw tooLarge('content');
  const isEmpty = content === '' && attachments.length === 0;
  const saysNothing = kind === 'redact' || kind === 'react' || kind === 'pin';
  if (isEmpty && !saysNothing) throw invalid('content', 'is empty');
  if (content.includes('\0')) throw invalid('content', 'holds the character U+0000');
  if (contentType.length > 128) throw tooLarge('content_type');
  if (!/^[ -~]*$/.test(contentType)) throw invalid('content_type', 'is no media type');
  const relates = kind === 'edit' || saysNothing;
  if (relates !== (relation !== null)) throw invalid('relation', 'does not fit the kind');
  if (named !== null) checkList(named, kind);
  const hasEmoji = kind === 'react' ? isEmoji(emoji) : emoji === '';
  if (!hasEmoji) throw invalid('relation.emoji', 'does not fit the kind');
  const says = content !== '' ? 'content' : attachments.length > 0 ? 'attachments'
    : metadata !== null ? 'metadata' : mentions !== null ? 'mentions' : '';
  if (saysNothing && says !== '') throw invalid(says, 'does not belong to this kind');
  if (attachments.length > 10) throw invalid('attachments', 'are too many');
  if (bytes(JSON.stringify(attachments)) > 8192) throw tooLarge('attachments');
  return {
    chat: to, key, content, contentType, kind, relation, list: named, emoji, mentions, attachments,
    metadata, seen, sendBy,
  };
}

function isKind(kind: string): kind is Kind {
  return ['message', 'system', 'edit', 'redact', 'react', 'pin', 'control'].includes(kind);
}

function relationOf(f: Fields): Pick<Draft, 'relation' | 'emoji' | 'list'> {
  if ((f['relation'] ?? undefined) === undefined) return { relation: null, emoji: '', list: null };
  const named = fields(f['relation'], 'relation');
  const n = sequence(named, 'sequence', 1);
  const emoji = text(named, 'emoji') ?? '';
  const all = named['sequences'] ?? null;
  if (all === null) {
    if (n === undefined) throw invalid('relation.sequence', 'is missing');
    return { relation: n, emoji, list: null };
  }
  if (!Array.isArray(all)) throw invalid('relation.sequences', 'must be an array');
  const list = all.map((one: unknown, i) =>
    sequence({ [`relation.sequences[${i}]`]: one }, `relation.sequences[${i}]`, 1) ?? 0);
  if (n !== undefined) throw invalid('relation.sequences', 'is a second way to name messages');
  return { relation: list[0] ?? 0, emoji, list };
}

function checkList(list: readonly number[], kind: string): void {
  if (kind !== 'redact') throw invalid('relation.sequences', 'does not belong to the kind');
  if (list.length < 1 || list.length > 100) throw invalid('relation.sequences', 'are too many');
  const at = list.findIndex((n, i) => n <= (list[i - 1] ?? 0));
  if (at >= 0) throw invalid(`relation.sequences[${at}]`, 'must be above the one before');
}

function isEmoji(emoji: string): boolean {
  return /^[^\p{White_Space}\p{Cc}]+$/u.test(emoji) && bytes(emoji) <= 64
    && /[^\p{Cf}\p{Mn}\p{Me}\p{Default_Ignorable_Code_Point}\u2800]/u.test(emoji);
}

function mentionsOf(f: Fields): Draft['mentions'] {
  if ((f['mentions'] ?? undefined) === undefined) return null;
  const named = fields(f['mentions'], 'mentions');
  const all = flag(named, 'all') ?? false;
  const users = ids(named, 'user_ids') ?? [];
  if (users.length > 20) throw invalid('mentions.user_ids', 'are too many');
  if (!all && users.length === 0) return null;
  return { all, user_ids: [...new Set(users)].sort() };
}

/** An acknowledgement; 0 leaves a watermark as it is. */
export interface AckItem {
  readonly chat: string;
  readonly acked: number;
  readonly read: number;
  readonly refused?: Refusal;
}

export function state(f: Fields, chat: string): AckItem {
  const acked = sequence(f, 'last_acked_sequence', 1) ?? 0;
  const read = sequence(f, 'last_read_sequence', 1) ?? 0;
  if (acked === 0 && read === 0) throw new Refusal('INVALID', 'name a sequence');
  return { chat, acked, read };
}

/** Decodes a list of acknowledgements. A wrong one fails alone. */
export function acks(f: Fields): { items: AckItem[]; incarnation: string | undefined } {
  const incarnation = id(f, 'incarnation');
  const chats = list(f, 'chats');
  if (chats === undefined) throw invalid('chats', 'is missing');
  const items = chats.map((one, i) => ackItem(one, `chats[${String(i)}]`));
  return { items, incarnation };
}

/** Decodes the payload of `ack` and `read`: one chat, or a list of chats. */
export function ackFrame(f: Fields): { items: AckItem[]; incarnation: string | undefined } {
  if ('chats' in f) return acks(f);
  return { items: [ackItem(f, 'payload')], incarnation: undefined };
}

function ackItem(value: unknown, name: string): AckItem {
  const f = fields(value, name);
  const chat = text(f, 'chat_id') ?? '';
  if (chat === '') throw invalid(`${name}.chat_id`, 'is missing');
  try {
    checkId('chat_id', chat);
    return state(f, chat);
  } catch (error) {
    if (error instanceof Refusal) return { chat, acked: 0, read: 0, refused: error };
    throw error;
  }
}

export interface SyncCall {
  readonly cursors: readonly {
    readonly chat: string; readonly acked: number; readonly incarnation: string | undefined;
  }[];
  readonly session: string | undefined;
  readonly limit: number;
  readonly statuses: boolean;
}

export function sync(f: Fields): SyncCall {
  const cursors = (list(f, 'chats') ?? []).map((one, i) => {
    const name = `chats[${String(i)}]`;
    const c = fields(one, name);
    const chat = id(c, 'chat_id');
    const acked = sequence(c, 'last_acked_sequence', 0);
    const incarnation = id(c, 'incarnation');
    if (chat === undefined) throw invalid(`${name}.chat_id`, 'is missing');
    if (acked === undefined) throw invalid(`${name}.last_acked_sequence`, 'is missing');
    return { chat, acked, incarnation };
  });
  const limit = f['limit'] ?? 50;
  if (typeof limit !== 'number' || !Number.isInteger(limit) || limit < 1) {
    throw invalid('limit', 'must be an integer of at least 1');
  }
  return {
    cursors, limit: Math.min(limit, 1000), session: text(f, 'session_id'),
    statuses: flag(f, 'status_updates') ?? false,
  };
}

// ---- Queries ------------------------------------------------------------------------------------

export function limitOf(query: URLSearchParams): number {
  const s = query.get('limit') ?? '';
  if (s === '') return 50;
  if (!/^\d+$/.test(s) || Number(s) === 0) throw invalid('limit', 'must be an integer');
  return Math.min(Number(s), 1000);
}

/** Returns an integer of the query, or undefined. `code` is for one that is out of range. */
export function integer(
  query: URLSearchParams, field: string, least: number, code: string,
): number | undefined {
  const s = query.get(field);
  if (s === null) return undefined;
  if (!/^-?\d+$/.test(s)) throw invalid(field, 'must be an integer');
  const n = Number(s);
  if (n < least || n > maxSequence) throw new Refusal(code, `${field} is out of range`);
  return n;
}

/** Returns a flag of the query, which is false if it is not there. */
export function queryFlag(query: URLSearchParams, field: string): boolean {
  const s = query.get(field) ?? '';
  if (!['', 'true', 'false'].includes(s)) throw invalid(field, 'must be true or false');
  return s === 'true';
}

export interface StreamQuery {
  readonly device: string | undefined;
  readonly session: string | undefined;
  readonly after: number;
  readonly statuses: boolean;
}

export function stream(query: URLSearchParams): StreamQuery {
  const device = query.get('device_id') ?? '';
  if (device !== '') checkId('device_id', device);
  const after = query.get('after_event_id') ?? '';
  if (after !== '' && (!/^\d+$/.test(after) || Number(after) > maxSequence)) {
    throw invalid('after_event_id', 'must be the id of an event');
  }
  const statuses = query.get('status_updates') ?? '';
  if (!['', 'true', 'false'].includes(statuses)) {
    throw invalid('status_updates', 'must be true or false');
  }
  const session = query.get('session_id') ?? '';
  return {
    device: device === '' ? undefined : device, session: session === '' ? undefined : session,
    after: Number(after), statuses: statuses !== 'false',
  };
}

/** Splits an SSE position at the last dot. A wrong one names a session that never exists. */
export function position(s: string): { session: string; after: number } {
  const dot = s.lastIndexOf('.');
  const digits = s.slice(dot + 1);
  if (dot <= 0 || !/^\d+$/.test(digits)) return { session: '-', after: 0 };
  return { session: s.slice(0, dot), after: Number(digits) };
}

// ---- Page tokens --------------------------------------------------------------------------------

export function encodeToken(kind: string, position: string): string {
  return Buffer.from(`${kind}|${position}`).toString('base64url');
}

export function decodeToken(kind: string, query: URLSearchParams): string {
  const token = query.get('cursor') ?? '';
  if (token === '') return '';
  const raw = Buffer.from(token, 'base64url').toString();
  const bar = raw.indexOf('|');
  const position = raw.slice(bar + 1);
  if (bar < 0 || raw.slice(0, bar) !== kind || position === '') {
    throw invalid('cursor', 'does not belong to this list');
  }
  return position;
}
