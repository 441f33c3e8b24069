// A network that can be cut: forwards TCP to the server and remembers what the browser said.

import net from 'node:net';

export async function startCutter(target) {
  const { hostname, port } = new URL(target);
  const pairs = new Set();
  let said = '';
  let down = false;
  const server = net.createServer((client) => {
    if (down) {
      client.on('error', () => {});
      client.resetAndDestroy();
      return;
    }
    const upstream = net.connect(Number(port), hostname);
    const pair = [client, upstream];
    pairs.add(pair);
    for (const [from, to] of [[client, upstream], [upstream, client]]) {
      from.on('error', () => {}); // A reset is what a cut is.
      from.on('close', () => {
        to.destroy();
        pairs.delete(pair);
      });
    }
    client.on('data', (chunk) => { said += chunk.toString('latin1'); });
    client.pipe(upstream);
    upstream.pipe(client);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    /** Every Last-Event-ID that the browser sent. */
    lastEventIDs: () => Array.from(said.matchAll(/^last-event-id: *(\S+)/gim), (m) => m[1]),
    cut() {
      for (const [client] of pairs) client.resetAndDestroy();
    },
    /** Lets the present connections pass nothing any more, and the browser not know. */
    swallow() {
      for (const [client, upstream] of pairs) {
        upstream.removeAllListeners('close');
        client.unpipe(upstream);
        client.resume();
        upstream.unpipe(client);
        upstream.destroy();
      }
    },
    /** Cuts, and lets nobody through until up(). */
    down() {
      down = true;
      this.cut();
    },
    up() {
      down = false;
    },
    async close() {
      for (const [client] of pairs) client.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
