"""Keys and values in pages that never move: rows of a search share pages, come and go, and grow without copies.

B rows · C positions that fit the table · L layers · G key heads · K head width
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

PAGE = 16
"""Positions per page."""


class Pages:
    """Keys and values of all layers. Position t of row b is in cell `cells[b, t]`, and cell c is entry c % 16 of page
    c // 16. A page holds all layers, (L, 2, G, 16, K). K is padded with zeros to a multiple of 16, so that kernels read
    whole vectors.

    Each row writes to its own page, its tail, where position t is entry t % 16. Reordering rows reorders only the
    table, so that several rows may read the same cells. Pages that no row reads are reused.
    """

    def __init__(self, rows: int, layers: int, heads: int, width: int, like: Tensor) -> None:
        self.shape = (layers, 2, heads, PAGE, -(-width // 16) * 16)
        self.width = width
        self.like = like.new_empty(0)
        self.addresses = torch.empty(0, dtype=torch.long)
        """The memory address of each page."""
        self.cells = torch.zeros(rows, PAGE, dtype=torch.long)
        self.lengths = [0] * rows
        self.tails: list[int | None] = [None] * rows
        self.free: list[int] = []
        self.pages: list[Tensor] = []

    def extend(self, counts: Sequence[int]) -> None:
        """Reserve cells for `counts` more positions of each row."""
        ends = [length + count for length, count in zip(self.lengths, counts, strict=True)]
        if (missing := max(ends) - self.cells.shape[1]) > 0:
            self.cells = F.pad(self.cells, [0, max(missing, self.cells.shape[1] // 2)])
        self._reserve(sum(self._missing(row, end) for row, end in enumerate(ends)))
        places: list[tuple[int, int, int]] = []
        for row, (first, end) in enumerate(zip(self.lengths, ends, strict=True)):
            for position in range(first, end):
                tail = self.tails[row]
                if tail is None or position % PAGE == 0:
                    tail = self.tails[row] = self.free.pop()
                places.append((row, position, tail * PAGE + position % PAGE))
        if places:
            rows, positions, cells = torch.tensor(places).unbind(1)
            self.cells[rows, positions] = cells
        self.lengths = ends

    def reorder(self, rows: Sequence[int]) -> None:
        """Make row i continue what was row `rows[i]`.

        Of rows that continue the same one, the first keeps its tail. Each of the others takes the tail of a dropped row
        of the same length, where the next entry is free, or a new page when it needs one.
        """
        left: dict[int, list[int]] = defaultdict(list)
        for row in set(range(len(self.tails))).difference(rows):
            if (tail := self.tails[row]) is not None:
                left[self.lengths[row]].append(tail)
        kept: set[int] = set()
        tails: list[int | None] = []
        for row in rows:
            spare = left[self.lengths[row]]
            tails.append(self.tails[row] if row not in kept else spare.pop() if spare else None)
            kept.add(row)
        self.lengths, self.tails = [self.lengths[row] for row in rows], tails
        self.cells = self.cells.index_select(0, torch.tensor(rows, dtype=torch.long))

    def select(self, rows: Sequence[int]) -> Pages:
        """Return a copy of the given rows."""
        layers, _, heads, _, _ = self.shape
        view, copy = (Pages(0, layers, heads, self.width, self.like) for _ in range(2))
        view.pages, view.cells, view.lengths, view.tails = self.pages, self.cells, self.lengths, self.tails
        view.reorder(rows)
        copy.join(view)
        return copy

    def join(self, other: Pages) -> None:
        """Append the rows of another cache. Its pages are copied; those of this one are not."""
        theirs = sorted(other.used())
        self._reserve(len(theirs))
        moved = torch.zeros(len(other.pages), dtype=torch.long)
        for page in theirs:
            own = self.free.pop()
            self.pages[own].copy_(other.pages[page])
            moved[page] = own
        cells = other.cells
        if theirs:
            known = torch.where(other._read(), cells // PAGE, torch.tensor(theirs[0]))
            cells = moved[known] * PAGE + cells % PAGE
        capacity = max(self.cells.shape[1], cells.shape[1])
        both = (F.pad(table, [0, capacity - table.shape[1]]) for table in (self.cells, cells))
        self.cells = torch.cat(list(both))
        self.lengths = [*self.lengths, *other.lengths]
        self.tails = [*self.tails, *(None if tail is None else int(moved[tail]) for tail in other.tails)]

    def gathered(self, layer: int, length: int) -> tuple[Tensor, Tensor]:
        """Gather the keys and values of a layer for code that does not read pages: (B, G, C', K) each, zero beyond the
        end of a row."""
        keys_values = self.like.new_zeros(len(self.lengths), length, 2, self.shape[2], self.shape[4])
        cells, read = self._padded(length), self._read()[:, :length]
        read = F.pad(read, [0, length - read.shape[1]])
        found, which = torch.unique(cells[read] // PAGE, return_inverse=True)
        if len(found):
            pages = torch.stack([self.pages[page][layer] for page in found.tolist()]).permute(0, 3, 1, 2, 4)
            keys_values[read] = pages[which, cells[read] % PAGE]
        keys, values = keys_values[..., : self.width].permute(2, 0, 3, 1, 4).unbind(0)
        return keys, values

    def write(self, layer: int, positions: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write keys and values (B, T, G, K) to the cells of positions (B, T), skipping padding."""
        for row, position in torch.nonzero(positions < torch.tensor(self.lengths)[:, None]).tolist():
            cell = int(self.cells[row, positions[row, position]])
            page = self.pages[cell // PAGE][layer]
            for part, new in zip(page, (keys, values), strict=True):
                part[:, cell % PAGE, : self.width] = new[row, position]

    def used(self) -> set[int]:
        """Return the pages that rows read or will write to."""
        read = torch.unique(self.cells[self._read()] // PAGE).tolist()
        return {*read, *(tail for tail in self.tails if tail is not None)}

    def _read(self) -> Tensor:
        """A mask of the table entries that are in use: (B, C)."""
        return torch.arange(self.cells.shape[1]) < torch.tensor(self.lengths, dtype=torch.long)[:, None]

    def _padded(self, length: int) -> Tensor:
        return F.pad(self.cells, [0, max(0, length - self.cells.shape[1])])[:, :length]

    def _missing(self, row: int, end: int) -> int:
        """The number of new pages that a row needs to have cells up to `end`."""
        first = self.lengths[row]
        inside = end > first and first % PAGE > 0 and self.tails[row] is None
        return -(-end // PAGE) - -(-first // PAGE) + inside

    def _reserve(self, count: int) -> None:
        """Make at least `count` pages free. If reclaiming unused ones is not enough, grow by half."""
        if len(self.free) >= count:
            return
        used = self.used()
        self.free = [page for page in range(len(self.pages)) if page not in used]
        if len(self.free) < count + len(self.pages) // 4:
            more = max(count - len(self.free), len(self.pages) // 2)
            made = self.like.new_zeros(more, *self.shape)
            self.free += range(len(self.pages), len(self.pages) + more)
            self.pages += made.unbind(0)
            self.addresses = _addresses(self.pages)


def _addresses(pages: Iterable[Tensor]) -> Tensor:
    return torch.tensor([page.data_ptr() for page in pages], dtype=torch.long)
