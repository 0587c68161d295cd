"""Rows of .parquet files, read in batches: memory holds a few thousand rows, never the whole file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seqlab.data.formats.rows import Row
from seqlab.errors import DataError, nearest

BATCH = 1024
"""Rows per batch."""


class Parquet:
    """An open file; its columns and their types are known before any row is read."""

    def __init__(self, path: Path) -> None:
        self.path, self.arrow = path, _arrow(path)
        if path.suffix.lower() == ".gz":
            raise DataError(
                "a compressed .parquet file cannot be read in parts", where=str(path), hint="decompress it: gunzip FILE"
            )
        with self._faults():
            self.file = self.arrow.parquet.ParquetFile(path)
            self.schema = self.file.schema_arrow

    def kind(self, column: str) -> str:
        """Return `text`, `number`, `list` (of text or integers), or the name of any other type."""
        return self._kind(self.type(column))

    def type(self, column: str) -> Any:
        """Return the type of the first column of that name."""
        return self.schema.field(self.schema.get_all_field_indices(column)[0]).type

    def _kind(self, given: Any) -> str:
        is_a = self.arrow.types
        plain = given.value_type if is_a.is_dictionary(given) else given
        if is_a.is_string(plain) or is_a.is_large_string(plain) or is_a.is_string_view(plain):
            return "text"
        if is_a.is_integer(plain) or is_a.is_floating(plain) or is_a.is_boolean(plain):
            return "number"
        if is_a.is_list(plain) or is_a.is_large_list(plain) or is_a.is_fixed_size_list(plain):
            inside = plain.value_type
            if is_a.is_integer(inside) or self._kind(inside) == "text":
                return "list"
        return str(given)

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield these columns of all rows, in order, numbered from 1 through the file."""
        number = 0
        for group in range(self.file.num_row_groups):
            with self._faults(f", row group {group + 1}"):
                # one thread: a thread pool would not survive the fork of a training process
                for batch in self.file.iter_batches(BATCH, [group], columns=list(columns), use_threads=False):
                    values = (batch.column(name).to_pylist() for name in columns)
                    for cells in zip(*values, strict=True):
                        number += 1
                        yield Row(number, dict(zip(columns, cells, strict=True)), group=group + 1)

    def column(self, name: str, role: str, lists: bool) -> None:
        """Check that a column can fill a role, or raise a DataError."""
        if name not in self.schema.names:
            hint = f"set data.columns.{role} to the right one; {nearest(name, self.schema.names)}"
            raise DataError(f"no column '{name}'", where=str(self.path), hint=hint)
        if self.schema.names.count(name) > 1:
            raise DataError(f"column '{name}' appears twice", where=str(self.path), hint="rename one of them")
        kind = self.kind(name)
        if kind == "list" and not lists:
            what = f"column '{name}' is not text but {self.type(name)}"
            raise DataError(what, where=str(self.path), hint="to read lists, set tokenizer.kind=symbols (or ids)")
        if kind not in ("text", "number", "list"):
            hint = "use text, numbers, or lists of text or integers"
            raise DataError(f"column '{name}' is {kind[:60]}", where=str(self.path), hint=hint)

    @contextmanager
    def _faults(self, where: str = "") -> Iterator[None]:
        """Turn the library's errors inside into DataErrors that name the place."""
        try:
            yield
        except (self.arrow.ArrowException, OSError, UnicodeDecodeError) as error:
            what = f"damaged, or not a .parquet file ({' '.join(str(error).split())[:120]})"
            raise DataError(what, where=f"{self.path}{where}", hint="download or copy it again") from None


def _arrow(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
        import pyarrow.types
    except ImportError:
        what, hint = "reading it needs pyarrow, which is not installed", "install it: pip install 'seqlab[parquet]'"
        raise DataError(what, where=str(path), hint=hint) from None
    return pyarrow
