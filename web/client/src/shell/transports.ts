// The three ways to carry the stream. Each is one connection: it opens, brings events, and ends
// once.

import {
  answerOf, endedBy, endedByClose, endedByProblem, isObject, parse, type Ended,
} from '../core/ended.js';
import { fraction, hinted } from '../core/pause.js';
import type { Frame, Platform, Position, Transport } from '../types.js';
import { eventOf, has, isSequence, type StreamEvent } from '../wire/events.js';
import type { Poll } from '../wire.gen.js';
import { sseParser } from '../wire/sse.js';
import type { Rest } from './rest.js';

/** How long the first sign of life and then the session may take. */
const FIRST_SIGN_MS = 5_000;
/** How long it may take until the server is asked: the store, a token and a ticket come first. */
const ASKED_MS = 60_000;
const SESSION_MS = 12_000;
const POLL_SECONDS = 25;

export interface Setting {
  readonly rest: Rest;
  readonly platform: Platform;
  readonly device: string;
  readonly position: Position | undefined;
  /** Resolves when it is sure that the store still has what the position stands for. */
  check(): Promise<void>;
}

/** What a connection tells. Nothing comes after `ended`. */
export interface Sink {
  /** The session is open. */
  opened(): void;
  /** Any input, a heartbeat too. */
  heard(): void;
  event(event: StreamEvent, session: string, size: number): void;
  frame(frame: Frame): void;
  /** Resolves when the events are stored. */
  stored(): Promise<unknown>;
  ended(ended: Ended): void;
}

export interface Connection {
  /** Sends a frame. It is absent if the transport has no way back. */
  send?(frame: object): void;
  close(code: number): void;
}

/** What all transports share: the end, the times to open, and the events. */
interface Base {
  readonly abort: AbortController;
  readonly name: Transport;
  end(ended: Ended): void;
  /** The server is asked. */
  asked(): void;
  /** The server lives. Now it has `SESSION_MS` for the session. */
  said(): void;
  take(id: unknown, type: unknown, payload: unknown, size: number): void;
  /** The session that a poll resumed is open. */
  resumed(): void;
}

export function connect(name: Transport, setting: Setting, sink: Sink): Connection {
  const { platform, position, rest } = setting;
  const abort = new AbortController();
  let session = position?.session_id ?? '';
  let state: 'silent' | 'waiting' | 'open' | 'ended' = 'silent';
  let cancel = platform.timer(ASKED_MS, () => { end({ why: 'cut' }); });

  const end = (ended: Ended): void => {
    if (state === 'ended') return;
    state = 'ended';
    cancel();
    abort.abort();
    sink.ended(ended);
  };
  /** Nothing came. If another call is answered, it is this transport that does not work. */
  const blocked = async (): Promise<void> => {
    if (state !== 'silent') return;
    cancel();
    const answer = await rest.call('POST', '/tickets', undefined, abort);
    // It may have come meanwhile.
    if (state as string !== 'silent') return;
    const busy = answer.is === 'retry' && answer.after !== undefined;
    end(answer.is === 'ok' ? { why: 'blocked' } : busy ? endedBy(answer) : { why: 'cut' });
  };
  const open = (): void => {
    if (state === 'ended' || state === 'open') return;
    state = 'open';
    cancel();
    sink.opened();
  };
  const base: Base = {
    abort, name,
    end(ended) {
      if (ended.why === 'cut' && state === 'silent') void blocked();
      else end(ended);
    },
    asked() {
      if (state !== 'silent') return;
      cancel();
      cancel = platform.timer(FIRST_SIGN_MS, () => { void blocked(); });
    },
    said() {
      if (state === 'ended') return;
      sink.heard();
      if (state !== 'silent') return;
      state = 'waiting';
      cancel();
      cancel = platform.timer(SESSION_MS, () => { end({ why: 'cut' }); });
    },
    take(id, type, payload, size) {
      base.said();
      const event = eventOf(id, type, payload);
      if (!event) {
        end({ why: 'broken' });
        return;
      }
      if (event.type === 'session') {
        session = event.payload.session_id;
        open();
      }
      if (state === 'open') sink.event(event, session, size);
    },
    resumed: open,
  };
  const run = { websocket, sse, longpoll }[name];
  let part: Part = {};
  setting.check().then(() => {
    if (state !== 'ended') part = run(setting, sink, base);
  }, () => { end({ why: 'cut' }); });
  return {
    ...name === 'websocket' && { send: (frame: object) => part.send?.(frame) },
    close(code) {
      part.close?.(code);
      end({ why: 'cut' });
    },
  };
}

interface Part {
  send?: (frame: object) => void;
  close?: (code: number) => void;
}

function query(setting: Setting, more: Record<string, string>): URLSearchParams {
  const { device, position } = setting;
  return new URLSearchParams({
    device_id: device, ...more,
    ...position && {
      session_id: position.session_id, after_event_id: String(position.event_id),
    },
  });
}

