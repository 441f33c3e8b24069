// Who is online: two pages, and @tidemark/client/presence in Node over the transports that Node 20
// has. The server runs with --last-seen, and keeps no files.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';

import { blockWith } from '../../web/client/blocks.mjs';
import { BASE, comeIn, newPair, openChat, openWindow, until } from './browser.mjs';
import { bundle } from './client.mjs';

const { createClient, presenceOf } = await bundle('test/withpresence.ts');

let alice, bob;

before(async () => {
  [alice, bob] = await Promise.all([openWindow(), openWindow()]);
});

after(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
});

const head = (page, want) => until(`the head says ${want}`, async () =>
  want.test(await page.getByTestId('chat-members').innerText()),
() => page.getByTestId('chat-members').innerText());

test('online, hidden, typing, and last seen, between two pages', async () => {
  const [a, b] = await newPair(alice, bob);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await head(alice.page, /^Direct chat$/);
  assert.equal(await alice.page.locator('.dot').count(), 0);
  await comeIn(bob.page, b);
  await head(alice.page, /^online$/);
  await alice.page.locator('.dot', { hasText: 'online' }).waitFor();
  await openChat(bob.page, a);
  await head(bob.page, /^online$/);

  // It is shown for six seconds.
  await until('Bob is typing', async () => {
    await bob.page.getByTestId('text').press('h');
    return /is typing/.test(await alice.page.getByTestId('chat-members').innerText());
  });
  await head(alice.page, /^online$/);

  await bob.page.getByTestId('menu').click();
  const visible = bob.page.getByTestId('visible');
  assert.equal(await visible.getAttribute('aria-checked'), 'true');
  await visible.click();
  await head(alice.page, /^Direct chat$/);
  await head(bob.page, /^Direct chat$/);
  await alice.page.locator('.dot').waitFor({ state: 'detached' });
  await bob.page.locator('[data-testid="visible"][aria-checked="false"]').waitFor();
  await visible.click();
  await head(alice.page, /^online$/);
  await head(bob.page, /^online$/);

  // A sign-out ends the session. Half a minute later the user counts as offline.
  await bob.page.getByTestId('text').fill('');
  await bob.page.getByTestId('logout').click();
  await bob.page.getByTestId('sign-in').or(bob.page.locator('form')).first().waitFor();
  await head(alice.page, /^last seen (just now|1 minute ago)$/);
  assert.deepEqual([...alice.errors, ...bob.errors], []);
});

test('a server without files shows no button to attach them', async () => {
  const [a, b] = await newPair(alice, bob);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await alice.page.getByTestId('text').waitFor();
  await until('live', async () =>
    await alice.page.getByTestId('connection').getAttribute('data-state') === 'live');
  assert.equal(await alice.page.getByTestId('attach').count(), 0);
});

const words = (value) => value?.members?.filter((one) => one.online).map((one) => one.user_id)
  .join(' ');

for (const transport of ['sse', 'longpoll']) {
  test(`presence in Node over ${transport}`, async (t) => {
    const users = ['one', 'two'].map((name) => `${name}-${transport}`);
    const [one, two] = users.map((user) => createClient({
      url: BASE, user, getToken: async () => `dev:${user}`, transports: [transport],
    }));
    t.after(() => Promise.all([one.stop(), two.stop()]));
    await one.start();
    const chat = await one.createChat({ type: 'direct', member_ids: [users[1]] });
    const view = presenceOf(one).chat(chat.id);
    const seen = [];
    const end = view.subscribe(() => {
      if (words(view.get()) !== seen.at(-1)) seen.push(words(view.get()));
    });
    await until('one is online', () => words(view.get()) === users[0], () => seen);
    await two.start();
    await until('two is, too', () => words(view.get()) === users.join(' '), () => seen);
    assert.equal(await presenceOf(two).visible(), true);
    await presenceOf(two).setVisible(false);
    await until('two hides', () => words(view.get()) === users[0], () => seen);
    await presenceOf(two).setVisible(true);
    await until('two shows', () => words(view.get()) === users.join(' '), () => seen);

    // The block of the client's README.
    const place = { textContent: '' };
    const block = blockWith('web/client/README.md', 'js', 'presenceOf(client)')
      .replace(/^import .*$/m, '');
    const unfollow = new Function('presenceOf', 'client', 'chat', 'document',
      `${block}; return unfollow;`)(presenceOf, one, chat, { querySelector: () => place });
    assert.equal(place.textContent, users.join(', '));
    await presenceOf(two).setVisible(false);
    await until('the page of the README', () => place.textContent === users[0], () => place);
    unfollow();
    end();
    assert.equal(view.get(), undefined);
  });
}
