// The reactions to a message. The page loads this when a message has some, or gets the first one.

import type { ChatHandle, EmojiCount } from '@tidemark/client';
import { useState } from 'preact/hooks';

/** What the menu of a message offers. Other clients may give others. */
export const EMOJI = ['👍', '❤️', '😂', '😮', '😢', '🎉'];

/** Gives a reaction, or takes it back. While one waits for the server, it stays as it is. */
export async function toggle(
  chat: ChatHandle, sequence: number, emoji: string, reactions: readonly EmojiCount[] = [],
): Promise<void> {
  const known = reactions.find((one) => one.emoji === emoji);
  if (!known?.mine) await chat.react(sequence, emoji);
  else if (known.own) await chat.unreact(known.own);
}

/** How many emoji are shown below a message, unless the user asks for all. */
const MOST = 12;

/** Returns the most frequent ones. Of equal ones, those of the user come first, then the oldest. */
function mostFrequent(reactions: readonly EmojiCount[]): readonly EmojiCount[] {
  const kept = [...reactions]
    .sort((a, b) => b.count - a.count || Number(b.mine) - Number(a.mine)).slice(0, MOST);
  return reactions.filter((one) => kept.includes(one));
}

interface Props {
  chat: ChatHandle;
  sequence: number;
  reactions: readonly EmojiCount[];
  may: boolean;
  /** The user stands at the row of the message. */
  active: boolean;
}

export function Reactions({ chat, sequence, reactions, may, active }: Props) {
  const [all, setAll] = useState(false);
  const shown = all ? reactions : mostFrequent(reactions);
  const rest = reactions.length - shown.length;
  return (
    <span class="reactions" role="group" aria-label="Reactions">
      {shown.map(({ emoji, count, mine, own }) => (
        <button key={emoji} class="reaction" aria-pressed={mine} disabled={!may}
          tabIndex={active ? 0 : -1} data-testid="reaction"
          onClick={({ currentTarget }) => {
            // The button goes, and the focus stays at the message.
            if (own && count === 1) {
              currentTarget.closest<HTMLElement>('.row')?.focus({ preventScroll: true });
            }
            toggle(chat, sequence, emoji, reactions).catch(() => {
              // The page says what is wrong with its storage.
            });
          }}><bdi>{emoji}</bdi> {count}</button>
      ))}
      {rest > 0 && <button class="reaction" tabIndex={active ? 0 : -1} data-testid="more-reactions"
        aria-label={`Show ${rest} more`}
        onClick={({ currentTarget }) => {
          currentTarget.closest<HTMLElement>('.row')?.focus({ preventScroll: true });
          setAll(true);
        }}>+{rest}</button>}
    </span>
  );
}
