// What the user writes. It belongs to one chat and is kept until it is sent.

import type { ChatHandle, Client, Row } from '@tidemark/client';
import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect, useState } from 'preact/hooks';
import { drafts, setDraft } from '../drafts';
import { send as sendText } from '../sending';
import { useView } from '../view';
import { problemWords } from '../words';
import { Icon } from './Icon';

const MAX_HEIGHT = 200;

interface Props {
  client: Client;
  chat: ChatHandle;
  row: Row;
  text: RefObject<HTMLTextAreaElement | null>;
}

export function Composer({ client, chat, row, text }: Props) {
  const draft = useView(drafts)[chat.id] ?? '';
  const [problem, setProblem] = useState('');

  useEffect(() => {
    // On a phone the focus would open the keyboard, which hides the chat.
    if (matchMedia('(hover: hover)').matches) text.current?.focus();
  }, [chat, text]);
  useLayoutEffect(() => {
    const area = text.current;
    if (!area) return;
    area.style.height = 'auto';
    area.style.height = `${Math.min(area.scrollHeight, MAX_HEIGHT)}px`;
  }, [draft, text]);

  if (row.left) {
    return <p class="bar foot note">You are no longer a member of this chat. You can still read
      it.</p>;
  }
  if (row.chat.role === 'reader') return <p class="bar foot note">You may read this chat only.</p>;

  const send = () => {
    if (draft.trim() === '') return;
    const sent = sendText(client, chat.id, draft);
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
      <label class="unseen" for="text">Message</label>
      <textarea id="text" ref={text} rows={1} dir="auto" placeholder="Message" data-testid="text"
        value={draft} enterkeyhint="send" onKeyDown={keys} onInput={(event) => {
          setDraft(chat.id, event.currentTarget.value);
          chat.type();
        }} />
      <button class="button primary round" aria-label="Send" title="Send" data-testid="send"
        disabled={draft.trim() === ''}><Icon name="send" /></button>
    </form>
  );
}
