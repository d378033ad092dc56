"""Rounds like the one before, checked by compiled code.

Most records are rounds that differ from the last one in their numbers alone. Here a run of them is
read where it lies and held against all that `verify` would check: bytes, form, chain, payments,
amounts. A record is either found right or left to `verify`, which says what is wrong with it, or
finds it only unusual; so nothing can be found wrong here, and what is found right must be so. Like
`verify` this shares no code with what writes the books.

A number stands in its canonical form if the number that was read is printed in these very digits:
reading may be careless, printing must be right. It is Schubfach (Giulietti, "The Schubfach way to
render doubles", 2020): with v = c·2^q and k = ⌊log₁₀ 2^q⌋, the shortest decimal that reads back as
v is one of the multiples of 10^(k+1) or 10^k next to v, and 128 bits of 10^−k tell which.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

__all__ = ["Lines", "read_number"]

_U = np.uint64
_instruction: Any = intrinsic
_compiled: Any = njit(cache=True)
_inlined: Any = njit(cache=True, inline="always")
_LOWEST, _HIGHEST = -292, 324  # powers of ten that printing a float64 can need


def _leading_bits(k: int) -> int:
    """10^k · 2^(127 − ⌊log₂ 10^k⌋), rounded up: 128 bits."""
    shift = 127 - (k * 1741647 >> 19)
    above = 10 ** max(k, 0) << max(shift, 0)
    below = 10 ** max(-k, 0) << max(-shift, 0)
    return -(-above // below)


_POWERS = np.array(
    [divmod(_leading_bits(k), 2**64) for k in range(_LOWEST, _HIGHEST + 1)], dtype=np.uint64
)
_TENS = np.array([10**k for k in range(20)], dtype=np.uint64)


# What the processor does in a step and Python cannot say


@_instruction
def _product(_: Any, high: Any, low: Any, factor: Any) -> Any:
    """The upper and the middle 64 bits of a product of 192."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        wide, word = ir.IntType(128), ir.IntType(64)
        high, low, factor = (builder.zext(value, wide) for value in values)
        below = builder.lshr(builder.mul(low, factor), ir.Constant(wide, 64))
        total = builder.add(builder.mul(high, factor), below)
        parts = [builder.lshr(total, ir.Constant(wide, 64)), total]
        both = [builder.trunc(part, word) for part in parts]
        return context.make_tuple(builder, signature.return_type, both)

    pair = types.UniTuple(types.uint64, 2)
    return pair(types.uint64, types.uint64, types.uint64), generate


