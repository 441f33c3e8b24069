// The icons, drawn on a grid of 20.

const PATHS = {
  back: 'M12 4 6 10l6 6',
  bell: 'M5 14h10l-1.2-1.8V9a3.8 3.8 0 0 0-7.6 0v3.2L5 14Zm3.4 2.4a1.8 1.8 0 0 0 3.2 0',
  check: 'm5 10.5 3.4 3.5L15 6.5',
  clip: 'm14.5 9.5-4.6 4.6a3 3 0 0 1-4.3-4.3l5.2-5.1a2 2 0 0 1 2.9 2.8l-5.2 5.2a1 1 0 0 1-1.4-1.4' +
    'l4.4-4.4',
  close: 'm5.5 5.5 9 9m0-9-9 9',
  down: 'M10 4v11m-4.5-4.5L10 15l4.5-4.5',
  hood: 'M2.5 10h3l2-5.5 4 11 2.2-5.5h3.8',
  info: 'M10 9v5m0-7.6v.2M10 17.5a7.5 7.5 0 1 0 0-15 7.5 7.5 0 0 0 0 15Z',
  lock: 'M6 9V6.8a4 4 0 0 1 8 0V9m-9 0h10v7.5H5V9Z',
  more: 'M4.5 9.4a.6.6 0 1 0 0 1.2.6.6 0 0 0 0-1.2Zm5.5 0a.6.6 0 1 0 0 1.2.6.6 0 0 0 0-1.2Z' +
    'm5.5 0a.6.6 0 1 0 0 1.2.6.6 0 0 0 0-1.2Z',
  next: 'm5.5 8 4.5 4.5L14.5 8',
  people: 'M7.5 9a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6ZM2.5 16a5 5 0 0 1 10 0m.3-12.2a2.8 ' +
    '2.8 0 0 1 0 4.9m1.4 2.8a5 5 0 0 1 3.3 4.5',
  pin: 'M7 3h6m-5 0-.5 6L5 12h10l-2.5-3L12 3m-2 9v5.5',
  plug: 'M7 3v4m6-4v4M5 7h10v2.5a5 5 0 0 1-10 0V7Zm5 7.5V17',
  previous: 'm5.5 12 4.5-4.5 4.5 4.5',
  search: 'M9 14.5a5.5 5.5 0 1 0 0-11 5.5 5.5 0 0 0 0 11Zm4-1.5 3.5 3.5',
  send: 'M10 16V4.5m-5 5 5-5 5 5',
  write: 'M10 4.5H4.5v11h11V10m-7 1.5L15.6 4.4',
} as const;

export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg class="icon" viewBox="0 0 20 20" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
