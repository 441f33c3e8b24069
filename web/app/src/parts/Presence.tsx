// Who is online, and whether others see that of the user. The page loads this when it is there: it
// opens without it.

import type { Chat } from '@tidemark/client';
import { presenceOf } from '@tidemark/client/presence';
import { useEffect, useState } from 'preact/hooks';
import { route } from '../route';
import type { Session } from '../session';
import { fullTime, shortTime } from '../time';
import { useView } from '../view';
import { plural } from '../words';

interface Props { session: Session; chat: Chat }

const AGAIN_MS = 30_000;

/** Follows a chat, and returns what there is of the other member of a chat for two. */
function usePeer({ session: { client }, chat }: Props) {
  const { members } = useView(presenceOf(client).chat(chat.chat_id)) ?? {};
  return members?.find((one) => one.user_id === chat.peer?.user_id);
}

/** The line below the name of a chat for two. */
export function Seen(props: Props) {
  const peer = usePeer(props);
  const [, show] = useState({});
  useEffect(() => {
    const timer = setInterval(() => show({}), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  if (peer?.online) return <span class="online">online</span>;
  if (!peer?.last_seen_at) return <>Direct chat</>;
  const date = new Date(peer.last_seen_at);
  return <time dateTime={peer.last_seen_at} title={fullTime(date)}>last seen {ago(date)}</time>;
}

/** The dot of a chat in the list. Groups have none, but are followed, so that typing shows. */
export function Dot(props: Props) {
  return usePeer(props)?.online ? <span class="dot"><span class="unseen">, online</span></span>
    : null;
}

function ago(date: Date): string {
  const minutes = Math.floor((Date.now() - date.getTime()) / 60_000);
  if (minutes < 1) return 'just now';
  if (minutes < 60) return `${plural(minutes, 'minute')} ago`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${plural(hours, 'hour')} ago`;
  const days = Math.floor(hours / 24);
  return days < 7 ? `${plural(days, 'day')} ago` : `on ${shortTime(date)}`;
}

/** The switch in the settings. There is none if the server has no presence. */
export function Visible({ session: { client } }: { session: Session }) {
  const presence = presenceOf(client);
  const [visible, setVisible] = useState<boolean>();
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    presence.visible().then(setVisible, () => undefined);
  }, []);
  if (visible === undefined) return null;
  const change = () => {
    presence.setVisible(!visible).then(() => {
      setVisible(!visible);
      setFailed(false);
    }, () => setFailed(true));
  };
  return <>
    <button class="switch wide" role="switch" aria-checked={visible} data-testid="visible"
      title="While you hide it, you do not see it of others either" onClick={change}>
      Show when I am online<span class="knob" aria-hidden="true" />
    </button>
    {failed && <p class="problem" role="alert">It does not work now. Try again later.</p>}
  </>;
}

/** Says that the open chat decides who sees what its members read, if it does. */
function Decides({ client, chat: id }: { client: Session['client'], chat: string }) {
  const policy = useView(client.chat(id).row)?.chat.read_receipts;
  return policy && policy !== 'optional'
    ? <p class="note">The open chat {policy === 'off' ? 'hides' : 'shows'} what is read.</p>
    : null;
}

/**
 * Shows whether others see what the user reads, and changes it. If the open chat decides that for
 * its members, it says so.
 */
export function Receipts({ session: { client } }: { session: Session }) {
  const { chat } = useView(route);
  const [shown, setShown] = useState<boolean>();
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    client.readReceipts().then(({ hidden }) => setShown(!hidden), () => undefined);
  }, []);
  if (shown === undefined) return null;
  const change = () => {
    client.setReadReceipts(shown ? 'off' : 'on').then(({ hidden }) => {
      setShown(!hidden);
      setFailed(false);
    }, () => setFailed(true));
  };
  return <>
    <button class="switch wide" role="switch" aria-checked={shown} data-testid="receipts"
      title="While you hide it, you do not see it of others either" onClick={change}>
      Show what I have read<span class="knob" aria-hidden="true" />
    </button>
    {chat !== undefined && <Decides key={chat} client={client} chat={chat} />}
    {failed && <p class="problem" role="alert">It does not work now. Try again later.</p>}
  </>;
}

/** The switch that blocks the other one of the open direct chat. Other chats have none. */
export function Blocked({ session: { client } }: { session: Session }) {
  const { chat: id } = useView(route);
  const peer = id === undefined ? undefined : client.chat(id).row.get()?.chat.peer?.user_id;
  return peer === undefined ? null : <Block key={peer} client={client} peer={peer} />;
}

function Block({ client, peer }: { client: Session['client'], peer: string }) {
  const [blocked, setBlocked] = useState<boolean>();
  const [failed, setFailed] = useState(false);
  useEffect(() => {
    client.blocks().then((all) => setBlocked(all.some((one) => one.user_id === peer)),
      () => undefined);
  }, []);
  if (blocked === undefined) return null;
  const change = () => {
    (blocked ? client.unblock(peer) : client.block(peer)).then(() => {
      setBlocked(!blocked);
      setFailed(false);
    }, () => setFailed(true));
  };
  return <>
    <button class="switch wide" role="switch" aria-checked={blocked} data-testid="block"
      title="Nobody can write in the chat while you block" onClick={change}>
      <bdi>Block {peer}</bdi><span class="knob" aria-hidden="true" />
    </button>
    {failed && <p class="problem" role="alert">It does not work now. Try again later.</p>}
  </>;
}