function websocket(setting: Setting, sink: Sink, base: Base): Part {
  const { platform, rest } = setting;
  const Socket = platform.WebSocket;
  const part: Part = {};
  const frame = (dir: 'in' | 'out', text: string): void => {
    sink.frame({ dir, transport: 'websocket', text });
  };
  const open = async (): Promise<void> => {
    const answer = Socket && await rest.call('POST', '/tickets', undefined, base.abort);
    if (base.abort.signal.aborted) return;
    const ticket = answer?.is === 'ok' && isObject(answer.body) && answer.body['ticket'];
    if (!Socket || typeof ticket !== 'string') {
      const waits = !answer || answer.is === 'retry' && answer.status === 503;
      base.end(waits ? { why: 'blocked' } : endedBy(answer));
      return;
    }
    const url = `${rest.url.replace(/^http/, 'ws')}/ws?${query(setting, { ticket }).toString()}`;
    base.asked();
    const socket = new Socket(url, ['tidemark.v1']);
    socket.onmessage = ({ data }: MessageEvent<unknown>) => {
      const text = String(data);
      frame('in', text);
      base.said();
      const value = parse(text);
      if (!isObject(value)) base.end({ why: 'broken' });
      // Answers of frames, and refusals of them, say only that the server lives.
      else if (!['hello', 'pong', 'problem', 'sync_response', 'send_message_ack']
        .includes(String(value['type']))) {
        base.take(value['id'], value['type'], value['payload'], text.length);
      }
    };
    socket.onclose = ({ code, reason }) => { base.end(endedByClose(code, reason)); };
    // A close follows.
    socket.onerror = () => undefined;
    part.send = (value) => {
      if (socket.readyState !== Socket.OPEN) return;
      const text = JSON.stringify(value);
      frame('out', text);
      socket.send(text);
    };
    part.close = (code) => { socket.close(code); };
    base.abort.signal.addEventListener('abort', () => { socket.close(); });
  };
  void open().catch(() => { base.end({ why: 'blocked' }); });
  return part;
}

/** Gets a stream or a poll. Ends the connection if there is no answer, or another one. */
async function get(
  setting: Setting, base: Base, path: string, more: Record<string, string>,
): Promise<Response | undefined> {
  const { platform, rest } = setting;
  const head = await rest.headers();
  if (base.abort.signal.aborted) return undefined;
  if (typeof head === 'string') {
    base.end({ why: head === 'none' ? 'no-token' : 'signed-out' });
    return undefined;
  }
  base.asked();
  const response = await platform.fetch(rest.url + path, {
    headers: { ...head, ...more }, signal: base.abort.signal, cache: 'no-store',
    redirect: 'error',
  });
  if (response.status === 200) return response;
  const answer = answerOf(response.status, response.headers.get('Retry-After'),
    await response.text(), fraction(platform.random(2)));
  if (answer.status === 401) rest.refuse();
  base.end(endedBy(answer));
  return undefined;
}

function sse(setting: Setting, sink: Sink, base: Base): Part {
  const { position, device } = setting;
  const open = async (): Promise<void> => {
    const path = `/events?${new URLSearchParams({ device_id: device }).toString()}`;
    const response = await get(setting, base, path, position
      ? { 'Last-Event-ID': `${position.session_id}.${position.event_id}` } : {});
    if (!response) return;
    if (!response.headers.get('Content-Type')?.startsWith('text/event-stream')) {
      base.end({ why: 'cut' });
      return;
    }
    const parser = sseParser();
    const decoder = new TextDecoder();
    const reader = response.body?.getReader();
    let retry: number | undefined;
    for (;;) {
      const { done, value } = await reader?.read() ?? { done: true, value: undefined };
      if (done) break;
      base.said();
      for (const part of parser(decoder.decode(value, { stream: true }))) {
        if (part.retry !== undefined) retry = hinted(part.retry);
        if (part.data === undefined) continue;
        sink.frame({ dir: 'in', transport: 'sse', text: `${part.type ?? ''} ${part.data}` });
        const payload = parse(part.data);
        if (part.type === 'problem' && isObject(payload)) {
          base.end(endedByProblem(String(payload['code']), retry, String(payload['detail'])));
          return;
        }
        // The time that comes before the session is for those that lose it by accident.
        if (part.type === 'session') retry = undefined;
        const id = part.id === undefined ? undefined
          : Number(part.id.slice(part.id.lastIndexOf('.') + 1));
        base.take(id, part.type, payload, part.data.length);
      }
    }
    base.end(retry === undefined ? { why: 'cut' } : { why: 'wait', ms: retry });
  };
  void open().catch(() => { base.end({ why: 'cut' }); });
  return {};
}

function longpoll(setting: Setting, sink: Sink, base: Base): Part {
  const { platform } = setting;
  let { position } = setting;
  const open = async (): Promise<void> => {
    for (let wait = 0; !base.abort.signal.aborted; wait = POLL_SECONDS) {
      const cancel = platform.timer((wait + 10) * 1000, () => { base.end({ why: 'silent' }); });
      const path = query({ ...setting, position }, { wait_seconds: String(wait) }).toString();
      try {
        const response = await get(setting, base, `/poll?${path}`, {});
        if (!response) return;
        const text = await response.text();
        sink.frame({ dir: 'in', transport: 'longpoll', text });
        const poll = parse(text);
        if (!has('$poll', poll)) {
          base.end({ why: 'cut' });
          return;
        }
        const { session_id, events, has_more: more } = poll as Poll;
        base.said();
        if (position) base.resumed();
        let last = position?.event_id ?? 0;
        for (const event of events) {
          const { id, type, payload } =
            event as Partial<Record<'id' | 'type' | 'payload', unknown>>;
          base.take(id, type, payload, text.length / events.length);
          if (isSequence(id)) last = id;
        }
        // A poll that resumes is not told that it has caught up.
        if (position && !more) base.take(undefined, 'caught_up', {}, 0);
        position = { session_id, event_id: last };
        cancel();
        // The next poll confirms these events.
        await sink.stored();
        const seconds = Number(response.headers.get('Retry-After'));
        if (seconds > 0) {
          base.end({ why: 'wait', ms: hinted((seconds + fraction(platform.random(2))) * 1000) });
        }
      } finally {
        cancel();
      }
    }
  };
  void open().catch(() => { base.end({ why: 'cut' }); });
  return {};
}
