"""The 1,797 scanned digits that come with scikit-learn (Alpaydin & Kaynak 1998): 8 × 8 pixels from 0 to 16."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqlab.data.randomness import permute
from seqlab.data.records import Document
from seqlab.errors import DataError

PIXELS = 64
ORDER_KEY = 1
"""The key of the fixed permutation."""


def digits(permuted: bool = False) -> Iterator[Document]:
    """Yield each digit as 64 numbers: left to right and top to bottom, or all in one fixed shuffled order.

    Pixel by pixel, as in Le, Jaitly & Hinton 2015, https://arxiv.org/abs/1504.00941
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise DataError("the digits need scikit-learn", hint="install it: pip install 'seqlab[images]'") from None
    places = np.arange(PIXELS)
    order = permute(places, PIXELS, ORDER_KEY) if permuted else places
    pixels, labels = load_digits(return_X_y=True)
    for number, (picture, label) in enumerate(zip(pixels.astype(int), labels, strict=True)):
        yield Document(str(number), {"text": " ".join(map(str, picture[order])), "label": str(label)})
