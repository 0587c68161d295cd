"""How fast are arrays and .parquet files read, and how much memory does it take?

An array of 10,000 x 784 bytes becomes a token store; a .parquet file of 200,000 texts (172 MB, not compressed, groups
of 20,000 rows) is read from end to end. Each time in a new process, the fastest of five; resident memory is that of
the process when all is imported, and its peak.

    python benchmarks/formats.py
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPEAT = 5


@dataclass(frozen=True)
class Reading:
    size: float
    """Ids, or bytes."""
    seconds: float
    before: float
    """MB resident."""
    peak: float


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def write(folder: str) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    random = np.random.default_rng(0)
    np.save(f"{folder}/pictures.npy", random.integers(0, 256, (10_000, 784), dtype=np.uint8))
    letters = np.frombuffer(b"etaoinshrdlu    ", dtype=np.uint8)
    with pq.ParquetWriter(
        f"{folder}/texts.parquet", pa.schema({"text": pa.string()}), compression="none", use_dictionary=False
    ) as file:
        for _ in range(10):
            rows = letters[random.integers(0, len(letters), (20_000, 856), dtype=np.uint8)]
            file.write_table(pa.table({"text": [row.tobytes().decode() for row in rows]}), row_group_size=20_000)


def store_array(folder: str) -> Reading:
    """The array to a token store."""
    from seqlab.data.reading.readers import read
    from seqlab.data.storage.store import TokenStore
    from seqlab.recipe import DataSettings
    from seqlab.tokenizers.ids import IdTokenizer

    tokenizer, data = IdTokenizer(256), DataSettings(train=f"{folder}/pictures.npy", valid=[])
    with tempfile.TemporaryDirectory() as cache:
        os.environ["SEQLAB_CACHE"] = cache
        before, start = peak_megabytes(), time.perf_counter()
        encoders = {"text": tokenizer.encode_batch}
        store = TokenStore.open(lambda: read(data, "train", symbols=True), encoders, "0" * 64, vocab_size=257)
        seconds = time.perf_counter() - start
    return Reading(store["text"].tokens - len(store), seconds, before, peak_megabytes())


def read_parquet(folder: str) -> Reading:
    """All texts of the file, none of them kept."""
    import pyarrow.parquet  # noqa: F401  (so that it is there before)

    from seqlab.data.reading.readers import read_texts

    file = f"{folder}/texts.parquet"
    before, start = peak_megabytes(), time.perf_counter()
    for _ in read_texts([file]):
        pass
    return Reading(Path(file).stat().st_size, time.perf_counter() - start, before, peak_megabytes())


def main() -> None:
    def fastest(way: Callable[[str], Reading]) -> Reading:
        return min((apart(way) for _ in range(REPEAT)), key=lambda found: found.seconds)

    def apart(way: Callable[[str], Reading]) -> Reading:
        with multiprocessing.get_context("spawn").Pool(1) as process:
            return process.apply(way, (folder,))

    with tempfile.TemporaryDirectory() as folder:
        with multiprocessing.get_context("spawn").Pool(1) as process:
            process.apply(write, (folder,))
        array, table = fastest(store_array), fastest(read_parquet)
    speeds = [
        ("an array of 10,000 × 784 bytes to a token store", f"{array.size / array.seconds / 1e6:.1f} million ids/s"),
        (f"a `.parquet` file of {table.size / 1e6:.0f} MB, read", f"{table.size / table.seconds / 1e6:.0f} MB/s"),
    ]
    print("| what | speed | resident before | peak |")
    print("|---|---|---|---|")
    for (name, speed), found in zip(speeds, (array, table), strict=True):
        print(f"| {name} | {speed} | {found.before:.0f} MB | {found.peak:.0f} MB |")


if __name__ == "__main__":
    main()
