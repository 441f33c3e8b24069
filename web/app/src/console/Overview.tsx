// What all nodes do.

import type { StatsTotals } from '../../../client/src/wire.gen';
import { useView } from '../view';
import { plural } from '../words';
import type { Feed } from './feed';
import { thinned, type Sample, type Values } from './history';
import { Nodes } from './Nodes';
import { Plot, type Line } from './Plot';
import { Slowest } from './Slowest';
import { atMost, count, figure, timeOfDay } from './words';

const TABLE_STEP_MS = 10_000;

interface Column {
  readonly id: string;
  readonly title: string;
  readonly lines: readonly Line[];
  readonly format: (value: number | null) => string;
  readonly unit?: string;
  readonly note: (totals: StatsTotals) => string;
}

const line = (name: string, key: keyof Values): Line => ({ name, value: (values) => values[key] });

const COLUMNS: readonly Column[] = [
  {
    id: 'sends', title: 'Sends', lines: [line('confirmed', 'sends')], format: figure, unit: '/s',
    note: (totals) => `${plural(totals.sends_total, 'message')} confirmed since the nodes started`,
  },
  {
    id: 'deliveries', title: 'Deliveries', lines: [line('handed to connections', 'deliveries')],
    format: figure, unit: '/s',
    note: (totals) => `${plural(totals.deliveries_total, 'event')} handed to connections`,
  },
  {
    id: 'acks', title: 'Acknowledgements', lines: [line('taken', 'acks')], format: figure,
    unit: '/s',
    note: (totals) =>
      `${count(totals.acks_total)} taken, ${count(totals.advances_moved_total)} watermarks raised`,
  },
  {
    id: 'commit', title: 'Commit p99', lines: [line('last 10 seconds', 'commitP99')],
    format: atMost,
    note: ({ commits }) => commits.count === 0
      ? 'No commits yet, or a storage that does not report them'
      : `${plural(commits.count, 'commit')}, p99 ${atMost(msOf(commits.p99_microseconds))} of all`,
  },
  {
    id: 'connections', title: 'Connections', format: figure, lines: [
      line('WebSocket', 'websocket'), line('SSE', 'sse'), line('long-poll', 'longpoll'),
    ],
    note: (totals) =>
      `${plural(totals.sessions, 'session')}, ${count(totals.sessions_connected)} connected`,
  },
  {
    id: 'pending', title: 'Pending rows', format: figure, unit: '/s', lines: [
      line('written', 'marksWritten'), line('cleared', 'marksCleared'),
    ],
    note: ({ pending_rows_written_total: written, pending_rows_cleared_total: cleared }) =>
      `${count(written)} created or lowered when users were away, ${count(cleared)} removed or ` +
      'shortened when they acknowledged. How many there are now is not counted.',
  },
  {
    id: 'retry', title: 'Retry queue', lines: [line('waiting', 'retryQueue')], format: figure,
    note: ({ retry_queue: length }) => length === 0 ? 'Empty, as it should be'
      : 'Above 0 for long: the storage or Redis fails',
  },
  {
    id: 'catchups', title: 'Catch-ups', format: figure, lines: [
      line('running', 'catchUps'), line('waiting', 'catchUpsWaiting'),
    ],
    note: () => 'Clients that come back and read what they missed',
  },
];

export function Overview({ feed }: { feed: Feed }) {
  const stats = useView(feed.stats);
  const samples = useView(feed.samples);
  const now = useView(feed.now);
  if (!stats) return null;
  const away = stats.nodes.filter(({ status }) => status !== 'ok');
  return (
    <>
      <h1 class="unseen">Overview</h1>
      {away.length > 0 && <p class="note-box" role="status" data-testid="away">
        <strong>{away.length} of {plural(stats.nodes.length, 'node')}
          {away.length === 1 ? ' does' : ' do'} not answer:
          {' '}{away.map(({ node_id: id }) => id).join(', ')}.</strong>
        {' '}The figures lack {away.length === 1 ? 'it' : 'them'}.</p>}
      <section aria-labelledby="figures-title">
        <h2 id="figures-title">All nodes</h2>
        <div class="plots">
          {COLUMNS.map(({ note, unit = '', ...column }) => (
            <Plot key={column.id} {...column} unit={unit} samples={samples} now={now}>
              {note(stats.totals)}</Plot>
          ))}
        </div>
        <Table samples={samples} />
      </section>
      <Nodes nodes={stats.nodes} />
      <Slowest sessions={stats.slowest_sessions} />
    </>
  );
}

/** The same figures for readers who see no plots. */
function Table({ samples }: { samples: readonly Sample[] }) {
  const columns = COLUMNS.flatMap(({ title, lines, format, unit = '' }) => lines.map((one) => ({
    title: lines.length > 1 ? `${title}: ${one.name}` : title, unit,
    text: (values: Values) => format(one.value(values)),
  })));
  return (
    <details class="as-table">
      <summary data-testid="as-table">The last five minutes as a table</summary>
      <div class="scroll" role="group" aria-label="Figures of five minutes" tabIndex={0}>
        <table>
          <thead><tr><th scope="col">Time</th>{columns.map(({ title, unit }) =>
            <th scope="col" class="right" key={title}>{title}{unit && ` ${unit}`}</th>)}
          </tr></thead>
          <tbody>{thinned(samples, TABLE_STEP_MS).map(({ at, values }) => (
            <tr key={at}><th scope="row" class="number">{timeOfDay(at)}</th>
              {columns.map(({ title, text }) =>
                <td class="number right" key={title}>{text(values)}</td>)}</tr>
          ))}</tbody>
        </table>
      </div>
    </details>
  );
}

export function msOf(microseconds: number | null): number | null {
  return microseconds === null ? null : microseconds / 1_000;
}
