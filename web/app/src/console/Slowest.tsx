// The sessions whose clients acknowledge last.

import type { SlowSession } from '../../../client/src/wire.gen';
import { hrefOf } from './route';
import { count, duration } from './words';

export function Slowest({ sessions }: { sessions: readonly SlowSession[] }) {
  return (
    <section aria-labelledby="slowest-title">
      <h2 id="slowest-title">Slowest sessions</h2>
      <p class="hint">Their clients have left messages unacknowledged the longest, ten at most.</p>
      {sessions.length === 0
        ? <p class="empty card" data-testid="none-slow">None: all that was sent to sessions is
          acknowledged.</p>
        : <div class="scroll card" role="group" aria-label="Slowest sessions" tabIndex={0}>
          <table>
            <thead><tr>
              <th scope="col">User</th><th scope="col">Device</th><th scope="col">Node</th>
              <th scope="col">Session</th><th scope="col">Connection</th>
              <th scope="col" class="right">Waiting for</th>
              <th scope="col" class="right">Messages</th><th scope="col" class="right">Chats</th>
              <th scope="col" class="right">Chats not yet sent</th>
            </tr></thead>
            <tbody>{sessions.map((one) => (
              <tr key={one.session_id} data-testid="slow">
                <th scope="row"><a href={hrefOf({ at: 'user', id: one.user_id })}>
                  <bdi>{one.user_id}</bdi></a></th>
                <td>{one.device_id ?? <span class="soft">not named</span>}</td>
                <td>{one.node_id}</td>
                <td><code>{one.session_id}</code></td>
                <td>{one.connected ? 'connected' : <span class="soft">none</span>}</td>
                <td class="number right">{duration(1_000 * one.unacknowledged_seconds)}</td>
                <td class="number right">{count(one.unacknowledged_messages)}</td>
                <td class="number right">{count(one.unacknowledged_chats)}</td>
                <td class="number right">{count(one.unsent_chats)}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>}
    </section>
  );
}
