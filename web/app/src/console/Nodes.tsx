// The nodes, each with its own figures.

import type { NodeStats } from '../../../client/src/wire.gen';
import { msOf } from './Overview';
import { atMost, count, duration } from './words';

export function Nodes({ nodes }: { nodes: readonly NodeStats[] }) {
  return (
    <section aria-labelledby="nodes-title">
      <h2 id="nodes-title">Nodes <span class="soft number">{nodes.length}</span></h2>
      <div class="scroll card" role="group" aria-label="Nodes" tabIndex={0}>
        <table>
          <thead><tr>
            <th scope="col">Node</th><th scope="col">State</th><th scope="col">Version</th>
            <th scope="col" class="right">Runs for</th>
            <th scope="col" class="right">WebSocket</th><th scope="col" class="right">SSE</th>
            <th scope="col" class="right">Long-poll</th><th scope="col" class="right">Sessions</th>
            <th scope="col" class="right">Sends</th><th scope="col" class="right">Deliveries</th>
            <th scope="col" class="right">Commit p99</th>
            <th scope="col" class="right">Retry queue</th>
          </tr></thead>
          <tbody>{nodes.map((node) => <Row key={node.node_id} node={node} />)}</tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ node }: { node: NodeStats }) {
  const { node_id: id, status, detail, version, uptime_seconds: uptime, totals } = node;
  if (!totals) {
    return (
      <tr data-testid="node" data-node={id} data-status={status}>
        <th scope="row">{id}</th>
        <td><span class="pill" data-kind="bad">does not answer</span></td>
        <td colSpan={10} class="soft">{detail ?? 'It gave no reason.'} It stays here until its lease
          ends, about ten seconds after a crash.</td>
      </tr>
    );
  }
  const numbers = [
    uptime === null ? '–' : duration(1_000 * uptime),
    count(totals.connections.websocket), count(totals.connections.sse),
    count(totals.connections.longpoll), count(totals.sessions), count(totals.sends_total),
    count(totals.deliveries_total), atMost(msOf(totals.commits.p99_microseconds)),
    count(totals.retry_queue),
  ];
  return (
    <tr data-testid="node" data-node={id} data-status={status}>
      <th scope="row">{id}</th>
      <td><span class="pill" data-kind="good">answers</span></td>
      <td>{version}</td>
      {numbers.map((text, i) => <td class="number right" key={i}>{text}</td>)}
    </tr>
  );
}
