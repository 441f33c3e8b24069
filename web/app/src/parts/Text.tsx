// The text of a message. It is always shown as text; addresses become links.

import { Fragment } from 'preact';

const ADDRESS = /\bhttps?:\/\/[^\s<>"]*[^\s<>".,;:!?')\]]/g;

export function Text({ text, search }: { text: string; search: string | undefined }) {
  const parts = [];
  let end = 0;
  for (const { 0: address, index } of text.matchAll(ADDRESS)) {
    parts.push(<Marked key={end} text={text.slice(end, index)} search={search} />);
    parts.push(
      <a key={index} href={address} target="_blank" rel="noopener noreferrer">
        <Marked text={address} search={search} />
      </a>,
    );
    end = index + address.length;
  }
  parts.push(<Marked key={end} text={text.slice(end)} search={search} />);
  return <>{parts}</>;
}

/** Marks what is searched for. */
function Marked({ text, search }: { text: string; search: string | undefined }) {
  const wanted = search?.trim().toLocaleLowerCase() ?? '';
  if (wanted === '' || text === '') return <>{text}</>;
  const lower = text.toLocaleLowerCase();
  // In some languages the lower case of a letter is longer, and places would differ.
  if (lower.length !== text.length) return <>{text}</>;
  const parts = [];
  let end = 0;
  for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, end)) {
    parts.push(<Fragment key={at}>{text.slice(end, at)}
      <mark>{text.slice(at, at + wanted.length)}</mark></Fragment>);
    end = at + wanted.length;
  }
  return <>{parts}{text.slice(end)}</>;
}
