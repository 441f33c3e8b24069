// Files in the page: a picture and a text go up, come down, and are shown to the other one.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { caughtUp, comeIn, newPair, openChat, openWindow, until } from './browser.mjs';

// A PNG of one pixel.
const PICTURE = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9' +
  'QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');

let alice, bob;

before(async () => {
  [alice, bob] = await Promise.all([openWindow(), openWindow()]);
});

after(async () => {
  await Promise.all([alice?.close(), bob?.close()]);
});

const isShown = (page) => until('the picture is shown', () => page.locator('img.picture')
  .evaluateAll((all) => all.length === 1 && all[0].naturalWidth === 1));

test('a picture and a text: sent, shown, saved, and there after a reload', async () => {
  const [a, b] = await newPair(alice, bob);
  await comeIn(alice.page, a);
  await comeIn(bob.page, b);
  await openChat(alice.page, b);
  await openChat(bob.page, a);
  await alice.page.getByTestId('attach').setInputFiles([
    { name: 'cat.png', mimeType: 'image/png', buffer: PICTURE },
    { name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('a small file') },
  ]);
  assert.match(await alice.page.getByTestId('chosen').innerText(), /^cat\.png\s+note\.txt/);
  await alice.page.getByTestId('text').fill('look');
  await alice.page.getByTestId('send').click();
  await alice.page.getByTestId('chosen').waitFor({ state: 'detached' });
  for (const { page } of [alice, bob]) {
    await page.getByTestId('content').filter({ hasText: 'look' }).waitFor();
    await isShown(page);
  }
  const saved = bob.page.waitForEvent('download');
  await bob.page.getByTestId('attachment').filter({ hasText: 'note.txt' }).click();
  const download = await saved;
  assert.equal(download.suggestedFilename(), 'note.txt');
  assert.equal(await readFile(await download.path(), 'utf8'), 'a small file');

  await bob.page.reload();
  await caughtUp(bob.page);
  await isShown(bob.page);
  assert.deepEqual([...alice.errors, ...bob.errors], []);
});

test('a send after a failed one uploads only what is missing', async () => {
  const [a, b] = await newPair(alice, bob);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  const announced = [];
  await alice.page.route('**/api/v1/attachments', (route) => {
    const { name } = route.request().postDataJSON();
    announced.push(name);
    return announced.length === 2 ? route.abort() : route.continue();
  });
  await alice.page.getByTestId('attach').setInputFiles(['one.txt', 'two.txt'].map((name) => (
    { name, mimeType: 'text/plain', buffer: Buffer.from(name) })));
  await alice.page.getByTestId('send').click();
  await alice.page.getByRole('alert').filter({ hasText: 'cannot be sent now' }).waitFor();
  await alice.page.getByTestId('send').click();
  await alice.page.getByTestId('chosen').waitFor({ state: 'detached' });
  await alice.page.getByTestId('attachment').nth(1).waitFor();
  assert.deepEqual(announced, ['one.txt', 'two.txt', 'two.txt']);
  assert.deepEqual(alice.errors, []);
});

test('an empty file is refused in words, and stays chosen', async () => {
  const [a, b] = await newPair(alice, bob);
  await comeIn(alice.page, a);
  await openChat(alice.page, b);
  await alice.page.getByTestId('attach').setInputFiles([
    { name: 'empty.txt', mimeType: 'text/plain', buffer: Buffer.from('') },
  ]);
  await alice.page.getByTestId('send').click();
  await alice.page.getByRole('alert').filter({ hasText: 'A file is empty.' }).waitFor();
  await alice.page.getByTestId('chosen').waitFor();
  await alice.page.getByRole('button', { name: 'Remove empty.txt' }).click();
  await alice.page.getByTestId('chosen').waitFor({ state: 'detached' });
  assert.deepEqual(alice.errors, []);
});
