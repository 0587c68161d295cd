"""One long array of tokens as training windows, as streams that carry state, or as windows to score.

The input at each position is the previous token; the very first token follows `<end>`, as if a document had just ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.data.batching.batches import Batch, padded
from seqlab.data.batching.order import Indices, Order, Sequential, Shuffled, Streams
from seqlab.data.randomness import Key
from seqlab.data.records import Record

Tokens = NDArray[np.integer]
Recut = Callable[[Tokens, np.random.Generator], Sequence[int]]
"""Returns other tokens for the same text: a segmentation sampled by the tokenizer."""


@dataclass
class Windows:
    """Training windows, side by side. Every epoch cuts the text, taken as a ring, at different places."""

    tokens: Tokens
    window: int
    recut: Recut | None = None
    """Resegments the text of each window with the randomness of its epoch; surplus tokens are dropped."""
    note: str = ""
    """A remark for users who train on it."""

    def __post_init__(self) -> None:
        self.window = min(self.window, len(self.tokens))

    def __len__(self) -> int:
        return len(self.tokens) // self.window

    def order(self, batch_size: int, seed: int) -> Order:
        return Shuffled(len(self), batch_size, seed)

    def batch(self, indices: Indices, key: Key) -> Batch:
        batch = _ring(self.tokens, indices * self.window + key.below(self.window), self.window)
        return batch if self.recut is None else self._recut(batch, indices, key, self.recut)

    def _recut(self, batch: Batch, indices: Indices, key: Key, recut: Recut) -> Batch:
        rows = zip(indices.tolist(), batch["tokens"][:, 0].tolist(), batch["targets"].numpy(), strict=True)
        cuts = [[first, *recut(text, key.generator(index))][: self.window + 1] for index, first, text in rows]
        values, mask = padded(cuts)
        cut = Batch(tokens=values[:, :-1], targets=values[:, 1:])
        return cut if mask.all() else Batch(cut, mask=mask[:, 1:])


@dataclass
class Lanes:
    """Training streams: each row of a batch continues where it stopped in the previous batch (truncated BPTT).

    With a `stretch`, each lane is read in parts of about that many tokens, each starting from a fresh state.
    """

    tokens: Tokens
    window: int
    lanes: int
    stretch: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        self.lanes = min(self.lanes, len(self.tokens))
        length = len(self.tokens) // self.lanes
        self.parts = 1 if self.stretch is None else max(1, round(length / self.stretch))
        self.length = length // self.parts
        self.steps = -(-self.length // self.window)

    def __len__(self) -> int:
        return self.lanes * self.parts * self.steps

    def order(self, batch_size: int, seed: int) -> Order:
        return Streams(self.lanes * self.parts, self.steps, batch_size if self.parts == 1 else self.lanes)

    def batch(self, indices: Indices, key: Key) -> Batch:
        stream, step = np.divmod(indices, self.steps)
        part, lane = np.divmod(stream, self.lanes)  # the first parts of all lanes, then the second parts, ...
        width = min(self.window, self.length - int(step[0]) * self.window)
        starts = (lane * self.parts + part) * self.length + step * self.window + key.below(self.length)
        return _ring(self.tokens, starts, width)


@dataclass
class ScoredWindows:
    """Windows for evaluation: each token is scored exactly once.

    Window i ends `stride` tokens after window i − 1; only tokens not yet scored count.
    """

    tokens: Tokens
    window: int
    stride: int
    end: int
    """The id of `<end>`, which precedes the first token."""
    facts: dict[str, int] = field(default_factory=dict)
    """Counts of characters, bytes and unknown tokens in the text."""
    note: str = ""
    records: Callable[[], Iterable[Record]] = tuple
    """The records that the tokens came from."""

    def __len__(self) -> int:
        return 1 + max(0, -(-(len(self.tokens) - self.window) // self.stride))

    def order(self, batch_size: int, seed: int) -> Order:
        return Sequential(len(self), batch_size)

    def batch(self, indices: Indices, key: Key) -> Batch:
        starts = indices * self.stride
        ends = np.minimum(starts + self.window, len(self.tokens))
        fresh = np.where(indices == 0, 0, starts + self.window - self.stride)
        return _spans(self.tokens, starts, ends, fresh, self.end)


@dataclass
class ScoredLanes:
    """Streams for evaluation: the text in `lanes` parts of equal length, each token scored exactly once."""

    tokens: Tokens
    window: int
    lanes: int
    end: int
    facts: dict[str, int] = field(default_factory=dict)
    note: str = ""
    records: Callable[[], Iterable[Record]] = tuple

    def __post_init__(self) -> None:
        self.bounds = np.linspace(0, len(self.tokens), self.lanes + 1).astype(np.int64)
        self.steps = -(-int(np.diff(self.bounds).max()) // self.window)

    def __len__(self) -> int:
        return self.lanes * self.steps

    def order(self, batch_size: int, seed: int) -> Order:
        return Streams(self.lanes, self.steps, batch_size)

    def batch(self, indices: Indices, key: Key) -> Batch:
        lane, step = np.divmod(indices, self.steps)
        starts = np.minimum(self.bounds[lane] + step * self.window, self.bounds[lane + 1])
        ends = np.minimum(starts + self.window, self.bounds[lane + 1])
        return _spans(self.tokens, starts, ends, starts, self.end)


def _ring(tokens: Tokens, starts: Indices, width: int) -> Batch:
    """Return full windows of a text that wraps around at its end."""
    places = (starts[:, None] + np.arange(-1, width)) % len(tokens)
    values = torch.from_numpy(tokens[places].astype(np.int64))
    return Batch(tokens=values[:, :-1], targets=values[:, 1:])


def _spans(tokens: Tokens, starts: Indices, ends: Indices, fresh: Indices, end: int) -> Batch:
    """Return spans of different lengths, padded on the right; positions from `fresh` on are scored."""
    width = max(1, int((ends - starts).max()))  # lanes that have ended keep one position, which is not scored
    places = starts[:, None] + np.arange(-1, width)
    values = torch.from_numpy(tokens[places.clip(-1, len(tokens) - 1)].astype(np.int64))
    values[torch.from_numpy(places < 0)] = end
    mask = places[:, 1:] < ends[:, None]
    batch = Batch(tokens=values[:, :-1], targets=values[:, 1:])
    if not mask.all():
        batch["mask"] = torch.from_numpy(mask)
    scored = mask & (places[:, 1:] >= fresh[:, None])
    if not scored.all():
        batch["scored"] = torch.from_numpy(scored)
    return batch
