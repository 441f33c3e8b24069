// The messages of the open chat. Only those near the screen are in the document.

import type { ChatHandle, Row as ChatRow, Timeline } from '@tidemark/client';
import { watchShown } from '@tidemark/client';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Virtualizer, type VirtualizerHandle } from 'virtua';
import { go } from '../route';
import { firstUnread, found, rowsOf } from '../rows';
import type { Session } from '../session';
import { useEvent, useView } from '../view';
import { messageText, plural } from '../words';
import { Icon } from './Icon';
import { MessageRow } from './MessageRow';
import { Search } from './Search';

interface Props {
  session: Session;
  chat: ChatHandle;
  timeline: Timeline;
  row: ChatRow;
  /** The words of the search; undefined: it is closed. */
  search: string | undefined;
  setSearch: (words: string | undefined) => void;
  /** Puts the focus where the user writes. */
  write: () => void;
}

// Older messages are loaded when less than this is above the screen.
const AHEAD_PX = 1_200;
const AT_END_PX = 48;
const SETTLE_MS = 1_000;
const HOLD_MS = 1_000;

export function Log({ session, chat, timeline, row, search, setSearch, write }: Props) {
  const items = useView(timeline.items);
  const older = useOlder(session, timeline);
  const unreadKey = useUnreadKey(timeline, row.unread, older);
  const rows = useMemo(() => rowsOf(items, unreadKey ?? undefined), [items, unreadKey]);
  const box = useRef<HTMLDivElement>(null);
  const list = useRef<VirtualizerHandle>(null);
  const [active, setActive] = useState<number>();
  const [changing, setChanging] = useState<string>();
  const hits = useMemo(() => search ? found(rows, search) : [], [rows, search]);
  const [hit, setHit] = useState(0);
  const opened = unreadKey !== null;
  const { atEnd, missed, toEnd, leave, scrolled, moved } = useEnd(
    box, list, rows, opened, older.state);

  // Older messages come above. What is on the screen stays there.
  const before = useRef({ first: undefined as string | undefined, length: 0 });
  const first = rows[0]?.key;
  const shift = before.current.first !== undefined && before.current.first !== first &&
    rows.length > before.current.length;
  useLayoutEffect(() => {
    const more = rows.length - before.current.length;
    if (shift) setActive((at) => at !== undefined ? at + more : at);
    before.current = { first, length: rows.length };
  }, [rows]);

  const show = (index: number, align: 'start' | 'center' | 'nearest' = 'center') => {
    list.current?.scrollToIndex(index, { align });
  };
  const look = () => {
    const element = box.current;
    if (opened && element && element.scrollTop < AHEAD_PX) older.load();
  };
  useLayoutEffect(() => {
    if (!opened) return;
    const divider = rows.findIndex(({ unread }) => unread);
    if (divider >= 0) {
      leave();
      list.current?.scrollToIndex(divider, { align: 'start', offset: -24 });
    } else toEnd();
  }, [opened]);
  useEffect(look, [rows, opened]);
  useEffect(() => {
    if (!opened || !box.current) return undefined;
    return watchShown(chat, box.current);
  }, [chat, opened]);
  useEffect(() => {
    setHit(hits.length - 1); // the newest
  }, [search]);
  const hitRow = hits[hit];
  useEffect(() => {
    if (hitRow !== undefined) show(hitRow);
  }, [hitRow]);

  const focus = (index: number) => {
    setActive(index);
    show(index, 'nearest');
    const find = () => box.current?.querySelector<HTMLElement>(`[data-row="${index}"]`);
    const there = find();
    if (there) there.focus();
    else {
      requestAnimationFrame(() => {
        // The user may have gone elsewhere meanwhile.
        if (box.current?.contains(document.activeElement)) find()?.focus();
      });
    }
  };
  const keys = (event: KeyboardEvent) => {
    moved(/Up|Home/.test(event.key));
    const row = (event.target as Element).closest<HTMLElement>('[data-row]');
    const at = row ? Number(row.dataset['row']) : undefined;
    const to = {
      ArrowUp: (at ?? rows.length) - 1,
      ArrowDown: at === undefined ? undefined : at + 1,
      Home: 0,
      End: rows.length - 1,
    }[event.key];
    if (event.key === 'Enter' && event.target === row) {
      const sequence = Number(row?.dataset['sequence']);
      if (sequence > 0) go({ chat: chat.id, panel: sequence });
    }
    if (to === undefined || to < 0) return;
    event.preventDefault();
    if (to < rows.length) focus(to);
    else write();
  };

  const changed = rows.findIndex(({ key }) => key === changing);
  const kept = [active, hitRow, changed]
    .filter((index) => index !== undefined && index >= 0 && index < rows.length);
  const { role, type } = row.chat;
  const manages = type === 'group' && (role === 'owner' || role === 'admin');
  const may = row.left || role === 'reader' ? 'none' : manages ? 'all' : 'own';
  return (
    <div class="log-box">
      {search !== undefined && <Search words={search} setWords={setSearch} hits={hits.length}
        hit={hit} setHit={setHit} complete={older.state === 'complete'} />}
      <div class="log" role="log" aria-live="off" aria-label="Messages" tabIndex={0} ref={box}
        data-testid="log" data-opened={opened} onScroll={() => {
          scrolled();
          look();
        }} onKeyDown={keys} onWheel={({ deltaY }) => moved(deltaY < 0)}
        onTouchMove={() => moved(true)}
        onPointerDown={() => moved(false)}>
        <div class="log-space" />
        <Virtualizer ref={list} scrollRef={box} data={rows} shift={shift}
          keepMounted={kept as number[]}>
          {(entry, index) => (
            <MessageRow key={entry.key} session={session} row={entry} index={index}
              count={rows.length} group={row.chat.type === 'group'} search={search}
              start={index === 0 && older.state === 'complete'} current={index === hitRow}
              active={index === active} may={may} changing={entry.key === changing}
              change={(begin) => {
                setChanging(begin ? entry.key : undefined);
                if (!begin) focus(index);
              }}
              details={(sequence) => go({ chat: chat.id, panel: sequence })} />
          )}
        </Virtualizer>
        {rows.length === 0 && opened &&
          <p class="empty">{older.state === 'loading' ? 'Loading …' : 'No messages yet. Say hello.'}
          </p>}
      </div>
      {older.state === 'loading' && rows.length > 0 && <p class="pill" role="status">Loading …</p>}
      {older.state === 'failed' && <p class="pill"><button class="link" data-testid="older"
        onClick={older.retry}>Older messages could not be loaded. Try again</button></p>}
      {!atEnd && <button class="jump" data-testid="jump" onClick={toEnd}>
        <Icon name="down" />{missed > 0 ? plural(missed, 'new message') : 'To the newest'}
      </button>}
      <Announcer session={session} chat={chat} timeline={timeline} />
    </div>
  );
}

