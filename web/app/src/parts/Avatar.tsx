// The first letter of a name, in a colour that follows from the name.

const COLOURS = 8;

export function Avatar({ name, small = false }: { name: string; small?: boolean }) {
  let sum = 0;
  for (const letter of name) sum = (sum * 31 + (letter.codePointAt(0) ?? 0)) % COLOURS;
  const first = Array.from(name)[0]?.toLocaleUpperCase() ?? '?';
  return (
    <span class={small ? 'avatar small' : 'avatar'} data-colour={sum} aria-hidden="true">
      {first}
    </span>
  );
}
