// The frame of the console: search, the state of the stream, and what is open.

import { useState } from 'preact/hooks';
import { setTheme, theme, type Theme } from '../theme';
import { useView } from '../view';
import type { Api } from './api';
import { ChatPage } from './ChatPage';
import type { Feed, Link } from './feed';
import { OutletPage } from './OutletPage';
import { OutletsPage } from './OutletsPage';
import { Overview } from './Overview';
import { go, hrefOf, place } from './route';
import { UserPage } from './UserPage';
import { linkProblem, timeOfDay } from './words';

const THEMES: readonly (readonly [Theme, string])[] = [
  ['system', 'System'], ['light', 'Light'], ['dark', 'Dark'],
];

interface Props {
  feed: Feed;
  api: Api;
  leave: () => void;
}

export function Workspace({ feed, api, leave }: Props) {
  const link = useView(feed.link);
  const at = useView(place);
  return (
    <div class="console" data-link={link.state}>
      <header class="top">
        <a class="brand" href={hrefOf({ at: 'overview' })}>
          <img src="/icon.svg" alt="" width="28" height="28" />
          <span>Tidemark <span class="soft">console</span></span>
        </a>
        <search class="searches">
          <Search kind="user" label="User id" />
          <Search kind="chat" label="Chat id" />
        </search>
        <a class="button small" data-testid="outlets" href={hrefOf({ at: 'outlets' })}>Outlets</a>
        <span class="state" data-testid="link"
          data-state={link.state === 'live' ? 'live' : 'connecting'}>
          {link.state === 'live' ? 'Live' : 'Not live'}</span>
        <button class="button small" data-testid="forget" onClick={leave}>Forget key</button>
      </header>
      <Banner link={link} feed={feed} />
      <main class="content">
        {at.at === 'overview' && <Overview feed={feed} />}
        {at.at === 'user' && <UserPage key={at.id} api={api} user={at.id} />}
        {at.at === 'chat' && <ChatPage key={at.id} api={api} chat={at.id} />}
        {at.at === 'outlets' && <OutletsPage api={api} />}
        {at.at === 'outlet' && <OutletPage key={at.id} api={api} id={at.id} />}
      </main>
      <Foot />
    </div>
  );
}

function Banner({ link, feed }: { link: Link; feed: Feed }) {
  return (
    <div role="status">
      {link.state === 'lost' && <p class="banner" data-testid="banner">
        <span>Not live since {timeOfDay(link.since)}. {linkProblem(link.why)} The console tries
          again by itself.</span>
        <button class="button small" data-testid="retry" onClick={() => feed.retry()}>
          Try now</button>
      </p>}
    </div>
  );
}

function Search({ kind, label }: { kind: 'user' | 'chat'; label: string }) {
  const [id, setId] = useState('');
  const submit = (event: Event) => {
    event.preventDefault();
    if (id.trim() === '') return;
    go({ at: kind, id: id.trim() });
    setId('');
  };
  return (
    <form class="search-one" onSubmit={submit} autocomplete="off">
      <label class="unseen" for={`find-${kind}`}>{label}</label>
      <input id={`find-${kind}`} type="search" value={id} placeholder={label} required
        data-testid={`find-${kind}`} autocapitalize="none" spellcheck={false} autocomplete="off"
        onInput={(event) => setId(event.currentTarget.value)} />
      <button class="button" aria-label={`Look up this ${kind}`}>Look up</button>
    </form>
  );
}

function Foot() {
  const [colours, setColours] = useState(theme);
  return (
    <footer class="foot">
      <p class="hint">A snapshot each second while this page is open, from
        {' '}<code>GET /api/v1/admin/stats</code>. Dashboards and alerts use{' '}
        <code>/metrics</code>.</p>
      <fieldset class="segments">
        <legend class="unseen">Colours</legend>
        {THEMES.map(([value, label]) => (
          <label key={value}>
            <input type="radio" name="theme" value={value} checked={colours === value}
              onChange={() => {
                setTheme(value);
                setColours(value);
              }} />
            <span>{label}</span>
          </label>
        ))}
      </fieldset>
    </footer>
  );
}
