// Who has received and read a message, as it changes.

import type { DeliveryStatus } from '@tidemark/client';
import { useMemo } from 'preact/hooks';
import type { Session } from '../session';
import { useStatus } from '../status';
import { shortTime, timeOf } from '../time';
import { useView } from '../view';
import { messageText, problemWords } from '../words';
import { Avatar } from './Avatar';
import { Panel } from './Panel';
import { TickMark } from './Tick';

type MemberStatus = DeliveryStatus['members'][number];

interface Props {
  session: Session;
  chat: string;
  sequence: number;
  close: () => void;
}

export function WhoHasIt({ session, chat, sequence, close }: Props) {
  const handle = useMemo(() => session.client.chat(chat), [session, chat]);
  const [status, problem] = useStatus(session, chat, () => handle.status(sequence), `${sequence}`);
  const row = useView(handle.row);
  const last = row?.last;
  return (
    <Panel title="Who has it" close={close}>
      <blockquote class="quote" dir="auto">
        {last?.sequence === sequence ? messageText(last) : `Message ${sequence}`}</blockquote>
      {status && <Members status={status} sequence={sequence} user={session.user} />}
      {!status && !problem && <p class="empty">Asking the server …</p>}
      {problem !== undefined &&
        <p class="problem" role="status">Not up to date. {problemWords(problem)}</p>}
    </Panel>
  );
}

function Members({ status, sequence, user }: {
  status: DeliveryStatus; sequence: number; user: string;
}) {
  const { delivery_summary: summary, members, member_count: count, pagination } = status;
  const read = members.filter(({ last_read_sequence: n }) => n >= sequence);
  const delivered = members.filter((member) =>
    member.last_acked_sequence >= sequence && !read.includes(member));
  const rest = members.filter((member) => !read.includes(member) && !delivered.includes(member));
  return <>
    <Gauge label="Received" value={summary.delivered_count} of={count} />
    <Gauge label="Read" value={summary.read_count} of={count} />
    <Group title="Read" tick="read" members={read} user={user} />
    <Group title="Received" tick="delivered" members={delivered} user={user} />
    <Group title="Not yet" tick="sent" members={rest} user={user} />
    {pagination.has_more && <p class="hint">The counts are of all members. The list has the
      first {members.length}.</p>}
  </>;
}

function Gauge({ label, value, of }: { label: string; value: number; of: number }) {
  return (
    <label class="gauge">
      <span>{label}</span>
      <span class="number" data-testid={`count-${label.toLowerCase()}`}>{value} of {of}</span>
      <meter min={0} max={of} value={value} />
    </label>
  );
}

function Group({ title, tick, members, user }: {
  title: string; tick: 'read' | 'delivered' | 'sent'; members: readonly MemberStatus[];
  user: string;
}) {
  if (members.length === 0) return null;
  return (
    <section class="members" aria-label={title}>
      <h3><span class="tick" data-tick={tick}><TickMark tick={tick} /></span>{title}</h3>
      <ul>
        {members.map((member) => (
          <li key={member.user_id} data-testid={`who-${tick}`}>
            <Avatar name={member.display_name} small />
            <span class="member-name"><bdi>{member.display_name}</bdi>
              {member.user_id === user && <span class="soft"> (you)</span>}</span>
            {tick !== 'sent' && member.updated_at !== null &&
              <time class="soft" dateTime={member.updated_at}>{when(member.updated_at)}</time>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function when(time: string): string {
  const at = new Date(time);
  const short = shortTime(at);
  return short === timeOf(at) ? short : `${short} ${timeOf(at)}`;
}
