// Edits or deletes a message in its place. The page loads this when a user wants that.

import type { Message } from '@tidemark/client';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Session } from '../session';
import { problemWords } from '../words';

interface Props {
  session: Session;
  message: Message;
  mine: boolean;
  close: () => void;
}

export function Change({ session, message, mine, close }: Props) {
  const { content, sequence } = message;
  const [step, setStep] = useState<'choose' | 'edit' | 'delete'>(mine ? 'choose' : 'delete');
  const [text, setText] = useState(content);
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  // The content that `text` started from.
  const base = useRef(content);
  const box = useRef<HTMLFormElement>(null);
  const chat = session.client.chat(message.chat_id);
  useEffect(() => box.current?.querySelector<HTMLElement>('textarea, button')?.focus(), [step]);

  const run = (change: Promise<unknown>) => {
    setBusy(true);
    change.then(close, (error: unknown) => {
      setBusy(false);
      setProblem(problemWords(error));
    });
  };
  const save = () => {
    const { content_type, attachments, mentions, metadata } = message;
    if (busy) return;
    if (text === base.current) close();
    else if (content !== base.current) {
      base.current = content;
      setProblem('It was edited somewhere else. Save again to overwrite that edit.');
    } else if (text.trim() === '' && attachments.length === 0) {
      setProblem('Write something, or delete the message.');
    } else {
      run(chat.edit(sequence, {
        content: text, content_type, attachments, ...mentions && { mentions },
        ...metadata && { metadata },
      }));
    }
  };
  const keys = (event: KeyboardEvent) => {
    // The log and the chat have keys of their own. Keys with Ctrl or Cmd go on to the page.
    if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
    if (event.isComposing) return;
    if (event.key === 'Escape') close();
    if (step !== 'edit' || event.key !== 'Enter' || event.shiftKey) return;
    if ((event.target as Element).matches('textarea')) {
      event.preventDefault();
      save();
    }
  };
  return (
    <form class="change" ref={box} aria-label="Change the message" onKeyDown={keys}
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}>
      {step === 'choose' && <>
        <button type="button" class="button small" data-testid="edit"
          onClick={() => setStep('edit')}>Edit</button>
        <button type="button" class="button small" data-testid="delete"
          onClick={() => setStep('delete')}>Delete for everyone</button>
      </>}
      {step === 'edit' && <>
        <textarea rows={Math.min(8, text.split('\n').length)} dir="auto" data-testid="edit-text"
          aria-label="New text" value={text}
          onInput={(event) => setText(event.currentTarget.value)} />
        <button class="button small primary" data-testid="save">Save</button>
      </>}
      {step === 'delete' && <span id="delete">Delete for everyone?</span>}
      <button type="button" class="button small" data-testid="keep" onClick={close}>
        {step === 'delete' ? 'Keep' : 'Cancel'}</button>
      {step === 'delete' && <button type="button" class="button small danger"
        aria-describedby="delete" data-testid="confirm" disabled={busy}
        onClick={() => run(chat.redact(sequence))}>
        Delete</button>}
      {problem !== '' && <p class="problem" role="alert">{problem}</p>}
    </form>
  );
}
