// ○ on its way, ✓ stored, ✓✓ delivered, a filled ✓✓ read, ! not sent.

import type { Tick } from '@tidemark/client';

const ONE = 'm3 8.5 3 3 6.5-7';
const TWO = 'm1.5 8.5 3 3 6.5-7m-2.7 6 1 1 6.7-7';

export function TickMark({ tick }: { tick: Tick }) {
  return (
    <svg class="mark" viewBox="0 0 18 16" aria-hidden="true">
      {tick === 'sending' && <circle cx="9" cy="8" r="4.2" />}
      {tick === 'sent' && <path d={ONE} />}
      {(tick === 'delivered' || tick === 'read') && <path d={TWO} />}
      {tick === 'failed' && <path d="M9 3.5v5.6m0 2.8v.1" />}
    </svg>
  );
}