interface Older {
  readonly state: 'idle' | 'loading' | 'failed' | 'complete';
  /** Loads a page, unless one is loading, or the last try failed. */
  load: () => void;
  retry: () => void;
}

/** Loads older messages, and tries again when the connection is back. */
function useOlder({ client }: Session, timeline: Timeline): Older {
  const [state, setState] = useState<Older['state']>('idle');
  const now = useRef(state);
  const live = useView(client.state).phase === 'live';
  const set = (next: Older['state']) => {
    now.current = next;
    setState(next);
  };
  // The first item when all were loaded. If another one is the first, what was loaded is gone: the
  // messages below it have expired, or the timeline has begun anew. So there may be older ones.
  const begins = useRef<string | undefined>(undefined);
  const first = useView(timeline.items)[0]?.key;
  useLayoutEffect(() => {
    if (now.current !== 'complete') return;
    if (begins.current === undefined) begins.current = first;
    else if (begins.current !== first) set('idle');
  }, [first]);
  const retry = () => {
    if (now.current === 'loading' || now.current === 'complete') return;
    set('loading');
    const before = timeline.items.get()[0]?.key;
    timeline.older().then((more) => {
      // Without an answer of the server nothing is added, though there is more.
      begins.current = timeline.items.get()[0]?.key;
      const grown = begins.current !== before;
      set(!more ? 'complete' : grown ? 'idle' : 'failed');
    }, () => set('failed'));
  };
  const again = () => {
    if (now.current === 'failed') retry();
  };
  useEffect(() => {
    if (live) again();
  }, [live]);
  // A stream may have outlived the time without a network.
  useEvent(window, 'online', again);
  return {
    state,
    load: () => {
      if (now.current === 'idle') retry();
    },
    retry,
  };
}

/**
 * Returns the key of the first unread message when the chat was opened: null while it is not
 * loaded, undefined if there is none. When the user comes back to the tab, it is looked for again.
 */
function useUnreadKey(timeline: Timeline, unread: number, older: Older): string | null | undefined {
  const [key, setKey] = useState<string | null | undefined>(null);
  const wanted = useRef(unread);
  const items = useView(timeline.items);
  useEffect(() => {
    if (key !== null) return;
    const place = firstUnread(items, wanted.current);
    if (wanted.current === 0 || place !== undefined) setKey(place);
    else if (older.state === 'idle') older.load();
    else if (older.state !== 'loading') setKey(items.find(({ mine }) => !mine)?.key);
  }, [key, items, older.state]);
  useEvent(window, 'focus', () => {
    if (key !== null && unread > 0) setKey(firstUnread(items, unread));
  });
  return key;
}

