"""Random numbers as pure functions of a key: identical on every machine, rank and library version."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def mix(*numbers: int) -> int:
    """Return a well-mixed 64-bit number computed from some integers (splitmix64, Steele et al. 2014)."""
    value = 0
    for number in numbers:
        value = (value + number + _GOLDEN) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value


def _mix_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def permute(places: NDArray[np.int64], count: int, key: int) -> NDArray[np.int64]:
    """Return where a shuffle of range(count) puts each place: a bijection, computed without a table.

    A Feistel network on the fewest bits that suffice; places outside the range are mapped again until they fall inside.
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    low = np.uint64((1 << half) - 1)
    out = np.asarray(places, dtype=np.uint64).copy()
    walking = np.ones(out.shape, dtype=bool)
    keys = [np.uint64(mix(key, turn)) for turn in range(6)]
    while walking.any():
        values = out[walking]
        left, right = values >> np.uint64(half), values & low
        for turn in keys:
            left, right = right, left ^ (_mix_array(right ^ turn) & low)
        out[walking] = (left << np.uint64(half)) | right
        walking = out >= np.uint64(count)
    return out.astype(np.int64)


@dataclass(frozen=True)
class Key:
    """The key of all randomness about an example: (seed, epoch, example)."""

    seed: int
    epoch: int

    def below(self, limit: int, *purpose: int) -> int:
        """Return an integer in [0, limit) for this epoch."""
        return mix(self.seed, self.epoch, *purpose) % limit

    def generator(self, example: int) -> np.random.Generator:
        """Return the random generator of one example, for masking, dropping or sampling segmentations."""
        return np.random.Generator(np.random.Philox(mix(self.seed, self.epoch, example)))
