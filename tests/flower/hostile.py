"""What a hostile member may put into a reply: malformed arrays, and changes of good ones."""

import io
import struct

import numpy as np
from flwr.app import Array


def npy(header, body=b"", version=1):
    """A `.npy` file with any header."""
    text = header.encode("latin-1")
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + body


def good_bytes(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def described(descr="'<f4'", fortran="False", shape="(37,)"):
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


#: Headers that brought NumPy's reader, or this layer, to errors of many kinds.
MALFORMED = {
    "an open bracket (TokenError)": npy("{'descr': '<f4', 'shape': (\n", version=2),
    "an open bracket, version 1": npy("{'descr': '<f4', 'shape': ("),
    "nested brackets (RecursionError)": npy("(" * 9_000 + "\n"),
    "nested lists (MemoryError)": npy("[" * 4_000 + "]" * 4_000 + "\n"),
    "nested negations": npy("-" * 9_000 + "1\n"),
    "a huge header": npy("{" + " " * 60_000),
    "a longer header than bytes": b"\x93NUMPY\x02\x00\xff\xff\xff\xff{",
    "no bytes": b"",
    "the magic alone": b"\x93NUMPY",
    "an unknown version": b"\x93NUMPY\x09\x00\x00\x00",
    "a huge shape": npy(described(shape="(999999999999999999, 999999999999999999)")),
    "a shape of ten thousand digits": npy(described(shape=f"({'9' * 9_000},)")),
    "a negative shape": npy(described(shape="(-37,)"), bytes(4 * 37)),
    "two negative lengths": npy(described(shape="(-37, -1)"), bytes(4 * 37)),
    "a hundred dimensions": npy(described(shape="(" + "1, " * 100 + ")"), bytes(4)),
    "a shape of truth": npy(described(shape="(True,)"), bytes(4)),
    "a type of size zero": npy(described("'|S0'")),
    "Python objects": npy(described("'|O'"), bytes(8 * 37)),
    "a record type": npy(described("[('a', '<f4')]"), bytes(4 * 37)),
    "an unknown type": npy(described("'<q9'"), bytes(9 * 37)),
    "a deprecated type": npy(described("'|a4'"), bytes(4 * 37)),
    "a type of dates": npy(described("'<M8[ns]'"), bytes(8 * 37)),
    "a missing field": npy("{'descr': '<f4', 'shape': (37,), }\n", bytes(4 * 37)),
    "null characters": npy("\0" * 100),
    "code": npy("__import__('os').system('true')\n"),
    "one byte too many": good_bytes(np.zeros(37, np.float32)) + b"\0",
}


def array_of(data, dtype="float32", shape=(37,), stype="numpy.ndarray"):
    return Array(dtype, shape, stype, data)


PIECES = [
    b"(", b")", b"[", b"]", b"{", b"}", b"'", b'"', b",", b":", b"\\", b"\n", b"\0", b"-1",
    b"9" * 30, b"'descr'", b"'shape'", b"'|O'", b"'<f8'", b"'>f4'", b"'<c8'", b"True", b"None",
    b"\x93NUMPY", b"\x02\x00", b"\x03\x00", b"\xff\xff\xff\xff", b"lambda: 0", b"0x7f", b"1e9",
    b"#", b"\t",
]  # fmt: skip
