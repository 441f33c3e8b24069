// What is attached to a message: pictures, and the names of other files. The page loads this, and
// what uploads files, when it has a file: most messages have none.

import type { Attachment } from '@tidemark/client';
import { useEffect, useState } from 'preact/hooks';
import { addressOf } from '../files';
import type { Session } from '../session';
import { Icon } from './Icon';

export { sendFiles } from '../files';

interface Props {
  session: Session;
  chat: string;
  sequence: number;
  attachments: readonly Attachment[];
}

// Browsers show these in place. A larger picture is shown when it is opened.
const PICTURES = /^image\/(avif|gif|jpeg|png|webp)$/;
const MOST_BYTES = 10 << 20;

export function Attachments({ attachments, ...place }: Props) {
  return (
    <ul class="attachments" aria-label="Attachments">
      {attachments.map((attachment, index) => (
        <li key={attachment.s3_ref ?? index} data-testid="attachment">
          <File {...place} attachment={attachment} />
        </li>
      ))}
    </ul>
  );
}

function File(
  { session, chat, sequence, attachment }: Omit<Props, 'attachments'> & { attachment: Attachment },
) {
  const { s3_ref: id, content_type: type, size } = attachment;
  const name = attachment.name ?? 'Attachment';
  const isPicture = id && PICTURES.test(type ?? '');
  const shows = isPicture && (size ?? Infinity) <= MOST_BYTES;
  const [picture, setPicture] = useState<string>();
  const [failed, setFailed] = useState(false);
  const address = () => addressOf(session, chat, sequence, id ?? '');
  const fail = () => {
    setPicture(undefined);
    setFailed(true);
  };
  useEffect(() => {
    if (shows) address().then(setPicture, fail);
  }, []);
  const open = () => {
    address().then((url) => {
      const link = document.createElement('a');
      link.href = url;
      link.rel = 'noopener';
      if (isPicture) link.target = '_blank';
      link.click();
    }, fail);
  };
  const row = <>
    <Icon name="clip" />
    <span class="attachment-lines">
      <strong><bdi>{name}</bdi></strong>
      <span class="soft">{failed ? 'It cannot be loaded now.' : facts(attachment)}</span>
    </span>
  </>;
  if (!id) return <span class="file">{row}</span>;
  return (
    <button class="file" onClick={open}>
      {shows && !failed
        ? <img class="picture" src={picture} alt={name} onError={picture ? fail : undefined} />
        : row}
    </button>
  );
}

function facts({ content_type: type, size }: Attachment): string {
  return [type, typeof size === 'number' && sizeOf(size)].filter(Boolean).join(' · ');
}

function sizeOf(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB'];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit++;
  }
  return `${bytes < 10 && unit > 0 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit] ?? ''}`;
}
