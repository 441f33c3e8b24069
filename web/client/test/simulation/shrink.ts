// Makes a failing list of decisions smaller.

/**
 * Returns a part of the list that still fails, from which no element can be left out. It is
 * Zeller's ddmin. `fails` is asked at most `most` times.
 */
export async function ddmin<T>(
  list: readonly T[], fails: (part: readonly T[]) => Promise<boolean>, most = 400,
): Promise<readonly T[]> {
  let current = list;
  let parts = 2;
  let asked = 0;
  while (current.length >= 2 && asked < most) {
    const size = Math.ceil(current.length / parts);
    let smaller: readonly T[] | undefined;
    for (let from = 0; from < current.length && asked < most; from += size) {
      const rest = [...current.slice(0, from), ...current.slice(from + size)];
      asked++;
      if (rest.length < current.length && await fails(rest)) {
        smaller = rest;
        break;
      }
    }
    if (smaller !== undefined) {
      current = smaller;
      parts = Math.max(parts - 1, 2);
    } else if (size === 1) {
      break;
    } else {
      parts = Math.min(parts * 2, current.length);
    }
  }
  return current;
}
