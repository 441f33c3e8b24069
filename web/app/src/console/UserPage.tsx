// A user's sessions, what waits for them, and where they stand in each chat.

import { useCallback } from 'preact/hooks';
import type { Api, Refusal } from './api';
import { Head, Section } from './Found';
import { usePaged } from './paged';
import { hrefOf } from './route';
import { count, dateTime, searchProblem } from './words';

const says = (why: Refusal) => searchProblem(why, 'user');

export function UserPage({ api, user }: { api: Api; user: string }) {
  const sessions = usePaged((_, signal) => api.sessions(user, signal));
  const pending = usePaged((cursor, signal) => api.pending(user, cursor, signal));
  const states = usePaged((cursor, signal) => api.states(user, cursor, signal));
  const reload = useCallback(() => {
    for (const list of [sessions, pending, states]) list.reload();
  }, [sessions, pending, states]);
  const all = sessions.pages.flatMap((page) => page.sessions);
  const rows = pending.pages.flatMap((page) => page.pending);
  const marks = states.pages.flatMap((page) => page.states);
  return (
    <>
      <Head kind="User" id={user} at={sessions.at} busy={sessions.busy || states.busy}
        reload={reload} />
      <Section id="sessions" title="Sessions" says={says} list={sessions}
        hint="One for each device that is connected, or was a short while ago."
        empty={all.length > 0 ? undefined : 'None: no device of this user is connected. Tidemark ' +
          'keeps no list of users, so an id that was never used looks the same.'}>
        <Table label="Sessions" head={['Device', 'Node', 'Session']}>
          {all.map((one) => (
            <tr key={one.session_id} data-testid="session">
              <th scope="row">{one.device_id ?? <span class="soft">not named</span>}</th>
              <td>{one.node_id ?? '–'}</td>
              <td><code>{one.session_id}</code></td>
            </tr>
          ))}
        </Table>
      </Section>
      <Section id="waiting" title="Messages wait in" says={says} list={pending}
        hint="The user's pending rows: chats in which they have not acknowledged everything since
          they were away."
        empty={rows.length > 0 ? undefined : 'Nothing waits for this user.'}>
        <Table label="Pending rows" head={['Chat', 'From message']}>
          {rows.map(({ chat_id: id, first_undelivered_sequence: from }) => (
            <tr key={id} data-testid="waiting-row">
              <th scope="row"><a href={hrefOf({ at: 'chat', id })}><bdi>{id}</bdi></a></th>
              <td class="number">{from === null ? 'not known: the chat is large' : count(from)}</td>
            </tr>
          ))}
        </Table>
      </Section>
      <Section id="states" title="Watermarks" says={says} list={states}
        hint="How far the user has acknowledged and read each chat. A chat in which they never
          acknowledged anything is not listed."
        empty={marks.length > 0 ? undefined : 'None: this user has acknowledged nothing yet.'}>
        <Table label="Watermarks" head={['Chat', 'Acknowledged up to', 'Read up to', 'Changed']}>
          {marks.map((mark) => (
            <tr key={mark.chat_id} data-testid="state-row">
              <th scope="row"><a href={hrefOf({ at: 'chat', id: mark.chat_id })}>
                <bdi>{mark.chat_id}</bdi></a></th>
              <td class="number">{count(mark.last_acked_sequence)}</td>
              <td class="number">{count(mark.last_read_sequence)}</td>
              <td class="number">{dateTime(mark.updated_at)}</td>
            </tr>
          ))}
        </Table>
      </Section>
    </>
  );
}

interface TableProps {
  label: string;
  head: readonly string[];
  children: preact.ComponentChildren;
}

export function Table({ label, head, children }: TableProps) {
  return (
    <div class="scroll card" role="group" aria-label={label} tabIndex={0}>
      <table>
        <thead><tr>{head.map((text) => <th scope="col" key={text}>{text}</th>)}</tr></thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
