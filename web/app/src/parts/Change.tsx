// Edits or deletes a message in its place, pins it, or reacts to it. The page loads this when a
// user wants that.

import type { EmojiCount, Message } from '@tidemark/client';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Session } from '../session';
import { useView } from '../view';
import { problemWords } from '../words';
import { pinsOf } from './Pins';
import { EMOJI, toggle } from './Reactions';

interface Props {
  session: Session;
  message: Message;
  reactions: readonly EmojiCount[] | undefined;
  mine: boolean;
  /** The user may delete the messages of others. */
  manages: boolean;
  group: boolean;
  close: () => void;
}

export function Change({ session, message, reactions, mine, manages, group, close }: Props) {
  const { content, sequence } = message;
  const [step, setStep] = useState<'choose' | 'edit' | 'delete'>('choose');
  const [text, setText] = useState(content);
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  // The content that `text` started from.
  const base = useRef(content);
  const box = useRef<HTMLFormElement>(null);
  const chat = session.client.chat(message.chat_id);
  const pin = useView(pinsOf(chat)).find((one) => one.message?.sequence === sequence);
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
    <form class="change" ref={box} aria-label="React or change" onKeyDown={keys}
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}>
      {step === 'choose' && <>
        {mine && <button type="button" class="button small" data-testid="edit"
          onClick={() => setStep('edit')}>Edit</button>}
        {(mine || manages) && <button type="button" class="button small" data-testid="delete"
          onClick={() => setStep('delete')}>Delete for everyone</button>}
        {(manages || !group) && <button type="button" class="button small" data-testid="pin"
          disabled={busy}
          onClick={() => run(pin ? chat.unpin(pin.pin_sequence) : chat.pin(sequence))}>
          {pin ? 'Unpin' : 'Pin'}</button>}
        {EMOJI.map((emoji) => (
          <button type="button" class="reaction" key={emoji} data-testid="react" disabled={busy}
            aria-label={`React with ${emoji}`}
            aria-pressed={!!reactions?.some((one) => one.mine && one.emoji === emoji)}
            onClick={() => run(toggle(chat, sequence, emoji, reactions))}>{emoji}</button>
        ))}
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
