// All outlets, and a form for a new one.

import { useEffect, useState } from 'preact/hooks';
import type { Outlet } from '../../../client/src/wire.gen';
import type { Api } from './api';
import { useDoing } from './doing';
import { Head, Section } from './Found';
import { usePaged } from './paged';
import { hrefOf } from './route';
import { Table } from './UserPage';
import { count, outletProblem } from './words';

const REFRESH_MS = 3_000;

export function OutletsPage({ api }: { api: Api }) {
  const list = usePaged((_, signal) => api.outlets(signal));
  const outlets = list.pages[0]?.outlets ?? [];
  useEffect(() => {
    const timer = setInterval(() => list.reload(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <>
      <Head kind="" id="Outlets" at={list.at} busy={list.busy} reload={() => list.reload()} />
      <Section id="all-outlets" title="All outlets" says={outletProblem} list={list}
        hint="An outlet gets what happens in all chats. Figures are those of the node that answers."
        empty={outlets.length > 0 ? undefined : 'None yet.'}>
        <Table label="Outlets"
          head={['Outlet', 'State', 'Leads to', 'Gets', 'Accepted', 'Refused']}>
          {outlets.map((outlet) => (
            <tr key={outlet.outlet_id} data-testid="outlet" data-outlet={outlet.outlet_id}>
              <th scope="row"><a href={hrefOf({ at: 'outlet', id: outlet.outlet_id })}>
                <bdi>{outlet.outlet_id}</bdi></a></th>
              <td><State outlet={outlet} /></td>
              <td><bdi>{outlet.url}</bdi></td>
              <td>{gets(outlet)}</td>
              <td class="number">{count(outlet.this_node.accepted_total)}</td>
              <td class="number">{count(outlet.this_node.refused_total)}</td>
            </tr>
          ))}
        </Table>
      </Section>
      {list.at !== undefined && <Create api={api} created={() => list.reload()} />}
    </>
  );
}

/** Returns what an outlet gets. */
export function gets({ events }: Outlet): string {
  return events.join(', ') || 'all, without receipts and missed messages';
}

/** The state of an outlet as a pill. */
export function State({ outlet }: { outlet: Outlet }) {
  const failing = outlet.this_node.first_failure_at !== null;
  const kind = outlet.state === 'disabled' || failing ? 'bad'
    : outlet.state === 'active' ? 'good' : 'notice';
  return (
    <span class="pill" data-testid="outlet-state" data-kind={kind}>
      {outlet.state}{failing && ', failing'}</span>
  );
}

function Create({ api, created }: { api: Api; created: () => void }) {
  const [url, setUrl] = useState('');
  const [id, setId] = useState('');
  const [begin, setBegin] = useState<'now' | 'start'>('now');
  const [secret, setSecret] = useState('');
  const doing = useDoing();
  const submit = (event: Event) => {
    event.preventDefault();
    doing.run(async () => {
      const made = await api.createOutlet({
        type: 'webhook', url, begin, ...(id === '' ? {} : { outlet_id: id }),
      });
      setSecret(made.secret ?? '');
      setUrl('');
      setId('');
      created();
      return made.secret === null ? `The outlet ${made.outlet_id} existed already.`
        : `The outlet ${made.outlet_id} is being created. It is active after about 15 seconds.`;
    });
  };
  return (
    <section aria-labelledby="create-title" data-testid="create-outlet">
      <h2 id="create-title">New webhook</h2>
      <form class="card outlet-form" onSubmit={submit} autocomplete="off">
        <label for="outlet-url">URL</label>
        <input id="outlet-url" type="url" required maxLength={2048} value={url}
          placeholder="https://example.com/tidemark" data-testid="outlet-url"
          onInput={(event) => setUrl(event.currentTarget.value)} />
        <label for="outlet-id">Id <span class="soft">(optional)</span></label>
        <input id="outlet-id" value={id} maxLength={128} placeholder="crm" spellcheck={false}
          autocapitalize="none" data-testid="outlet-id"
          onInput={(event) => setId(event.currentTarget.value)} />
        <label class="only"><input type="checkbox" checked={begin === 'start'}
          data-testid="outlet-begin"
          onChange={(event) => setBegin(event.currentTarget.checked ? 'start' : 'now')} />
          {' '}First deliver everything that has happened</label>
        <button class="button primary" data-testid="outlet-create" disabled={doing.busy}>
          {doing.busy ? 'Asking the server …' : 'Create'}</button>
      </form>
      <Outcome problem={doing.problem} done={doing.done} secret={secret} />
    </section>
  );
}

interface OutcomeProps {
  problem: string;
  done: string;
  secret: string;
}

/** Says what came of a change, and shows a secret once. */
export function Outcome({ problem, done, secret }: OutcomeProps) {
  return (
    <>
      <p class="problem" role="alert" data-testid="outlet-problem">{problem}</p>
      <p role="status" data-testid="outlet-done">{done}</p>
      {secret !== '' && <p class="card empty" data-testid="secret-box">
        The secret that verifies deliveries, shown only here:{' '}
        <code data-testid="secret">{secret}</code></p>}
    </>
  );
}
