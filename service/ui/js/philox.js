// The uniform number of a token: Philox 4×64 with ten rounds (Salmon et al. 2011), as the server draws it.
// Always: a function of seed, sample and position alone.

const MASK = (1n << 64n) - 1n;
const MULTIPLIERS = [0xd2e7470ee14c6c93n, 0xca5a826395121157n];
const WEYL = [0x9e3779b97f4a7c15n, 0xbb67ae8584caa73bn];

/** In [0, 1): the first 53 bits of the block with key (seed, sample) and counter (position, 0, 0, 0). */
export function uniform(seed, sample, position) {
  let counter = [BigInt(position), 0n, 0n, 0n];
  let key = [BigInt(seed), BigInt(sample)];
  for (let round = 0; round < 10; round += 1) {
    const first = MULTIPLIERS[0] * counter[0];
    const second = MULTIPLIERS[1] * counter[2];
    counter = [
      (second >> 64n) ^ counter[1] ^ key[0],
      second & MASK,
      (first >> 64n) ^ counter[3] ^ key[1],
      first & MASK,
    ];
    key = key.map((word, index) => (word + WEYL[index]) & MASK);
  }
  return Number(counter[0] >> 11n) * 2 ** -53;
}
