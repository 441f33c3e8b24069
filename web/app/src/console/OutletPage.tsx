// One outlet: where it stands, what it refused, what is parked, and what an operator can do.

import { useCallback, useState } from 'preact/hooks';
import type { OutletAttempt } from '../../../client/src/wire.gen';
import type { Api } from './api';
import { Fact } from './ChatPage';
import { useDoing } from './doing';
import { Head, Section } from './Found';
import { gets, Outcome, State } from './OutletsPage';
import { usePaged } from './paged';
import { go, hrefOf } from './route';
import { Table } from './UserPage';
import { count, dateTime, outletProblem } from './words';

const MOST_WAITING = 1_000;

export function OutletPage({ api, id }: { api: Api; id: string }) {
  const found = usePaged((_, signal) => api.outlet(id, signal));
  const failures = usePaged((_, signal) => api.failures(id, signal));
  const parked = usePaged((cursor, signal) => api.parked(id, cursor, signal));
  const doing = useDoing();
  const [secret, setSecret] = useState('');
  const [sure, setSure] = useState(false);
  const reload = useCallback(() => {
    for (const list of [found, failures, parked]) list.reload();
  }, [found, failures, parked]);
  const outlet = found.pages[0];
  const resting = outlet?.state === 'paused' || outlet?.state === 'disabled';
  const change = (what: () => Promise<string>) => doing.run(async () => {
    const said = await what();
    reload();
    return said;
  });
  const refused = failures.pages[0]?.failures ?? [];
  const aside = parked.pages.flatMap((page) => page.parked);
  return (
    <>
      <Head kind="Outlet" id={id} up={[hrefOf({ at: 'outlets' }), 'Outlets']} at={found.at}
        busy={found.busy} reload={reload}>
        {outlet && <State outlet={outlet} />}
      </Head>
      {found.problem && <p class="empty card" role="alert" data-testid="found-problem">
        {outletProblem(found.problem)}</p>}
      {outlet && <>
        <dl class="facts card" data-testid="facts">
          <Fact name="Leads to" value={outlet.url} />
          <Fact name="Gets" value={gets(outlet)} />
          <Fact name="Chats that wait for it" value={outlet.waiting_chats === MOST_WAITING
            ? '1,000 or more' : count(outlet.waiting_chats)} />
          <Fact name="Accepted by this node" value={count(outlet.this_node.accepted_total)} />
          <Fact name="Refused" value={count(outlet.this_node.refused_total)} />
          {outlet.this_node.first_failure_at !== null && <Fact name="Refuses everything since"
            value={dateTime(outlet.this_node.first_failure_at)} />}
          {outlet.reason !== null && <Fact value={outlet.reason}
            name={outlet.state === 'disabled' ? 'Disabled, because' : 'Gets nothing, because'} />}
        </dl>
        <div class="outlet-actions">
          <button class="button" data-testid="test" disabled={doing.busy}
            onClick={() => change(async () => outcome(await api.test(id)))}>Send a test</button>
          <button class="button" data-testid="pause" disabled={doing.busy}
            onClick={() => change(async () => {
              await api.changeOutlet(id, { paused: !resting });
              return resting ? 'It gets what waits for it.' : 'It is paused. Its events wait.';
            })}>{resting ? 'Resume' : 'Pause'}</button>
          <button class="button" data-testid="rotate" disabled={doing.busy}
            onClick={() => change(async () => {
              setSecret((await api.newSecret(id)).secret ?? '');
              return 'The old secret is valid for another 24 hours.';
            })}>New secret</button>
          <button class="button" data-testid="delete" disabled={doing.busy}
            onClick={() => (sure ? doing.run(async () => {
              await api.deleteOutlet(id);
              go({ at: 'outlets' });
              return '';
            }) : setSure(true))}>
            {sure ? 'Really delete it, with all that waits' : 'Delete'}</button>
        </div>
      </>}
      <Outcome problem={doing.problem} done={doing.done} secret={secret} />
      <Section id="parked" title="Parked events" says={outletProblem} list={parked}
        hint="Events that were refused for a day while others were accepted. Later ones went on."
        empty={aside.length > 0 ? undefined : 'None.'}>
        <Table label="Parked events" head={['Event', 'Type', 'Chat', 'Parked', 'Refusal', '']}>
          {aside.map((event) => (
            <tr key={event.event_id} data-testid="parked-row">
              <th scope="row"><code>{event.event_id}</code></th>
              <td>{event.type}</td>
              <td>{event.chat_id !== null
                && <a href={hrefOf({ at: 'chat', id: event.chat_id })}>
                  <bdi>{event.chat_id}</bdi></a>}</td>
              <td class="number">{dateTime(event.parked_at)}</td>
              <td><bdi>{event.status ?? ''} {event.detail}</bdi></td>
              <td><button class="button small" disabled={doing.busy}
                onClick={() => change(async () => outcome(await api.resend(id, event.event_id)))}>
                Send again</button></td>
            </tr>
          ))}
        </Table>
      </Section>
      <Section id="failures" title="Refusals" says={outletProblem} list={failures}
        hint="The last 1,000, the newest first."
        empty={refused.length > 0 ? undefined : 'None.'}>
        <Table label="Refusals" head={['When', 'Type', 'Chat', 'Answer']}>
          {refused.map((one, i) => (
            <tr key={i} data-testid="failure-row">
              <th scope="row" class="number">{dateTime(one.refused_at)}</th>
              <td>{one.type}</td>
              <td><bdi>{one.chat_id}</bdi></td>
              <td><bdi>{one.status ?? ''} {one.detail}</bdi></td>
            </tr>
          ))}
        </Table>
      </Section>
    </>
  );
}

/** Says what came of a delivery. */
function outcome({ accepted, status, detail }: OutletAttempt): string {
  return accepted ? 'It was accepted.' : `It was refused: ${status ?? ''} ${detail}`;
}
