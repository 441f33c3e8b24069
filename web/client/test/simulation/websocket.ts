// A small WebSocket client over node:http, because Node 20 has none.

import { randomBytes } from 'node:crypto';
import { request } from 'node:http';
import type { Socket } from 'node:net';

export interface Wire {
  onmessage: (text: string) => void;
  onclose: (code: number) => void;
  send(text: string): void;
  close(code: number): void;
  /** Breaks the connection. */
  cut(): void;
}

/** Opens a WebSocket. Frames of the server are not fragmented. */
export function connect(url: string): Promise<Wire> {
  return new Promise((resolve, reject) => {
    const call = request(url.replace(/^ws/, 'http'), {
      headers: {
        connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13',
        'sec-websocket-key': randomBytes(16).toString('base64'),
        'sec-websocket-protocol': 'tidemark.v1',
      },
    });
    call.on('error', reject);
    call.on('response', (response) => {
      response.resume();
      reject(new Error(`no upgrade: ${String(response.statusCode)}`));
    });
    call.on('upgrade', (_, socket: Socket, head) => {
      resolve(overSocket(socket, head));
    });
    call.end();
  });
}

function overSocket(socket: Socket, head: Buffer): Wire {
  let closed = false;
  let waiting: string[] | undefined = [];
  let onmessage: ((text: string) => void) | undefined;
  const end = (code: number): void => {
    if (closed) return;
    closed = true;
    wire.onclose(code);
    socket.destroy();
  };
  const wire: Wire = {
    get onmessage() {
      return onmessage ?? (() => undefined);
    },
    set onmessage(listener) {
      onmessage = listener;
      const before = waiting ?? [];
      waiting = undefined;
      before.forEach(listener);
    },
    onclose: () => undefined,
    send: (text) => {
      socket.write(frame(1, Buffer.from(text)));
    },
    close: (code) => {
      const payload = Buffer.alloc(2);
      payload.writeUInt16BE(code);
      socket.write(frame(8, payload));
    },
    cut: () => {
      closed = true;
      socket.destroy();
    },
  };
  let buffer = Buffer.from(head);
  const read = (): void => {
    for (;;) {
      const next = parse(buffer);
      if (next === undefined) return;
      buffer = buffer.subarray(next.size);
      if (next.opcode === 9) socket.write(frame(10, next.payload));
      if (next.opcode === 8) {
        end(next.payload.length >= 2 ? next.payload.readUInt16BE(0) : 1005);
        return;
      }
      if (next.opcode !== 1) continue;
      const text = next.payload.toString();
      if (waiting === undefined) wire.onmessage(text);
      else waiting.push(text);
    }
  };
  socket.on('data', (data: Buffer) => {
    buffer = Buffer.concat([buffer, data]);
    read();
  });
  socket.on('error', () => {
    end(1006);
  });
  socket.on('close', () => {
    end(1006);
  });
  setImmediate(read);
  return wire;
}

function frame(opcode: number, payload: Buffer): Buffer {
  const long = payload.length > 125;
  if (payload.length > 0xffff) throw new Error('the frame is too long for this client');
  const head = Buffer.alloc(long ? 4 : 2);
  head[0] = 0x80 | opcode;
  head[1] = 0x80 | (long ? 126 : payload.length);
  if (long) head.writeUInt16BE(payload.length, 2);
  const mask = randomBytes(4);
  const masked = Buffer.from(payload.map((b, i) => b ^ (mask[i & 3] ?? 0)));
  return Buffer.concat([head, mask, masked]);
}

function parse(b: Buffer): { opcode: number; payload: Buffer; size: number } | undefined {
  if (b.length < 2) return undefined;
  const short = (b[1] ?? 0) & 0x7f;
  const from = short === 127 ? 10 : short === 126 ? 4 : 2;
  if (b.length < from) return undefined;
  const length = short === 127 ? Number(b.readBigUInt64BE(2)) : short === 126 ? b.readUInt16BE(2)
    : short;
  if (b.length < from + length) return undefined;
  return {
    opcode: (b[0] ?? 0) & 0x0f, payload: b.subarray(from, from + length), size: from + length,
  };
}
