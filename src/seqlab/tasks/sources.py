"""The conditions of a text as one sequence of positions: tokens of text, a token per label, a position per number.

Ids below V are the tokenizer's; ids of labels and of numbers follow, condition by condition.

S sources · N positions · V vocabulary
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.data.batching.batches import Batch, padded
from seqlab.data.records import Record
from seqlab.data.storage.store import Encoder
from seqlab.errors import DataError
from seqlab.tokenizers import Tokenizer

Condition = Literal["text", "label", "numbers"]
Ids = NDArray[Any] | list[int]


class Sources:
    """The conditions of a task by role, in the order in which they are read, and what was learnt from the data."""

    def __init__(self, conditions: Mapping[str, Condition], tokenizer: Tokenizer, memory: Mapping[str, Any]) -> None:
        self.conditions, self.tokenizer = conditions, tokenizer
        self.labels: dict[str, list[str]] = dict(memory.get("labels", {}))
        self.numbers: dict[str, dict[str, list[float]]] = dict(memory.get("numbers", {}))
        """Mean and standard deviation of each number of a row."""

    def learn(self, records: Callable[[], Iterator[Record]]) -> None:
        """Collect the labels, and the means and standard deviations of the numbers."""
        for role, kind in self.conditions.items():
            if kind == "label":
                self.labels[role] = sorted({record.fields[role].strip() for record in records()})
            elif kind == "numbers":
                table = np.array(list(_table(records(), role)))
                spread = table.std(0)
                self.numbers[role] = {
                    "mean": table.mean(0).tolist(),
                    "spread": np.where(spread > 0, spread, 1.0).tolist(),
                }

    def memory(self) -> dict[str, Any]:
        return {"labels": self.labels, "numbers": self.numbers}

    @property
    def names(self) -> list[str]:
        """Names of the ids beyond the vocabulary."""
        return [
            one if isinstance(one, str) else f"{role} {place}"
            for role in self.conditions
            for place, one in enumerate(self._beyond(role), start=1)
        ]

    def _beyond(self, role: str) -> list[str | tuple[float, float]]:
        """For each id that a condition adds to the vocabulary: the label, or the mean and spread of a number."""
        numbers = self.numbers.get(role, {"mean": [], "spread": []})
        return [*self.labels.get(role, []), *zip(numbers["mean"], numbers["spread"], strict=True)]

    def encoder(self, role: str) -> tuple[Encoder, int | None, int | None]:
        """Return the function from texts to what a store keeps, the number of different ids (None for numbers), and
        the id that closes each text."""
        kind = self.conditions.get(role, "text")
        if kind == "label":
            return lambda texts: [[self._label(role, text)] for text in texts], len(self.labels[role]), None
        if kind == "numbers":
            return lambda texts: [self._scaled(role, text) for text in texts], None, None
        return self.tokenizer.encode_batch, self.tokenizer.vocab_size, self.tokenizer.end_id

    def encoded(self, role: str, text: str) -> Ids:
        """Encode one text as a store would keep it."""
        encode, _, end = self.encoder(role)
        (ids,) = encode([text])
        return np.asarray(ids) if end is None else [*ids, end]

    def _label(self, role: str, text: str) -> int:
        known, label = self.labels[role], text.strip()
        if label not in known:
            listed = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
            raise DataError(f"the {role} '{label}' is not in the training data", hint=f"the known ones are {listed}")
        return known.index(label)

    def _scaled(self, role: str, text: str) -> NDArray[np.float32]:
        own = self.numbers[role]
        scaled = (np.array(_parsed(text, role, len(own["mean"]))) - own["mean"]) / own["spread"]
        return scaled.astype(np.float32)

    def tensors(self, rows: Sequence[Sequence[Ids]]) -> Batch:
        """Build `tokens` and `mask` (S, N), and `values` (S, N) if there are numbers, from what the store keeps."""
        tokens, mask = padded([self._ids(row) for row in rows])
        batch = Batch(tokens=tokens, mask=mask)
        if self.numbers:
            batch["values"] = torch.zeros(tokens.shape)
            numbers = [np.asarray(one, np.float32) for row in rows for one in self._of("numbers", row)]
            first = self.tokenizer.vocab_size
            places = [index for index, one in enumerate(self._all_beyond()) if not isinstance(one, str)]
            is_number = torch.isin(tokens, torch.tensor([first + place for place in places])) & mask
            batch["values"][is_number] = torch.from_numpy(np.concatenate(numbers))
        return batch

    def _ids(self, row: Sequence[Ids]) -> list[int]:
        ids: list[int] = []
        first = self.tokenizer.vocab_size
        for (role, kind), own in zip(self.conditions.items(), row, strict=True):
            if kind == "text":
                ids += own if isinstance(own, list) else own.tolist()
            elif kind == "label":
                ids.append(first + int(own[0]))
            else:
                ids += range(first, first + len(own))
            first += len(self._beyond(role))
        return ids

    def _of(self, kind: Condition, row: Sequence[Ids]) -> Iterator[Ids]:
        return (own for (_, one), own in zip(self.conditions.items(), row, strict=True) if one == kind)

    def _all_beyond(self) -> list[str | tuple[float, float]]:
        return [one for role in self.conditions for one in self._beyond(role)]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each token as readable text; ids beyond the vocabulary are shown as names of labels and numbers."""
        words, end, names = self.tokenizer.vocab_size, self.tokenizer.end_id, self.names
        shown = []
        for token in ids:
            if token >= words:
                shown.append(f"<{names[token - words]}>")
                continue
            text = "<end>" if token == end else self.tokenizer.decode([token])
            shown.append(text if text.strip() else "␣" if text else "·")
        return shown


def _table(records: Iterator[Record], role: str) -> Iterator[list[float]]:
    """Yield the rows of numbers, all of the same length."""
    count = None
    for record in records:
        with record.blamed():
            values = _parsed(record.fields[role], role, count)
        count = len(values)
        yield values


def _parsed(text: str, role: str, count: int | None) -> list[float]:
    try:
        values = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        values = []
    if not values or not all(map(math.isfinite, values)):
        raise DataError(f"'{text[:40]}' is not a row of numbers for '{role}'", hint="separate numbers with spaces")
    if count is not None and len(values) != count:
        hint = "give every row the same number of values"
        raise DataError(f"{len(values)} numbers in '{role}', but {count} in other rows", hint=hint)
    return values
