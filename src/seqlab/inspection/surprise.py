"""The tokens and lines of a text that surprise a language model: −log p of each token, as in evaluations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.data.batching.sequences import ScoredLanes, ScoredWindows
from seqlab.data.randomness import Key
from seqlab.objectives.next_token import NextToken
from seqlab.objectives.objective import Objective
from seqlab.tasks.outcomes import LineRead
from seqlab.tokenizers import Tokenizer
from seqlab.tokenizers.special import END

Scored = ScoredWindows | ScoredLanes


@torch.no_grad()
def token_losses(objective: Objective, split: Scored, batch_size: int, device: torch.device) -> NDArray[np.float64]:
    """Return −log p of each token of a text, in order; they add up to the sum of an evaluation."""
    losses = np.full(len(split.tokens), np.nan)
    numbered = replace(split, tokens=np.arange(len(split.tokens)))  # the same batches, holding the positions of tokens
    order, carried = split.order(batch_size, seed=0), None
    for cursor, indices in order.once():
        batch = split.batch(indices, Key(0, 0)).to(device)
        output = cast(NextToken, objective).read(batch, carried if order.carries and cursor.batch else None)
        carried = output.state if order.carries else None
        counts = batch.get("scored", batch.get("mask", torch.ones_like(batch["targets"], dtype=torch.bool)))
        own = objective.body.losses(output.states[counts], batch["targets"][counts])  # type: ignore[operator]
        places = numbered.batch(indices, Key(0, 0))["targets"][counts.cpu()]
        losses[places.numpy()] = own.cpu().numpy()
    return losses


def lines_read(
    objective: Objective, split: Scored, tokenizer: Tokenizer, batch_size: int, device: torch.device
) -> Iterator[LineRead]:
    """Yield the lines of a text in order. A token belongs to the line in which it begins, `<end>` to the last line."""
    losses, place = token_losses(objective, split, batch_size, device), 0
    for record in split.records():
        text = record.fields["text"]
        encoding = tokenizer.encode(text)
        count = len(encoding.ids) + record.ends
        own = losses[place : place + count].tolist()
        place += count
        starts = np.array([start for start, _ in encoding.offsets] + [len(text)] * record.ends, dtype=np.int64)
        pieces = [text[start:stop] for start, stop in encoding.offsets] + [END] * record.ends
        breaks = [match.start() for match in re.finditer("\n", text)]
        number = np.searchsorted(breaks, np.maximum.accumulate(starts))  # how many lines ended before each token
        begin = 0
        for line, content in enumerate(text.split("\n")):
            some = slice(*(int(np.searchsorted(number, one)) for one in (line, line + 1)))
            if some.stop > some.start:
                where, within = replace(record, line=record.line + line), (starts[some] - begin).tolist()
                yield LineRead(where, content, sum(own[some]), pieces[some], within, own[some])
            begin += len(content) + 1
    assert place == len(losses)  # the texts match the tokens
