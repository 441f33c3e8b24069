// A chat's members, and who is behind.

import { useCallback, useState } from 'preact/hooks';
import type { MemberStatus } from '../../../client/src/wire.gen';
import { plural } from '../words';
import type { Api } from './api';
import { Head, Section } from './Found';
import { usePaged } from './paged';
import { hrefOf } from './route';
import { Table } from './UserPage';
import { count, dateTime, searchProblem } from './words';

export function ChatPage({ api, chat: id }: { api: Api; chat: string }) {
  const chats = usePaged((_, signal) => api.chat(id, signal));
  const status = usePaged((cursor, signal) => api.status(id, cursor, signal));
  const [onlyBehind, setOnlyBehind] = useState(false);
  const reload = useCallback(() => {
    chats.reload();
    status.reload();
  }, [chats, status]);
  const chat = chats.pages[0];
  const summary = status.pages[0]?.delivery_summary;
  const head = summary?.sequence ?? 0;
  const members = status.pages.flatMap((page) => page.members);
  const behind = members.filter(({ last_acked_sequence: acked }) => acked < head);
  const shown = onlyBehind ? behind : members;
  const missing = chats.problem?.code === 'NOT_FOUND';
  return (
    <>
      <Head kind="Chat" id={id} at={status.at ?? chats.at} busy={chats.busy || status.busy}
        reload={reload} />
      {chats.problem && <p class="empty card" role="alert" data-testid="chat-problem">
        {searchProblem(chats.problem, 'chat')}</p>}
      {chat && summary && <dl class="facts card" data-testid="facts">
        <Fact name="Type" value={chat.type} />
        {chat.name !== '' && <Fact name="Name" value={chat.name} />}
        <Fact name="Members" value={count(chat.member_count)} />
        <Fact name="Last message" value={head === 0 ? 'none yet' : count(head)} />
        {head > 0 && <>
          <Fact name="Have it" value={count(summary.delivered_count)} />
          <Fact name="Have read it" value={count(summary.read_count)} />
          <Fact name="Behind" value={count(summary.pending_count)} />
        </>}
        <Fact name="Created" value={dateTime(chat.created_at)} />
      </dl>}
      {!missing && <Section id="members" title="Members" list={status}
        says={(why) => searchProblem(why, 'chat')}
        hint="By user id. A member is behind if they have not acknowledged the last message."
        empty={members.length > 0 ? undefined : 'None: everybody has left this chat.'}>
        <label class="only">
          <input type="checkbox" checked={onlyBehind} data-testid="only-behind"
            onChange={(event) => setOnlyBehind(event.currentTarget.checked)} />
          Only those who are behind
          <span class="soft number">{behind.length} of {plural(members.length, 'member')}
            {status.more && ' loaded so far'}</span>
        </label>
        {shown.length === 0
          ? <p class="empty card">{status.more
            ? 'None of the members loaded so far is behind.' : 'Nobody is behind.'}</p>
          : <Table label="Members"
            head={['Member', 'Behind by', 'Acknowledged up to', 'Read up to', 'Changed']}>
            {shown.map((member) => <Member key={member.user_id} member={member} head={head} />)}
          </Table>}
      </Section>}
    </>
  );
}

export function Fact({ name, value }: { name: string; value: string }) {
  return <div><dt>{name}</dt><dd class="number"><bdi>{value}</bdi></dd></div>;
}

function Member({ member, head }: { member: MemberStatus; head: number }) {
  const { user_id: id, last_acked_sequence: acked, last_read_sequence: read } = member;
  const by = head - acked;
  return (
    <tr data-testid="member" data-user={id} data-behind={by > 0}>
      <th scope="row"><a href={hrefOf({ at: 'user', id })}><bdi>{id}</bdi></a></th>
      <td>{by > 0 ? <span class="pill" data-kind="notice">{plural(by, 'message')}</span>
        : <span class="soft">has all</span>}</td>
      <td class="number">{count(acked)}</td>
      <td class="number">{count(read)}</td>
      <td class="number">{dateTime(member.updated_at)}</td>
    </tr>
  );
}
