// Under the hood: frames, watermarks, the pending row, and ways to disturb the connection.

import type { DeliveryStatus } from '@tidemark/client';
import { useState } from 'preact/hooks';
import { Panel } from '../parts/Panel';
import type { Session } from '../session';
import { useStatus } from '../status';
import { useView } from '../view';
import { plural, stateWords, transportName } from '../words';
import { Frames } from './Frames';
import { pendingRows, statusOf, writeAs } from './inspect';

const KILL_MS = 10_000;
const MANY = 20;

interface Props {
  session: Session;
  chat: string | undefined;
  close: () => void;
}

export function Hood({ session, chat, close }: Props) {
  return (
    <Panel title="Under the hood" close={close}>
      <Connection session={session} />
      {chat !== undefined && <Watermarks session={session} chat={chat} />}
      <Pending session={session} chat={chat} />
      <Frames session={session} />
    </Panel>
  );
}

function Connection({ session: { client, network } }: { session: Session }) {
  const state = useView(client.state);
  const power = useView(network.power);
  const blocked = useView(network.blocksWebSocket);
  return (
    <section class="hood-part">
      <div class="chat-line">
        <h3>Connection</h3>
        <p class="hint" role="status">{stateWords(state, power)}</p>
      </div>
      <ol class="ladder" aria-label="Transports, the best first">
        {(['websocket', 'sse', 'longpoll'] as const).map((transport) => (
          <li key={transport} data-transport={transport}
            aria-current={power === 'on' && state.transport === transport ? 'step' : undefined}
            data-blocked={transport === 'websocket' && blocked}>{transportName(transport)}</li>
        ))}
      </ol>
      {!state.leader && <p class="hint">Another tab of this browser holds the connection.</p>}
      <div class="hood-buttons">
        <button class="button" data-testid="cut" onClick={() => network.cut()}>
          Cut the connection</button>
        <button class="button" data-testid="block" aria-pressed={blocked}
          onClick={() => network.blockWebSocket(!blocked)}>Block WebSocket</button>
        <button class="button" data-testid="kill" disabled={power !== 'on'}
          onClick={() => network.turn('off', KILL_MS)}>Kill this tab's network for 10 s</button>
      </div>
    </section>
  );
}

function Watermarks({ session, chat }: { session: Session; chat: string }) {
  const row = useView(session.client.chat(chat).row);
  const [status] = useStatus(session, chat, () => statusOf(session, chat), 'watermarks');
  const head = Math.max(1, row?.chat.head_sequence ?? 0, status?.delivery_summary.sequence ?? 0);
  return (
    <section class="hood-part">
      <h3>Two watermarks per member</h3>
      <p class="hint">Acknowledged up to the light mark, read up to the dark one. All ticks follow
        from these two.</p>
      <ul class="marks">
        {status?.members.map(({ user_id: user, last_acked_sequence: acked,
          last_read_sequence: read }) => (
          <li key={user} data-testid="marks" data-user={user}>
            <span class="chat-line"><strong><bdi>{user}</bdi></strong>
              <span class="number">acknowledged {acked} · read {read} · of {head}</span></span>
            <svg class="bar-chart" viewBox="0 0 100 6" preserveAspectRatio="none" role="img"
              aria-label={`${user}: acknowledged up to ${acked}, read up to ${read}, of ${head}`}>
              <rect class="bar-all" width="100" height="6" />
              <rect class="bar-acked" width={100 * Math.min(1, acked / head)} height="6" />
              <rect class="bar-read" width={100 * Math.min(1, read / head)} height="6" />
            </svg>
          </li>
        ))}
      </ul>
      {session.dev && status && <Writers status={status} user={session.user} />}
    </section>
  );
}

/** Lets others write, so that one visitor alone sees a chat at work. */
function Writers({ status, user }: { status: DeliveryStatus; user: string }) {
  const [busy, setBusy] = useState(false);
  const other = status.members.find(({ user_id: id }) => id !== user)?.user_id;
  if (other === undefined) return null;
  const write = () => {
    setBusy(true);
    void writeAs(other, status.chat_id, MANY).catch(() => undefined).then(() => setBusy(false));
  };
  return (
    <button class="button" data-testid="many" disabled={busy} onClick={write}>
      Let {other} write {plural(MANY, 'message')}</button>
  );
}

function Pending({ session, chat }: { session: Session; chat: string | undefined }) {
  const [list] = useStatus(session, undefined, () => pendingRows(session), 'pending');
  const rows = list?.pending ?? [];
  const nameOf = (id: string) => id === chat ? 'This chat' : id;
  return (
    <section class="hood-part" data-testid="pending">
      <h3>Pending rows</h3>
      <p class="hint">Go offline, and let someone write. After ten seconds the chat gets one row.
        It disappears when you have acknowledged everything.</p>
      {list && rows.length === 0 && <p class="pending-none">None: you have everything.</p>}
      {rows.map(({ chat_id: id, first_undelivered_sequence: from }) => (
        <p class="pending-row" key={id} data-testid="pending-row">
          <strong>{nameOf(id)}</strong>
          <span>{from === null ? 'large chat: its row stays' : `from message ${from} on`}</span>
        </p>
      ))}
    </section>
  );
}
