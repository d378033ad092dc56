"""M + LᵀR in place, by the processor's own matrix library.

A step of a model adds a product, M ← M − γ·LᵀR. XLA writes the product beside the model, reads both
and writes the sum: a large layer goes through memory three times more than it must. BLAS (the one
that SciPy brings) adds while it multiplies. XLA calls it through its foreign function interface;
the function that it calls is compiled here, for it must run without Python.

Elsewhere than on a CPU, in other types than float32, and for small layers it is XLA's own product.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import jax
import numpy as np

__all__ = ["add_product"]

Array = jax.Array

_NAME = "verax_add_product"

# A smaller matrix stays in the processor's cache, where passing over it costs little.
_LARGE = 1 << 16


def add_product(matrix: Array, left: Array, right: Array, after: Sequence[Array] = ()) -> Array:
    """M + LᵀR of (rows, columns), (samples, rows) and (samples, columns).

    Args:
        matrix: M.
        left: L.
        right: R.
        after: what is computed before. If something else reads M and might come later, XLA copies
            M for it; what it gives, named here, makes it come first.
    """
    small = matrix.size < _LARGE or {a.dtype for a in (matrix, left, right)} != {np.dtype("f4")}
    if small or jax.default_backend() != "cpu" or not _available():
        return _plain(matrix, left, right)
    return _by_blas(matrix, left, right, tuple(after))


def _plain(matrix: Array, left: Array, right: Array) -> Array:
    return matrix + left.T @ right


@jax.custom_jvp
def _by_blas(matrix: Array, left: Array, right: Array, after: tuple[Array, ...]) -> Array:
    call = jax.ffi.ffi_call(
        _NAME,
        jax.ShapeDtypeStruct(matrix.shape, matrix.dtype),
        vmap_method="expand_dims",
        input_output_aliases={0: 0},
    )
    return call(matrix, left, right, *after)  # pyright: ignore[reportReturnType]


@_by_blas.defjvp
def _slope(values: tuple[Any, ...], slopes: tuple[Any, ...]) -> tuple[Array, Array]:  # pyright: ignore[reportUnusedFunction]
    _, left, right, _ = values
    matrix_, left_, right_, _ = slopes
    return _by_blas(*values), _plain(matrix_, left_, right) + left.T @ right_


@cache
def _available() -> bool:
    """Compile the function that XLA calls and make it known; False where that cannot be."""
    if sys.byteorder != "little":
        return False
    try:
        handler = _handler()
        jax.ffi.register_ffi_target(_NAME, _capsule(handler.address), platform="cpu")
    except Exception:  # another XLA with another interface, another SciPy: only speed is lost
        return False
    _kept.append(handler)
    return True


_kept: list[Any] = []


def _capsule(address: int) -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return make(address, None, None)


def _handler() -> Any:
    """A function from XLA's call frame (`xla/ffi/api/c_api.h`, version 0.3) to no error.

    The frame is read as words of 8 bytes: 1 points to a question about our version, or is 0; 9 and
    14 point to the lists of arguments and results; of an array 3 is the data, 4 the rank, 5 the
    sizes.
    """
    import numba  # takes as long to load as all of NumPy
    from numba import types
    from numba.extending import get_cython_function_address, intrinsic

    def pointed(_: Any, address: Any) -> Any:
        pointer = types.CPointer(types.int64)

        def generate(context: Any, builder: Any, _: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(types.int64), generate

    words: Any = intrinsic(pointed)

    @numba.njit
    def place(array: Any, sizes: Any, leading: int, group: int) -> int:
        """Which matrix of an array belongs to a group; along an axis of one, the same for all."""
        own, found, stride = words(array[5]), 0, 1
        for k in range(leading - 1, -1, -1):
            if own[k] > 1:
                found += group % sizes[k] * stride
                stride *= own[k]
            group //= sizes[k]
        return found

    address = get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    sgemm = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 13)(address)
    # BLAS is given everything by address; of a size in 8 bytes it reads the lower 4.
    letters, ones = np.frombuffer(b"NT", np.uint8), np.ones(1, np.float32)
    _kept.extend([letters, ones])
    as_it_is, one = letters.ctypes.data, ones.ctypes.data
    transposed = as_it_is + 1

    @numba.cfunc(types.int64(types.int64))
    def handler(frame: int) -> int:
        call = words(frame)
        if call[1]:
            words(words(call[1])[3])[3] = 3 << 32
            return 0
        inputs = words(call[9])
        left, right = words(inputs[1]), words(inputs[2])
        result = words(words(call[14])[0])
        sizes, leading = words(result[5]), result[4] - 2
        rows, columns = result[5] + 8 * leading, result[5] + 8 * leading + 8
        samples = left[5] + 8 * leading
        height, width, depth = words(rows)[0], words(columns)[0], words(samples)[0]
        groups = 1
        for k in range(leading):
            groups *= sizes[k]
        for g in range(groups):
            # BLAS counts columns first, so that it is given Rᵀ, then L.
            sgemm(
                as_it_is,
                transposed,
                columns,
                rows,
                samples,
                one,
                right[3] + 4 * depth * width * place(right, sizes, leading, g),
                columns,
                left[3] + 4 * depth * height * place(left, sizes, leading, g),
                rows,
                one,
                result[3] + 4 * height * width * g,
                columns,
            )
        return 0

    return handler