/**
 * Where the log stands:
 *
 * - `end`: the end is on the screen, and what comes moves the log.
 * - `settling`: it goes to the end, and the list measures its rows. Scroll events say nothing then.
 * - `held`: the user has just moved it up. Only a message of their own moves it then.
 * - `away`: the user has left the end, or the log was opened at the first unread message.
 */
type Place = 'end' | 'settling' | 'held' | 'away';

/** Keeps the end of the log on the screen if it is there, and counts what came since it was not. */
function useEnd(
  box: { readonly current: HTMLDivElement | null },
  list: { readonly current: VirtualizerHandle | null },
  rows: ReturnType<typeof rowsOf>,
  opened: boolean,
  older: Older['state'],
) {
  const [atEnd, setAtEnd] = useState(true);
  const place = useRef<Place>('end');
  const seen = useRef<string | undefined>(undefined);
  const timer = useRef(0);
  const last = rows.at(-1);
  /** Takes a place, and runs `then` after a time, unless there is another place by then. */
  const be = (next: Place, ms: number, then: 'judge' | 'toEnd') => {
    place.current = next;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => now.current[then](), ms);
  };
  const toEnd = () => {
    be('settling', SETTLE_MS, 'judge');
    setAtEnd(true);
    if (rows.length > 0) list.current?.scrollToIndex(rows.length - 1, { align: 'end' });
  };
  // In a short chat the end stays on the screen. The timer of `toEnd` notices that.
  const leave = () => { place.current = 'away'; };
  const there = () => {
    const { scrollHeight, scrollTop, clientHeight } = box.current ?? document.body;
    return scrollHeight - scrollTop - clientHeight < AT_END_PX;
  };
  const judge = () => {
    clearTimeout(timer.current);
    const ends = there();
    place.current = ends ? 'end' : 'away';
    if (ends) seen.current = last?.key;
    setAtEnd(ends);
  };
  const follow = () => {
    if (place.current === 'end' || place.current === 'settling') toEnd();
  };
  const now = useRef({ judge, follow, toEnd });
  now.current = { judge, follow, toEnd };
  useLayoutEffect(() => {
    if (!opened) return;
    if (last?.item.kind === 'waiting' && last.key !== seen.current) toEnd();
    else follow();
    if (place.current === 'settling') seen.current = last?.key;
  }, [rows, opened, older]); // Where the chat begins, there is a line more.
  useEffect(() => {
    const observer = new ResizeObserver(() => now.current.follow());
    if (box.current) observer.observe(box.current);
    return () => {
      observer.disconnect();
      clearTimeout(timer.current);
    };
  }, []);
  const scrolled = () => {
    if (!opened || place.current === 'settling') return;
    if (place.current === 'held' && there()) moved(true);
    else judge();
  };
  // If the user is still at the end after that time, the log goes on to what has come.
  const moved = (up: boolean) => {
    if (place.current === 'away') return;
    if (up) be('held', HOLD_MS, 'toEnd');
    else place.current = 'end';
  };
  const known = rows.findLastIndex(({ key }) => key === seen.current);
  const missed = atEnd || known < 0 ? 0 : rows.length - 1 - known;
  return { atEnd, missed, toEnd, leave, scrolled, moved };
}

/** Tells a screen reader what arrives. Scrolling is silent. */
function Announcer({ session, chat, timeline }: Pick<Props, 'session' | 'chat' | 'timeline'>) {
  const [words, setWords] = useState('');
  useEffect(() => {
    const end = new AbortController();
    let announced = 0;
    session.client.on('message', (message) => {
      const mine = message.sender_id === session.user;
      const { kind, relation } = message;
      if (message.chat_id !== chat.id) return;
      // To take back a reaction or a pin is a redaction, too.
      const named = relation ? relation.sequences ?? [relation.sequence] : [];
      if (relation && !named.includes(announced) && !timeline.items.get().some((item) =>
        item.message && named.includes(item.message.sequence))) return;
      // What was announced may be what is deleted now.
      const changed = kind === 'edit' ? 'edited' : kind === 'redact' ? 'deleted' : '';
      const what = named.length > 1 ? 'messages' : 'a message';
      if (changed) setWords(mine ? '' : `${message.sender_id} ${changed} ${what}`);
      else if (!mine && kind === 'message') {
        announced = message.sequence;
        setWords(`${message.sender_id}: ${messageText(message)}`);
      }
    }, { signal: end.signal });
    return () => end.abort();
  }, [session, chat, timeline]);
  return <p class="unseen" role="status">{words}</p>;
}
