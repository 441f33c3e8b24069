// A seeded source of random numbers.

/** Gives the same numbers for the same seed. It is no source of secrets. */
export class Dice {
  #a: number;
  #b: number;
  #c: number;
  #d = 1;

  /** `seed` and `stream` together name a sequence. */
  constructor(seed: number, stream = 0) {
    this.#a = seed | 0;
    this.#b = (seed / 0x1_0000_0000) | 0;
    this.#c = stream | 0;
    for (let i = 0; i < 12; i++) this.next();
  }

  /** Returns an integer from 0 to 2³² − 1 (sfc32). */
  next(): number {
    const t = (this.#a + this.#b + this.#d) | 0;
    this.#d = (this.#d + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (this.#c << 21) | (this.#c >>> 11);
    this.#c = (this.#c + t) | 0;
    return t >>> 0;
  }

  /** Returns an integer from 0 to n − 1. */
  roll(n: number): number {
    return Math.floor((this.next() / 0x1_0000_0000) * n);
  }

  /** Returns true in one of n calls. */
  oneIn(n: number): boolean {
    return this.roll(n) === 0;
  }

  /** Returns an element. The list must not be empty. */
  pick<T>(list: readonly T[]): T {
    const found = list[this.roll(list.length)];
    if (found === undefined) throw new Error('there is nothing to pick from');
    return found;
  }

  bytes(n: number): Uint8Array {
    const bytes = new Uint8Array(n);
    for (let i = 0; i < n; i++) bytes[i] = this.next() & 0xff;
    return bytes;
  }

  /** Returns n characters of a–z and 2–7. */
  text(n: number): string {
    let text = '';
    for (let i = 0; i < n; i++) text += 'abcdefghijklmnopqrstuvwxyz234567'[this.next() & 31] ?? '';
    return text;
  }
}
