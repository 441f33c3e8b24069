// The console: a form for the key, and what the key shows.

import { useEffect, useState } from 'preact/hooks';
import { Api } from './api';
import { Feed } from './feed';
import { KeyForm } from './KeyForm';
import { linkProblem } from './words';
import { Workspace } from './Workspace';

/** What there is while a key is used. Nothing else has the key, and it ends with the tab. */
interface Watch {
  readonly feed: Feed;
  readonly api: Api;
}

export function Console() {
  const [watch, setWatch] = useState<Watch>();
  // The first figures have come. Until then, the form stays.
  const [began, setBegan] = useState(false);
  const [problem, setProblem] = useState('');

  const enter = (key: string) => {
    setProblem('');
    setWatch({ feed: new Feed(key), api: new Api(key) });
  };
  const leave = (why: string) => {
    setProblem(why);
    setBegan(false);
    setWatch(undefined);
  };
  useEffect(() => {
    if (!watch) return undefined;
    const { feed } = watch;
    let live = false;
    const unfollow = feed.link.subscribe(() => {
      const link = feed.link.get();
      if (link.state === 'live') {
        live = true;
        setBegan(true);
      } else if (link.state === 'refused' && live && link.why.status === 401) {
        leave('The key is not valid any more: its line was removed from the file of keys. Enter ' +
          'another one.');
      } else if (link.state === 'refused' || (link.state === 'lost' && !live)) {
        leave(linkProblem(link.why));
      }
    });
    feed.start();
    return () => {
      unfollow();
      feed.stop();
    };
  }, [watch]);

  return watch && began
    ? <Workspace feed={watch.feed} api={watch.api} leave={() => leave('')} />
    : <KeyForm enter={enter} problem={problem} checking={watch !== undefined} />;
}
