"""The structure of `linear.h` that is handed to compiled code."""

from __future__ import annotations

import ctypes


class Map(ctypes.Structure):
    """W in panels and b, by their addresses: whoever makes one keeps the tensors alive."""

    _fields_ = (
        ("panels", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
    )
