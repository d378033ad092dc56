// Numbers as Python computes with them: exact sums, fractions of floating-point numbers, and digits of
// every script. What raises an error in Python throws one here: NaN must not pass for an answer.

// A sum with the rounding errors of every step added again (Neumaier).
export function sum(values) {
  let total = 0, lost = 0;
  for (const value of values) {
    const next = total + value;
    lost += Math.abs(total) >= Math.abs(value) ? total - next + value : value - next + total;
    total = next;
  }
  return total + (Number.isFinite(lost) ? lost : 0);
}

// The exact sum, rounded once: math.fsum. `partials` do not overlap, and their sum is exact.
export function fsum(values) {
  const odd = values.filter((value) => !Number.isFinite(value));
  if (odd.length) return odd.reduce((a, b) => a + b);
  const partials = [];
  for (const value of values) {
    let x = value, kept = 0;
    for (const partial of partials) {
      const [large, small] = Math.abs(x) < Math.abs(partial) ? [partial, x] : [x, partial];
      const high = large + small, low = small - (high - large);
      if (low) partials[kept++] = low;
      x = high;
    }
    if (!Number.isFinite(x)) throw new RangeError("a sum is too large");
    partials.length = kept;
    partials.push(x);
  }
  return rounded(partials);
}

// The sum of partials that do not overlap. Where two of them round to a tie, the next one decides.
function rounded(partials) {
  let k = partials.length - 1, high = k < 0 ? 0 : partials[k], low = 0;
  while (k > 0 && !low) {
    const large = high, small = partials[--k];
    high = large + small;
    low = small - (high - large);
  }
  if (k > 0 && low && low < 0 === partials[k - 1] < 0) {
    const twice = 2 * low, next = high + twice;
    if (next - high === twice) high = next;
  }
  return high;
}

// a / b, where a division by zero is an error.
export function quotient(a, b) {
  if (b === 0) throw new RangeError("a division by zero");
  return a / b;
}

// Whether two numbers are equal up to a relative tolerance: math.isclose.
export function isClose(a, b, tolerance) {
  if (a === b) return true;
  return Number.isFinite(a) && Number.isFinite(b) && Math.abs(a - b) <= tolerance * Math.max(Math.abs(a), Math.abs(b));
}

// 10 to a whole power, to the last bit; `**` is not that exact in every browser.
export const powerOfTen = (exponent) => Number(`1e${exponent}`);

// x = numerator / 2^shift, exactly.
export function fraction(x) {
  const bits = new DataView(new ArrayBuffer(8));
  bits.setFloat64(0, x);
  const raw = bits.getBigUint64(0), exponent = Number((raw >> 52n) & 0x7ffn), low = raw & 0xfffffffffffffn;
  const mantissa = exponent ? low | 0x10000000000000n : low, power = (exponent || 1) - 1075;
  const sign = raw >> 63n ? -1n : 1n;
  return power >= 0 ? [sign * (mantissa << BigInt(power)), 0n] : [sign * mantissa, BigInt(-power)];
}

// Division that rounds down, and its remainder, which is never negative.
export function divide(a, b) {
  const rest = ((a % b) + b) % b;
  return [(a - rest) / b, rest];
}

// How many numbers of an ascending list are not larger than x.
export function bisectRight(ascending, x) {
  let low = 0, high = ascending.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x < ascending[middle]) high = middle;
    else low = middle + 1;
  }
  return low;
}

// A text with the digits of all scripts as 0 to 9. The digits of a script follow each other, by tens.
export const asciiDigits = (text) => text.replace(/\p{Nd}/gu, (digit) => {
  let first = digit.codePointAt(0);
  while (/\p{Nd}/u.test(String.fromCodePoint(first - 1))) first -= 1;
  return String((digit.codePointAt(0) - first) % 10);
});
