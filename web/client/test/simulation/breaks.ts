// Recorded breaks of the client: each one takes a rule away, and the simulation must find it.

export interface Break {
  readonly name: string;
  /** Below src. */
  readonly file: string;
  /** Occurs once in the file. */
  readonly from: string;
  readonly to: string;
}

const of = (file: string) => (name: string, from: string, to: string): Break => (
  { name, file, from, to });

const plan = of('core/plan.ts');
const acks = of('core/acks.ts');
const outbox = of('core/outbox.ts');
const ticks = of('core/ticks.ts');
const link = of('core/link.ts');
const ended = of('core/ended.ts');
const chats = of('core/chats.ts');
const lead = of('core/lead.ts');
const catchUp = of('shell/catchup.ts');
const leader = of('shell/leader.ts');
const reign = of('shell/reign.ts');
const sender = of('shell/sender.ts');
const tab = of('shell/tab.ts');
const acker = of('shell/acker.ts');
const data = of('shell/data.ts');
const entries = of('shell/entries.ts');
const timeline = of('shell/timeline.ts');
const items = of('core/timeline.ts');
const reactions = of('core/reactions.ts');
const rest = of('shell/rest.ts');
const steps = of('store/steps.ts');

export const breaks: readonly Break[] = [
  plan('messages of other data are taken',
    'if (of(id)?.incarnation !== incarnation) {', 'if (of(id) === undefined) {'),
  plan('own sends stay in the outbox after their echo', 'sent: sentBy(user, outbox, entries),',
    'sent: [],'),
  plan('gaps are dropped', "case 'gap': take(gapOf(event.payload)); break;", "case 'gap': break;"),
  plan('statuses are dropped', "case 'status_update': status(event.payload); break;",
    "case 'status_update': break;"),
  plan('a changed membership is not looked up',
    ": {});\n        refresh.add(id);\n        break;", ": {});\n        break;"),
  plan('a renamed chat is not looked up',
    'if (version > (of(id)?.chat.version ?? 0)) refresh.add(id);', ''),
  plan('a reset asks for nothing',
    "reset ||= event.payload.chat_id === null && event.payload.reason !== 'unknown_session';", ''),
  plan('caught_up is not heard', "case 'caught_up': caughtUp = true; break;",
    "case 'caught_up': break;"),
  acks('what is not stored is acknowledged',
    'const acked = Math.max(Math.min(row.prefix, limit), read);',
    'const acked = Math.max(row.prefix, row.chat.head_sequence, read);'),
  acks('nothing is acknowledged',
    'if (!ack) return;\n  acks.chats.add', 'if (ack) return;\n  acks.chats.add'),
  acks('what was said stays said', 'acks.said.delete(chat_id);', ''),
  outbox('two sends of a chat are under way', 'chats.add(item.chat_id);\n    return true;',
    'return true;'),
  outbox('a send without an answer fails', 'return { pause: true };\n  }',
    "return { failed: { code: 'UNAVAILABLE', detail: '' } };\n  }"),
  outbox('failed sends go again', "if (item.state !== 'due' || ", 'if ('),
  ticks('the tick is that of the last member', 'acked = Math.min(acked,', 'acked = Math.max('),
  ticks('the latch falls', 'delivered = Math.max(delivered, acked, seen);', 'delivered = acked;'),
  ticks('late statuses win',
    'const acked = update.last_acked_sequence < old.last_acked_sequence ? old : update;',
    'const acked = update;'),
  ticks('delivered is shown as read', "sequence <= latch.read ? 'read'",
    "sequence <= latch.delivered ? 'read'"),
  link('a cut connection is not opened again',
    "if (link.trying) link.at = 'connecting';\n        else after(input.ended);",
    "if (link.trying) link.at = 'connecting';"),
  link('a blocked transport is tried for ever',
    'link.transport = (link.transport + 1) % transports;', ''),
  link('a lost session is asked for again', "case 'gone':\n        effects.push({ do: 'forget' });",
    "case 'gone':"),
  link('a replaced device keeps its id', "effects.push({ do: 'rename' });\n          connect();",
    'connect();'),
  link('a wait never ends',
    "if (link.at === 'waiting' || link.at === 'refused' || link.at === 'live') connect();",
    "if (link.at === 'live') connect();"),
  ended('a page of a portal is an answer', 'return status === 204 || isObject(body)',
    'return status === 204 || true'),
  ended('a refusal of a proxy is final',
    'if (code !== undefined && status >= 400 && status < 500 && !REPEATABLE.includes(status)) {',
    'if (status >= 400 && status < 500 && !REPEATABLE.includes(status)) {'),
  ended('a busy server is refused for good', 'const REPEATABLE = [401, 408, 425, 429];',
    'const REPEATABLE = [401];'),
  chats('a new chat begins above what was acknowledged',
    'const base = baseOf(acknowledged, read);', 'const base = chat.head_sequence;'),
  chats('who is no member any more stays', 'left: chat.role === null,', 'left: false,'),
  lead('a frozen leader keeps the lead', "return ['steal'];", 'return [];'),
  catchUp('a chat of other data is taken',
    'if (reign.session && of !== incarnation()) return undefined;', ''),
  catchUp('a page of chats is taken late, as one of the data then', 'await know(chats, answer.of);',
    'if (!cursor) await know(chats);' +
    ' else reign.spawn(reign.pause(5_000).then(() => know(chats)));'),
  catchUp('a cursor of lost data is what is acknowledged now',
    'Math.max(isPresent(row) && row.chat', 'Math.max(row.chat'),
  catchUp('a session that is over is synced', 'if (!isPresentSession()) return false;', ''),
  catchUp('what came before the messages below it is not counted',
    'row.prefix > row.chat.head_sequence) refresh(id);', 'row.prefix < 0) refresh(id);'),
  catchUp('foreign data stay after a restore',
    "reset?.reason === 'restored'", "reset?.reason === ''"),
  catchUp('the cursor of a chat is its head',
    'row, cursor: cursorOf(row) }', 'row, cursor: row.chat.head_sequence }'),
  catchUp('foreign data stay above an accepted cursor',
    '...accepted.filter(({ row }) => !isPresent(row)).map(', '...[].map('),
  catchUp('a chat to which one comes back stays as it was',
    'if (owner.caughtUp()) whole();', ''),
  catchUp('a new session gets no cursors', 'if (!needsCursors()) return', 'if (older) return'),
  catchUp('a hole stays', 'const running = repairs.get(id) ?? fill(id);',
    'const running = repairs.get(id) ?? Promise.resolve();'),
  catchUp('a change is missed while a chat is asked for', 'if (again) refresh(id);', ''),
  catchUp('chats that are not listed stay',
    'for (const { chat } of before) if (!listed.has(chat.chat_id)) refresh(chat.chat_id);', ''),
  leader('the position is stored without the cursors',
    'const isSafe = (): boolean => catchUp.synced && discarded.size === 0;',
    'const isSafe = (): boolean => true;'),
  leader('holes are not repaired',
    'if (from > (data.chats.get(id)?.prefix ?? Infinity)) {', 'if (from < 0) {'),
  rest('requests do not name their user', ", 'X-User-ID': options.user };", ' };'),
  reign('answers about other data are taken',
    'if ((answer.of ?? present) === present || answer.status === 410) return answer;',
    'return answer;'),
  reign('a session that is gone is asked for until its stream ends',
    ' || answer.status === 410) return answer;', ') return answer;'),
  entries('what was read before a restore is told after it',
    'if (data.chats.get(id)?.incarnation !== incarnation) return;', ''),
  leader('what was handled before a restore counts after it',
    'if (now?.incarnation !== row.incarnation) break;', 'if (!now) break;'),
  timeline('a timeline is drawn without data after a stop', 'return seen ? old : [];',
    "return itemsOf(entries, [], undefined, owner.user, owner.commands, old);"),
  tab('a store that is being filled takes the place of the one before',
    'for (const item of before?.outbox ?? []) {',
    'data = news;\n      for (const item of before?.outbox ?? []) {'),
  tab('a sign-out refuses without another look',
    'await inOrder(() => data?.reread());\n        if', 'if'),
  tab('a later write overtakes an earlier one', 'inOrder(() => write(step))', 'write(step)'),
  tab('a send is in the data that were replaced only',
    'data && data.id !== used.id ? write(step) : result;', 'result;'),
  tab('what another tab has sent is queued again', 'before?.id !== news.id && ', ''),
  sender('the next send waits for ever', 'busy.delete(item.chat_id);', ''),
  acker('acknowledgements that got no answer are forgotten', 'unsaid(acks, entries);', ''),
  data('other tabs\' changes are not read',
    'for (const row of news.chats) chats.set(row.chat.chat_id, row);', ''),
  steps('an older leader may still store', 'if (term !== meta.term) throw', 'if (term < 0) throw'),
  steps('a late step changes newer data', 'meta.id !== wanted', 'meta.id !== id'),
  steps('a rebase keeps what is above', 'tables.dropEntries(id, through + 1, Infinity);', ''),
  steps('a relation is stored with its target', 'message: bare(entry.message)',
    'message: entry.message'),
  steps('an older state of a message takes the place of a newer one',
    'if (entry && isOlder(entry.message, message)) replace', 'if (entry?.message) replace'),
  steps('the list of chats keeps a text that was changed',
    'if (isOlder(row.last, message)) row.last = message;', ''),
  steps('a restored message keeps its change', 'if (revisionOf(message) <= through) continue;',
    'if (true) continue;'),
  steps('a change of a message that is lost is sent',
    'if ((item.relation?.sequence ?? 0) > through) tables.dropSend(item.ordinal);\n    else if',
    'if'),
  steps('what may have changed unseen is kept', 'tables.dropEntries(id, 0, row.base);', ''),
  plan('an answer that lacks a change is taken', 'if (message && lacks(', 'if (!message && lacks('),
  plan('what is below a gap is kept', 'if (!message) change(id,', 'if (false) change(id,'),
  chats('an older answer brings a text back',
    'told && last && told.sequence <= last.sequence && !isOlder(last, told)', 'false'),
  outbox('a change is sent as a message',
    'client_message_id, kind, relation, content, content_type',
    'client_message_id, content, content_type'),
  sender('a change goes to data that may be others', 'if (isUnsure(item)) {', 'if (false) {'),
  sender('a change that is refused stays in the outbox', '() => kind\n          ?',
    '() => false\n          ?'),
  items('a change that waits is shown as a message', ' || item.kind) continue;', ') continue;'),
  timeline('what only the page has stays as it was',
    'void ask();\n    if (fresh', 'if (fresh'),
  items('what was redacted is shown until the server answers',
    "content: '', attachments: [], metadata", 'attachments: [], metadata'),
  items('a reaction that waits empties its message',
    ".filter(({ kind }) => kind === 'edit' || kind === 'redact')", ''),
  reactions('what the server has counted is counted again',
    ' || at <= (counts.get(sequence)?.through ?? 0)) return;', ') return;'),
  reactions('a reaction that was undone counts', 'count(one.relation, from, -1, mine, null);', ''),
  reactions('a reaction of the user is nobody\'s', '...mine && { mine: by > 0, own },', ''),
  reactions('what a gap hides is not asked for',
    '(through ?? 0) < blind) found', 'blind < 0) found'),
  reactions('a server that counts nothing is asked again and again', 'through !== 0 && ', ''),
  reactions('what was undone is undone again', '(one) => one.own === sequence',
    '(one) => one.own === sequence || live.has(sequence)'),
  reactions('a gap that hides what was undone above it hides nothing',
    'blind = Math.max(blind, to, ...unseen.map(([, by]) => by));', 'blind = Math.max(blind, to);'),
  timeline('a message that a gap may have changed is only counted',
    'message && shown.has(from)', 'from === sequence'),
  timeline('what was counted once is not counted anew',
    'if (one.through >= (counts.get(sequence)?.through ?? 0)) counts',
    'if (!counts.has(sequence)) counts'),
  timeline('a page without messages ends the history', 'empty = await load(); while (empty);',
    'empty = await load() && false; while (empty);'),
];
