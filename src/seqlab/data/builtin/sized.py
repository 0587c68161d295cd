"""Names of sets that come in any size: adding, adding:400, adding:400:20000, adding-test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from seqlab.errors import DataError

TEST = "-test"
TOO_MANY_DIGITS = 10


class Number(NamedTuple):
    """A number after a colon: what it counts (steps, series), its default, and its minimum."""

    of: str
    default: int
    fewest: int


class Sized(NamedTuple):
    name: str
    numbers: tuple[int, ...]
    test: bool


def base_of(name: str) -> str:
    """adding-test:400 → adding"""
    return name.partition(":")[0].removesuffix(TEST)


def sized(name: str, known: Mapping[str, Sequence[Number]]) -> Sized:
    """Parse a name: adding-test:400 → adding with 400 steps and 10,000 series, the test part."""
    first, *given = name.split(":")
    base = base_of(name)
    numbers = known[base]
    if len(given) > len(numbers) or not all(one.isdecimal() and len(one) < TOO_MANY_DIGITS for one in given):
        ways = [
            first + "".join(f":{number.of.upper()}" for number in numbers[:many]) for many in range(len(numbers) + 1)
        ]
        listed = " or ".join(filter(None, [", ".join(ways[:-1]), ways[-1]]))
        raise DataError(f"'{name}' is not a data set", hint=f"write {listed}")
    values = [int(one) for one in given] + [number.default for number in numbers[len(given) :]]
    if any(value < number.fewest for value, number in zip(values, numbers, strict=True)):
        hint = "use at least " + " and ".join(f"{number.fewest} {number.of}" for number in numbers)
        raise DataError(f"'{name}' is too small", hint=hint)
    return Sized(base, tuple(values), first != base)


def part(count: int, split: Literal["train", "valid"], test: bool) -> slice:
    """Return a part of `count` examples: the first 70 % for training, 20 % for validation, the last 10 % for tests."""
    valid, last = count * 7 // 10, count * 9 // 10
    return slice(last, None) if test else slice(valid) if split == "train" else slice(valid, last)