@_instruction
def _leading_zeros(_: Any, a: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.ctlz(values[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@_instruction
def _trailing_zeros(_: Any, a: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.cttz(values[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@_instruction
def _float(_: Any, bits: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, values: Any) -> Any:
        return builder.bitcast(values[0], ir.DoubleType())

    return types.float64(types.uint64), generate


@_instruction
def _eight(_: Any, text: Any, at: Any) -> Any:
    """Eight bytes from a place on, as a number, the first of them lowest."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        word = builder.bitcast(builder.gep(array.data, [values[1]]), ir.IntType(64).as_pointer())
        return builder.load(word, align=1)

    return types.uint64(text, types.int64), generate


# Numbers


@_inlined
def _printed(bits: Any) -> tuple[Any, Any]:
    """The shortest digits of a positive normal float64, d·10^e; d is no multiple of 10."""
    fraction = bits & _U(0xFFFFFFFFFFFFF)
    c = fraction | _U(1 << 52)
    q = np.int64(bits >> _U(52)) - 1075
    odd = c & _U(1)
    # Below a power of two the neighbour is nearer.
    nearer = fraction == 0 and q > -1074
    k = (q * 1262611 - (524031 if nearer else 0)) >> 22
    shift = _U(q + ((-k * 1741647) >> 19) + 1)
    high, low = _POWERS[-k - _LOWEST, 0], _POWERS[-k - _LOWEST, 1]
    middle = _times(high, low, (c << _U(2)) << shift)
    least = _times(high, low, ((c << _U(2)) - (_U(1) if nearer else _U(2))) << shift) + odd
    most = _times(high, low, ((c << _U(2)) + _U(2)) << shift) - odd
    ones = middle >> _U(2)
    tens = ones // _U(10)
    # Multiples of ten and of one, next below and next above: which are between the neighbours'
    # boundaries. All is computed before anything is chosen, for no choice could be foreseen.
    ten_below, ten_above = least <= tens * _U(40), tens * _U(40) + _U(40) <= most
    one_below, one_above = least <= ones * _U(4), ones * _U(4) + _U(4) <= most
    half = ones * _U(4) + _U(2)
    nearer_above = (middle > half) | ((middle == half) & (ones & _U(1) == 1))
    up = one_above if one_below != one_above else nearer_above
    shorter = ten_below != ten_above
    d = tens + _U(ten_above) if shorter else ones + _U(up)
    e = k + shorter
    while d % _U(10) == 0:
        d //= _U(10)
        e += 1
    return d, e


@_inlined
def _times(high: Any, low: Any, factor: Any) -> Any:
    """The leading bits of a product; the last of them is set if any below it is."""
    upper, lower = _product(high, low, factor)
    return upper | _U(lower > 1)


@_inlined
def _nearest(d: Any, e: int) -> Any:
    """The bits of a float64 next to d·10^e, nearly always the nearest; 0 if it is not normal."""
    if not _LOWEST <= e <= _HIGHEST:
        return _U(0)
    lead = _leading_zeros(d)
    factor = d << _U(lead)
    high, low = _POWERS[e - _LOWEST, 0], _POWERS[e - _LOWEST, 1]
    upper, _ = _product(high, low, factor)
    top = upper >> _U(63)
    c = ((upper >> (top + _U(9))) + _U(1)) >> _U(1)
    exponent = (e * 1741647 >> 19) + 63 - lead + np.int64(top) + 1023
    if not 0 < exponent < 2046:
        return _U(0)
    return (_U(exponent) << _U(52)) + c - _U(1 << 52)


@_inlined
def _digits(text: Any, at: int, d: Any) -> tuple[Any, int]:
    """Digits from a place on: the number that they lengthen, and where they end."""
    while True:
        word = _eight(text, at) ^ _U(0x3030303030303030)
        # The lowest bit that is set tells the first byte that is no digit.
        others = ((word + _U(0x7676767676767676)) | word) & _U(0x8080808080808080)
        if others != 0:
            break
        d = d * _U(100000000) + _joined(word)
        at += 8
    many = _trailing_zeros(others) >> 3
    if many == 0:
        return d, at
    return d * _TENS[many] + _joined(word << _U(64 - 8 * many)), at + many


@_inlined
def _joined(word: Any) -> Any:
    """Eight digits, a byte each, the first of them lowest: two by two, four by four, all."""
    word = ((word & _U(0x0F0F0F0F0F0F0F0F)) * _U(2561)) >> _U(8)
    word = ((word & _U(0x00FF00FF00FF00FF)) * _U(6553601)) >> _U(16)
    return ((word & _U(0x0000FFFF0000FFFF)) * _U(42949672960001)) >> _U(32)


@_inlined
def read_number(text: Any, at: int) -> tuple[float, int]:
    """A float64 that stands as `repr` writes it, and where it ends; −1 there if it does not.

    Zero, what is not a normal float64 and what is no number count as not standing so.
    """
    negative = text[at] == 45
    start = at + negative
    if text[start + 1] == 46 and 48 <= text[start] <= 57:  # as in most
        d, point = _U(text[start] - 48), start + 1
    else:
        d, point = _digits(text, start, _U(0))
    at = point
    dotted = text[point] == 46
    if dotted:
        d, at = _digits(text, point + 1, d)
    whole, part = point - start, at - point - dotted
    if whole + part > 19:  # with so many that are not zero, d would have passed 64 bits unseen
        zeros = whole == 1 and text[start] == 48 and (part == 19 or text[start + 2] == 48)
        if part > 20 or not zeros:
            return 0.0, -1
    e, written = -part, 0
    if text[at] == 101:
        power, end = _digits(text, at + 2, _U(0))
        written = end - at - 2
        long = written == 3 and text[at + 2] != 48
        if not (text[at + 1] == 43 or text[at + 1] == 45) or not (written == 2 or long):
            return 0.0, -1
        e += np.int64(power) if text[at + 1] == 43 else -np.int64(power)
        at = end
    if d == 0:
        return 0.0, -1
    while d % _U(10) == 0:
        d //= _U(10)
        e += 1
    bits = _nearest(d, e)
    if bits == 0 or _printed(bits) != (d, e):
        return 0.0, -1
    count = (64 - _leading_zeros(d)) * 1233 >> 12
    count += d >= _TENS[count]
    place = count + e  # of the point, from the first digit on
    if -4 < place <= 16:
        right = written == 0 and whole == max(place, 1) and part == max(count - place, 1)
    else:
        right = written > 0 and whole == 1 and part == count - 1 and dotted == (part > 0)
    value = _float(bits)
    return -value if negative else value, at if right else -1


# Parts of a record: each returns where it ends, or −1 if it is not there, as after another −1


@_inlined
def _after_comma(text: Any, at: int, i: int) -> int:
    """Where the next of several begins; before the first there is no comma."""
    if at < 0 or i == 0:
        return at
    return at + 1 if text[at] == 44 else -1


@_compiled
def _numbers(text: Any, at: int, values: Any) -> int:
    """As many as there is room for, between commas."""
    for i in range(values.size):
        at = _after_comma(text, at, i)
        if at < 0:
            return -1
        values[i], at = read_number(text, at)
    return at


@_compiled
def _wholes(text: Any, at: int, values: Any) -> int:
    """The same, of whole numbers below 10^18."""
    for i in range(values.size):
        at = _after_comma(text, at, i)
        if at < 0:
            return -1
        negative = text[at] == 45
        start = at + negative
        d, at = _digits(text, start, _U(0))
        many = at - start
        if not 0 < many < 19 or (text[start] == 48 and (many > 1 or negative)):
            return -1
        values[i] = -np.int64(d) if negative else np.int64(d)
    return at


@_compiled
def _same(text: Any, at: int, other: Any, start: int, end: int) -> int:
    """The same bytes as elsewhere."""
    while at >= 0 and start + 8 <= end:
        at = at + 8 if _eight(text, at) == _eight(other, start) else -1
        start += 8
    while at >= 0 and start < end:
        at = at + 1 if text[at] == other[start] else -1
        start += 1
    return at


@_compiled
def _hash(text: Any, at: int, digest: Any) -> int:
    """A hash in hexadecimal digits."""
    if at < 0:
        return -1
    for i in range(2 * digest.size):
        half = digest[i // 2] & 15 if i % 2 else digest[i // 2] >> 4
        if text[at + i] != half + (48 if half < 10 else 87):
            return -1
    return at + 2 * digest.size


_TIME = np.frombuffer(b"0000-00-00T00:00:00Z", np.uint8)


@_compiled
def _time(text: Any, at: int) -> int:
    if at < 0:
        return -1
    for i in range(_TIME.size):
        byte = text[at + i]
        if not 48 <= byte <= 57 if _TIME[i] == 48 else byte != _TIME[i]:
            return -1
    return at + _TIME.size


# What the parts must say together


@_compiled
def _charged(statistics: Any, price: float, payments: Any) -> bool:
    """Whether p_i = C n_i − mean_{j≠i} C n_j, within half of what `verify` allows for rounding."""
    whole, lost, size = 0.0, 0.0, 0.0
    for s in statistics:  # the sum, and what each addition loses
        if s < 0:
            return False
        size = max(size, s)
        levy = price * s
        total = whole + levy
        lost += (whole - total) + levy if whole >= levy else (levy - total) + whole
        whole = total
    if not price * size < 1e300:  # or infinities would hide what is wrong
        return False
    whole += lost
    off, largest = 0.0, 0.0
    for i in range(statistics.size):
        levy = price * statistics[i]
        right = levy - (whole - levy) / (statistics.size - 1)
        largest = max(largest, abs(right))
        off = max(off, abs(right - payments[i]))
    return off <= 0.5 * (1e-9 * largest + 1e-12 * price * size)


@_compiled
def _rounded(payments: Any, power: float, amounts: Any) -> bool:
    """Whether these are the amounts by largest remainder, whatever rounding does here."""
    n, largest, total = payments.size, 0.0, 0.0
    for p in payments:
        largest = max(largest, abs(p * power))
        total -= np.floor(p * power)
    if not largest < 2.0**40:
        return False
    each = np.floor(total / n)
    doubt = 2.0**-52 * (largest + 1)
    odd, up, first, last, least, most = 0, 0.0, 1.0, 0.0, 1.0, 0.0
    for i in range(n):  # without a branch, for which members are rounded up cannot be foreseen
        floor = np.floor(payments[i] * power)
        rest = payments[i] * power - floor
        raised = amounts[i] - floor - each
        odd += raised * (raised - 1) != 0
        up += raised
        first, last = min(first, rest), max(last, rest)
        least, most = min(least, rest + (1 - raised)), max(most, rest - raised)
    if odd or up != total - each * n or not doubt < first <= last < 1 - doubt:
        return False
    return up == 0 or least - most > 2 * doubt


@_compiled
def _count(
    text: Any,
    starts: Any,
    digests: Any,
    fixed: Any,
    cuts: Any,
    t: int,
    sequence: int,
    price: float,
    power: float,
    sums: Any,
) -> int:
    n = sums.size
    amounts, own = np.empty(n, np.int64), np.empty(1, np.int64)
    payments, statistics = np.empty(n), np.empty(n)
    for k in range(starts.size - 1):
        at = _same(text, starts[k], fixed, cuts[0], cuts[1])
        at = _wholes(text, at, amounts)
        at = _same(text, at, fixed, cuts[1], cuts[2])
        at = _numbers(text, at, payments)
        at = _same(text, at, fixed, cuts[2], cuts[3])
        at = _hash(text, at, digests[k])
        at = _same(text, at, fixed, cuts[3], cuts[4])
        at = _wholes(text, at, own)
        at = _same(text, at if own[0] == t + k + 1 else -1, fixed, cuts[4], cuts[5])
        at = _wholes(text, at, own)
        at = _same(text, at if own[0] == sequence + k + 1 else -1, fixed, cuts[5], cuts[6])
        at = _numbers(text, at, statistics)
        at = _same(text, at, fixed, cuts[6], cuts[7])
        at = _time(text, at)
        at = _same(text, at, fixed, cuts[7], cuts[8])
        if at != starts[k + 1] - 1:
            return k
        if not _charged(statistics, price, payments) or not _rounded(payments, power, amounts):
            return k
        sums += amounts
    return starts.size - 1


class Lines:
    """Records to be checked, with their hashes."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = lines
        digests = [sha256(line).digest() for line in lines]
        self.hashes = [digest.hex() for digest in digests]
        self._digests = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)
        # Room to read on after the last; a zero is like nothing in a record.
        self._text = np.frombuffer(b"\n".join([*lines, bytes(64)]), np.uint8)
        self._starts = np.cumsum([0, *(len(line) + 1 for line in lines)])

    def alike(
        self,
        first: int,
        last: int,
        fixed: Sequence[bytes],
        previous: str,
        t: int,
        sequence: int,
        price: float,
        power: float,
        members: int,
    ) -> tuple[int, list[int]]:
        """How many records follow that are right and like the one before, and their sums.

        Args:
            first: the record to begin with.
            last: where to stop at the latest.
            fixed: the eight pieces of the record before that stand around its amounts, payments,
                hash, round, sequence, statistics and time.
            previous: its hash.
            t: its round.
            sequence: its place in the chain.
            price: C, the same for all members and rounds.
            power: units in one.
            members: how many took part.
        """
        digests = np.empty((last - first + 1, 32), np.uint8)
        digests[0] = np.frombuffer(bytes.fromhex(previous), np.uint8)
        digests[1:] = self._digests[first:last]
        sums = np.zeros(members, np.int64)
        found = _count(
            self._text,
            self._starts[first : last + 1],
            digests,
            np.frombuffer(b"".join([*fixed, bytes(8)]), np.uint8),
            np.cumsum([0, *map(len, fixed)]),
            t,
            sequence,
            price,
            power,
            sums,
        )
        return found, sums.tolist()
