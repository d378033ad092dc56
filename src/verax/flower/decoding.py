"""A serialised array of Flower's, decoded without trusting it.

The bytes are a `.npy` file, whose header is a Python dictionary. NumPy's reader evaluates it with
Python's parser, which malformed headers bring to errors of many kinds (RecursionError, MemoryError,
tokenize.TokenError). NumPy always writes the header in the same form, so one regular expression
reads it, and everything else is refused.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from verax.text import shown

#: NumPy's kinds of integers and of true or false.
INTEGERS = "iub"

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 10_000
_HEADER = re.compile(
    r"\{'descr': ?'(?P<dtype>[<>|=]?[biufcmMOSUV]\d{0,4})', ?"
    r"'fortran_order': ?(?P<fortran>True|False), ?"
    r"'shape': ?\((?P<shape>(?:\d{1,18}(?:, ?\d{1,18}){0,63},?)?)\),? ?\} *\n"
)


def decode(array: Array) -> NDArray[Any]:
    """The array as a view of its bytes; a ValueError if the bytes are not those of numbers."""
    if array.stype != "numpy.ndarray":
        raise ValueError(f"serialised as {shown(array.stype)}, must be numpy.ndarray")
    data = array.data
    begin = {b"\x01\x00": 10, b"\x02\x00": 12, b"\x03\x00": 12}.get(data[6:8])
    if data[:6] != _MAGIC or begin is None or len(data) < begin:
        raise ValueError("does not begin as a NumPy file")
    end = begin + int.from_bytes(data[8:begin], "little")
    if end > min(len(data), _MAX_HEADER):
        raise ValueError(f"has a header of {end} bytes, must be at most {_MAX_HEADER} and complete")
    header = _HEADER.fullmatch(data[begin:end].decode("latin-1"))
    if header is None:
        raise ValueError("has a header that NumPy does not write")
    dtype = _dtype(header["dtype"])
    shape = tuple(int(length) for length in re.findall(r"\d+", header["shape"]))
    size = math.prod(shape)
    if len(data) - end != size * dtype.itemsize:
        raise ValueError(f"has the wrong number of bytes for {dtype} of the shape {shown(shape)}")
    flat = np.frombuffer(data, dtype, count=size, offset=end)
    return flat.reshape(shape[::-1]).T if header["fortran"] == "True" else flat.reshape(shape)


def _dtype(text: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(text)
    except TypeError:
        raise ValueError(f"has the type {text!r}, which NumPy does not know") from None
    if dtype.hasobject:
        raise ValueError("holds Python objects")
    if not dtype.itemsize:
        raise ValueError(f"has the type {text!r}, must be numbers")
    return dtype
