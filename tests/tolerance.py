"""How near two computations of the same thing have to be. There are three kinds of comparisons:

- Equal to the bit, where that is promised: `torch.equal`, `==`.
- Two formulations of one function: in double precision, to 1e-9 of the size of the numbers (`close`). Rounding errors
  are 1e-16 of it, so that a chain of steps may make them a million times larger, as a chaotic net does, and a mistake
  that changes anything in the first nine digits is still seen.
- What is about float32 itself, such as kernels, packed models and whole trainings: as many roundings as there are one
  after the other (`close` with `steps`, `rounding`). Where nobody can say how much a chain makes of a rounding error,
  it is measured: another path may be as far from double precision as the plain path in float32 is (`no_worse`).
"""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = torch.finfo(torch.float32).eps
"""The distance from 1 to the next number of float32; a single operation is wrong by half of it, in proportion."""

SMALL_NET = 64
"""Roundings one after the other in a small net of the tests: sums of up to 32 products, in a layer or two."""


def rounding(steps: float, size: float = 1.0) -> float:
    """By how much two float32 computations may differ that round `steps` times, one after the other, numbers of `size`.

    Each is wrong by at most steps · ε / 2 · size (Higham 2002, Accuracy and stability of numerical algorithms, ch. 3),
    so that the two differ by at most steps · ε · size. A sum of n numbers rounds n times, and its size is that of its
    terms together, not of its result; log p from logits of size s is wrong by s ε even where log p is small.
    """
    return steps * EPSILON * size


def close(found: Tensor, expected: Tensor, steps: float | None = None, size: float | None = None) -> None:
    """Equal to 1e-9 of `size` in double precision, or to `steps` roundings of numbers of `size` in float32.

    The size is that of the largest expected number by default. Where one is infinite, so is the other.
    """
    expected = expected.detach()
    if size is None:
        finite = expected[expected.isfinite()]
        size = float(finite.abs().max()) if finite.numel() else 1.0
    exact = found.dtype == expected.dtype == torch.float64
    if not exact and steps is None:
        raise TypeError("float32 has no tolerance without a number of steps: compute in double precision, or say it")
    allowed = 1e-9 * size if exact else rounding(steps, size)
    torch.testing.assert_close(found.detach().double(), expected.double(), atol=allowed, rtol=0)


def no_worse(found: Tensor, plain: Tensor, exact: Tensor, steps: float = 8) -> None:
    """Two float32 computations: `found` is as near to the exact numbers as `plain` is.

    Errors of two paths are draws of one size, whose maxima over many numbers differ little: eight times the other's is
    allowed, and a few roundings where the other happens to have none.
    """
    assert exact.dtype == torch.float64
    finite = exact.isfinite() & plain.isfinite()
    assert torch.equal(found.isfinite() & exact.isfinite(), finite)
    size = float(exact[finite].abs().max()) if finite.any() else 1.0
    own, other = (float((one.double() - exact)[finite].abs().max()) if finite.any() else 0.0 for one in (found, plain))
    allowed = 8 * other + rounding(steps, size)
    assert own <= allowed, f"{own:.1e} from double precision, where the plain path is {other:.1e} from it"
