import { codeOf } from '@tidemark/client';
import { useState } from 'preact/hooks';
import { go } from '../route';
import type { Session } from '../session';
import { problemWords } from '../words';
import { Dialog } from './Dialog';

const PATIENCE_MS = 1_500;
const NAMES = 'User names have only A–Z, a–z, 0–9 and . : _ -';

/** Asks for the members of a new chat. One makes a direct chat, more or a name a group. */
export function NewChat({ session: { client }, close }: { session: Session; close: () => void }) {
  const [people, setPeople] = useState('');
  const [name, setName] = useState('');
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const [slow, setSlow] = useState(false);
  const [request] = useState(newId);

  const create = async () => {
    const members = people.split(/[\s,;]+/).filter((user) => user !== '');
    const direct = members.length === 1 && name.trim() === '';
    setBusy(true);
    setProblem('');
    const timer = setTimeout(() => setSlow(true), PATIENCE_MS);
    try {
      const chat = await client.createChat(direct
        ? { type: 'direct', member_ids: members }
        : { type: 'group', member_ids: members, name: name.trim(), client_chat_id: request });
      close();
      go({ chat: chat.id });
    } catch (error) {
      setProblem(codeOf(error) === 'INVALID' ? NAMES : problemWords(error));
      setBusy(false);
    } finally {
      clearTimeout(timer);
      setSlow(false);
    }
  };

  return (
    <Dialog title="New chat" close={close}>
      <form autocomplete="off" onSubmit={(event) => {
        event.preventDefault();
        void create();
      }}>
        <label for="people">Members</label>
        <input id="people" data-testid="people" value={people} required autocapitalize="none"
          spellcheck={false} placeholder="bob, or: bob carol dave"
          onInput={(event) => setPeople(event.currentTarget.value)} />
        <label for="group-name">Name of the group</label>
        <input id="group-name" data-testid="group-name" value={name} maxLength={80}
          placeholder="only for groups" onInput={(event) => setName(event.currentTarget.value)} />
        <p class="problem" role="alert">{problem}</p>
        {slow && <p class="hint" role="status">Waiting for the server …</p>}
        <div class="actions">
          <button class="button" type="button" onClick={close} data-testid="cancel">Cancel</button>
          <button class="button primary" data-testid="create" disabled={busy}>Create</button>
        </div>
      </form>
    </Dialog>
  );
}

function newId(): string {
  // crypto.randomUUID is only there over HTTPS.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}
