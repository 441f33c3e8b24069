// One message in the log, with what stands above it.

import { later } from '../later';
import { memo } from '../react';
import type { Row } from '../rows';
import type { Session } from '../session';
import { fullTime, timeOf } from '../time';
import { problemWords, TICKS } from '../words';
import { Avatar } from './Avatar';
import { Icon } from './Icon';
import { Text } from './Text';
import { TickMark } from './Tick';

const Attachments = later(() => import('./Attachments').then((all) => all.Attachments));
const Change = later(() => import('./Change').then((all) => all.Change));
const Reactions = later(() => import('./Reactions').then((all) => all.Reactions));

interface Props {
  session: Session;
  row: Row;
  index: number;
  count: number;
  group: boolean;
  /** What is searched for. */
  search: string | undefined;
  /** The search stands here. */
  current: boolean;
  /** The chat begins here. */
  start: boolean;
  /** The user stands at this row. */
  active: boolean;
  /** Whose messages the user may change. They may react unless it is `none`. */
  may: 'none' | 'own' | 'all';
  /** The user is about to change this message. */
  changing: boolean;
  change: (begin: boolean) => void;
  details: (sequence: number) => void;
}

export const MessageRow = memo(function MessageRow(props: Props) {
  const { row, index, count, start, current } = props;
  const { item, day, unread, first, through } = row;
  return (
    <article class="row" tabIndex={-1} data-row={index} data-sequence={through}
      data-first={first} data-end={index === count - 1} data-current={current}
      aria-posinset={index + 1} aria-setsize={count}
      aria-label={label(row)}>
      {start && <p class="line start">The chat begins here</p>}
      {day !== undefined && <p class="line day"><span>{day}</span></p>}
      {unread && <p class="line unread" data-testid="divider"><span>New messages</span></p>}
      {item.kind === 'gap' && <p class="line gap"><span>Messages that you may not see</span></p>}
      {item.kind === 'hole' && <p class="line gap" data-testid="hole">
        <span>Loading messages …</span></p>}
      {item.message?.kind === 'system' && <p class="line gap"><span>{item.content}</span></p>}
      {(item.kind === 'waiting' || item.message?.kind === 'message') && <Bubble {...props} />}
    </article>
  );
});

function label({ item }: Row): string | undefined {
  if (item.kind === 'gap' || item.kind === 'hole') return undefined;
  return item.mine ? 'You' : item.message?.sender_id;
}

function Bubble({ session, row, group, search, active, may, changing, change, details }: Props) {
  const { item, at, first, last } = row;
  const { message, mine, tick, sequence, revising, reactions } = item;
  const sender = message?.sender_id ?? '';
  const named = group && !mine;
  const revision = message?.revision;
  const by = revision?.by === session.user ? 'You' : revision?.by;
  const deleted = revision?.kind === 'redact';
  const acts = message && !deleted && !revising && may !== 'none';
  return (
    <div class="message" data-mine={mine} data-first={first} data-last={last} data-tick={tick}
      data-testid={item.kind === 'waiting' ? 'waiting' : 'message'}>
      {named && <span class="message-face">{last && <Avatar name={sender} small />}</span>}
      <div class="bubble">
        {named && first && <strong class="sender"><bdi>{sender}</bdi></strong>}
        <span class="content" dir="auto" data-testid="content">
          {deleted ? <em class="stub"><bdi>{by}</bdi> deleted this message</em>
            : revising === 'redact' ? <em class="stub">Deleting …</em>
              : <Text text={item.content || (message ? '' : 'Attachment')} search={search} />}
        </span>
        {message && message.attachments.length > 0 &&
          <Attachments session={session} chat={message.chat_id} sequence={message.sequence}
            attachments={message.attachments} />}
        <span class="meta">
          {revising === 'edit' ? 'saving …' : revision?.kind === 'edit' &&
            <span data-testid="edited" title={fullTime(new Date(revision.revised_at))}>
              edited{revision.by !== sender && <> by <bdi>{by}</bdi></>}</span>}
          {at && <time dateTime={at.toISOString()} title={fullTime(at)}>{timeOf(at)}</time>}
          {tick && (sequence === undefined
            ? <span class="tick" role="img" data-testid="tick" data-tick={tick}
                title={TICKS[tick]} aria-label={TICKS[tick]}><TickMark tick={tick} /></span>
            : <button class="tick" data-testid="tick" data-tick={tick} tabIndex={-1}
                title={TICKS[tick]} aria-label={`${TICKS[tick]}. Who has it?`}
                onClick={() => details(sequence)}><TickMark tick={tick} /></button>)}
          {acts && <button class="act" tabIndex={active ? 0 : -1} title="React or change"
            aria-label="React or change" aria-expanded={changing} data-testid="act"
            onClick={() => change(!changing)}><Icon name="more" /></button>}
        </span>
        {message && reactions && <Reactions chat={session.client.chat(message.chat_id)}
          sequence={message.sequence} reactions={reactions} may={may !== 'none'}
          active={active} />}
        {acts && changing && <Change session={session} message={message} reactions={reactions}
          mine={mine} manages={may === 'all'} group={group} close={() => change(false)} />}
        {tick === 'failed' && <div class="failed">
          <span role="alert">{item.problem ? problemWords(item.problem) : 'Not sent.'}</span>
          {item.retry && <button class="button small" data-testid="retry"
            onClick={() => item.retry?.()}>Retry</button>}
          {item.discard && <button class="button small" data-testid="discard"
            onClick={() => item.discard?.()}>Discard</button>}
        </div>}
      </div>
    </div>
  );
}
