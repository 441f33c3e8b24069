// What the user writes. It belongs to one chat and is kept until it is sent.

import type { ChatHandle, Row } from '@tidemark/client';
import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';
import { drafts, setDraft } from '../drafts';
import { send as sendText } from '../sending';
import type { Session } from '../session';
import { useView } from '../view';
import { problemWords, unchangedWords } from '../words';
import { Icon } from './Icon';

const MAX_HEIGHT = 200;
const MAX_FILES = 10;

interface Props {
  session: Session;
  chat: ChatHandle;
  row: Row;
  text: RefObject<HTMLTextAreaElement | null>;
}

export function Composer({ session, chat, row, text }: Props) {
  const draft = useView(drafts)[chat.id] ?? '';
  const { attachments } = useView(session.client.state);
  const [problem, setProblem] = useState('');
  const [files, setFiles] = useState<readonly File[]>([]);
  const [uploading, setUploading] = useState(false);

  useEffect(() => {
    // On a phone the focus would open the keyboard, which hides the chat.
    if (matchMedia('(hover: hover)').matches) text.current?.focus();
  }, [chat, text]);
  useEffect(() => {
    const end = new AbortController();
    session.client.on('refused', (event) => {
      if (event.chat_id === chat.id) setProblem(unchangedWords(event));
    }, { signal: end.signal });
    return () => end.abort();
  }, [session, chat]);
  useLayoutEffect(() => {
    const area = text.current;
    if (!area) return;
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight, MAX_HEIGHT)}px`;
  }, [draft, text]);

  if (row.left || row.chat.closed || row.chat.role === 'reader') {
    return <p class="bar foot note">{row.left
      ? 'You are no longer a member of this chat. You can still read it.'
      : row.chat.closed ? 'Nobody can write in this chat: it is closed. You can still read it.'
        : 'You may read this chat only.'} <span class="problem" role="alert">{problem}</span></p>;
  }

  const sendFiles = () => {
    setUploading(true);
    setProblem('');
    import('./Attachments').then((all) => all.sendFiles(session, chat, draft, files)).then(() => {
      setDraft(chat.id, '');
      setFiles([]);
    }, (error: unknown) => setProblem((error as Error).message)).finally(() => setUploading(false));
  };
  const send = () => {
    if (uploading) return;
    if (files.length > 0) {
      sendFiles();
      return;
    }
    if (draft.trim() === '') return;
    const sent = sendText(session.client, chat.id, draft);
    setDraft(chat.id, '');
    setProblem('');
    sent.catch((error: unknown) => {
      setProblem(problemWords(error));
      if (text.current?.value === '') setDraft(chat.id, draft);
    });
  };
  const keys = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  return (
    <form class="bar foot composer" onSubmit={(event) => {
      event.preventDefault();
      send();
    }}>
      {problem !== '' && <p class="problem" role="alert">{problem}</p>}
      {files.length > 0 && <ul class="chosen" aria-label="Files to send" data-testid="chosen">
        {files.map((file) => <li key={file}>
          <bdi>{file.name}</bdi>
          <button type="button" class="link" aria-label={`Remove ${file.name}`}
            disabled={uploading} onClick={() => setFiles(files.filter((one) => one !== file))}>
            <Icon name="close" /></button>
        </li>)}
        {uploading && <li role="status">Uploading …</li>}
      </ul>}
      {attachments && <label class="button square attach" title="Attach files">
        <Icon name="clip" />
        <input type="file" class="unseen" multiple aria-label="Attach files" data-testid="attach"
          disabled={uploading} onChange={({ currentTarget }) => {
            setFiles([...files, ...currentTarget.files ?? []].slice(0, MAX_FILES));
            currentTarget.value = '';
          }} />
      </label>}
      <label class="unseen" for="text">Message</label>
      <textarea id="text" ref={text} rows={1} dir="auto" placeholder="Message" data-testid="text"
        value={draft} enterkeyhint="send" readOnly={uploading} onKeyDown={keys}
        onInput={(event) => {
          setDraft(chat.id, event.currentTarget.value);
          chat.type();
        }} />
      <button class="button primary round" aria-label="Send" title="Send" data-testid="send"
        disabled={uploading || draft.trim() === '' && files.length === 0}>
        <Icon name="send" /></button>
    </form>
  );
}
