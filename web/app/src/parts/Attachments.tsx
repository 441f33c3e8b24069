// What is attached to a message. The server keeps no files: a name, a type and a size are shown.

import type { Attachment } from '@tidemark/client';
import { Icon } from './Icon';

export function Attachments({ attachments }: { attachments: readonly Attachment[] }) {
  return (
    <ul class="attachments" aria-label="Attachments">
      {attachments.map((attachment, index) => (
        <li key={index} data-testid="attachment">
          <Icon name="clip" />
          <span class="attachment-lines">
            <strong><bdi>{attachment.name ?? 'Attachment'}</bdi></strong>
            <span class="soft">{facts(attachment)}</span>
          </span>
        </li>
      ))}
    </ul>
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
