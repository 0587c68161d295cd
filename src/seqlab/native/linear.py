"""The structure of `linear.h` that is passed to compiled code."""

from __future__ import annotations

import ctypes


class Map(ctypes.Structure):
    """The addresses of W in panels and of b; the caller must keep the tensors alive."""

    _fields_ = (
        ("panels", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
    )
