"""What a batch is beside a dictionary of tensors."""

from __future__ import annotations

import torch

from seqlab.data.batching.batches import Batch
from seqlab.data.records import Record

RECORDS = [Record({"text": "one"}, "a.txt", 1), Record({"text": "two"}, "a.txt", 2)]


def test_records_go_with_a_batch():
    """To another device and into a batch that is made of it; they are no tensors of it."""
    batch = Batch(tokens=torch.zeros(2, 3), records=RECORDS)
    assert list(batch) == ["tokens"]
    assert batch.records == batch.to(torch.device("cpu")).records == RECORDS
    assert batch.to(torch.device("meta"))["tokens"].is_meta
    more = Batch(batch, mask=torch.ones(2, 3))
    assert (list(more), more.records) == (["tokens", "mask"], RECORDS)
    assert Batch(batch, records=RECORDS[:1]).records == RECORDS[:1]


def test_a_batch_need_not_have_records():
    assert list(Batch(tokens=torch.zeros(2, 3)).records) == []
    assert Batch({"source.tokens": torch.zeros(1)}).part("source") is not None
