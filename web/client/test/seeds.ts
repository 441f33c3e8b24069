/** The seeds of a random test: that of TIDEMARK_SEED, or as many as are asked for. */
export function seedsOf(count: number): number[] {
  const { TIDEMARK_SEED } = process.env;
  if (TIDEMARK_SEED) return [Number(TIDEMARK_SEED)];
  const first = Math.floor(Math.random() * 2 ** 31);
  return Array.from({ length: count }, (_, i) => first + i);
}
