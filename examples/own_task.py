"""A task of your own, from text to number: which day of the year is "jeudi 5 mars 2015"?

    python own_task.py                                              # writes dates.tsv and dates.yaml, trains
    seqlab train dates.yaml --code own_task.py --out runs/again     # the same on the command line
    seqlab evaluate runs/again --errors --code own_task.py
    echo "Thursday, March 5, 2015" | seqlab predict runs/again --lines --code own_task.py

A task turns the records of files into batches, and the sums of an evaluation into the figures that people read. An
objective says what to minimise. Training, checkpoints, predictions and error reports then work as for built-in tasks.
"""

import random
from datetime import date, timedelta
from pathlib import Path

import torch
from babel.dates import format_date
from torch import nn

import seqlab
from seqlab.data.batching.batches import Batch, Examples, padded
from seqlab.data.formats.contents import Asked
from seqlab.data.reading.readers import as_given, read
from seqlab.nn.summary import MaxSummary
from seqlab.objectives.objective import Loss, Objective
from seqlab.recipe import PartSettings
from seqlab.tasks.abilities import Answers
from seqlab.tasks.outcomes import Forecasted
from seqlab.tasks.task import Task
from seqlab.tokenizers.fitted import fitted

ROLES, ANSWERS = ("text", "number"), ("number",)  # columns of a file; the answer does not decide what is held out


class NumberedTexts(Examples):
    """Texts as tokens, with their numbers if these are known. `Examples` shuffles, and batches similar lengths."""

    def __init__(self, records, tokenizer, numbers=None, training=False):
        self.read, self.numbers = records, numbers
        self.texts = tokenizer.encode_batch([record.fields["text"] for record in records])
        super().__init__([len(text) for text in self.texts], training)

    def records(self):
        return self.read

    def batch(self, indices, key):
        tokens, mask = padded([self.texts[i] for i in indices])  # what encoders read; the mask is True at real tokens
        known = {} if self.numbers is None else {"numbers": torch.tensor([self.numbers[i] for i in indices])}
        return Batch(tokens=tokens, mask=mask, **known, records=[self.read[i] for i in indices])


class Distance(Objective):
    """Σ |answer − number| over the rows, where the answer is w · max_t h_t + b"""

    Settings = PartSettings  # nothing to set in a recipe

    def __init__(self, settings, body, head):  # `body` is the model of the recipe, `head` comes from the task
        super().__init__()
        self.body, self.head, self.summary = body, head, MaxSummary()

    def guess(self, batch):
        encoded = self.body(batch)
        return self.head(self.summary(encoded.states, encoded.mask)).squeeze(-1)

    def forward(self, batch, state=None):
        distances = (self.guess(batch) - batch["numbers"]).abs()
        count = torch.tensor(len(distances), device=distances.device)
        return Loss(distances.sum(), count)  # a sum and a count rather than a mean: pieces of a batch add up


class Number(Task, Answers):
    """The model learns shares of the largest number of the training data; people read the units of their file."""

    Settings = PartSettings
    metric, better = "mae", "lower"  # what chooses the best checkpoint: one of `metrics`

    def __init__(self, tokenizer, largest):
        self.tokenizer, self.largest = tokenizer, largest

    @classmethod
    def reads(cls, recipe):
        return Asked(recipe.data, ROLES, answers=ANSWERS)

    @classmethod
    def prepare(cls, recipe, tokenizer=None):  # before there is a model: what must be learnt from the training data
        numbers = [float(one.fields["number"]) for one in read(recipe.data, "train", ROLES, answers=ANSWERS)]
        tokenizer = tokenizer or fitted(recipe.tokenizer, recipe.data, ("text",), among=ROLES, answers=ANSWERS)
        return cls(tokenizer, max(numbers))

    def memory(self):  # for the run folder, besides the tokenizer; `restore` gets it back
        return {"largest": self.largest}

    @classmethod
    def restore(cls, recipe, tokenizer, memory):
        return cls(tokenizer, memory["largest"])

    @property
    def sizes(self):  # what the model must know
        return {"vocab_size": self.tokenizer.vocab_size}

    def head(self, body):
        return nn.Linear(body.width, 1)

    def split(self, data, which, training):
        records = list(read(data, which, ROLES, answers=ANSWERS))
        numbers = [float(record.fields["number"]) / self.largest for record in records]
        return NumberedTexts(records, self.tokenizer, numbers, training)

    def metrics(self, totals, split):  # `loss` must be among them
        loss = totals["sum"] / totals["count"]
        return {"loss": loss, "mae": self.largest * loss}

    # ---- for `seqlab predict`

    def asked(self, data):  # the files to answer are in data.valid
        return NumberedTexts(list(read(as_given(data), "valid", ("text",))), self.tokenizer)

    def answers(self, objective, batch):
        found = zip(batch.records, (self.largest * objective.guess(batch)).tolist(), strict=True)
        return [{"text": record.fields["text"], "answer": f"{n:.0f}", "number": n} for record, n in found]

    def nothing(self, record):  # an empty line has no tokens and is never in a batch
        return {"text": "", "answer": "", "number": None}

    # ---- for `seqlab evaluate --errors`

    def outcomes(self, objective, batch):
        each = zip(batch.records, batch["numbers"].tolist(), objective.guess(batch).tolist(), strict=True)
        return [self.outcome(record, number, guess) for record, number, guess in each]

    def outcome(self, record, number, guess):
        truth, forecast = [[self.largest * number]], [[self.largest * guess]]  # steps ahead, columns
        return Forecasted(record, record.fields["text"], abs(number - guess), ["number"], truth, forecast)


seqlab.register("objective", "distance", Distance)
seqlab.register("task", "number", Number)

RECIPE = """
name: dates
task: {kind: number}
data: {train: dates.tsv}
tokenizer: {kind: character}
model: {kind: recurrent-encoder, cell: gru, width: 48, embedding: 32}
objective: {kind: distance}
training: {steps: 1400, learning_rate: 0.01, schedule: {kind: cosine, warmup: 20, floor: 0.0}}
"""


def rows(many, languages=("en", "de", "fr", "es", "fi")):
    draw = random.Random(0)
    for _ in range(many):
        day = date(1900, 1, 1) + timedelta(draw.randrange(73_000))
        text = format_date(day, draw.choice(["full", "long"]), draw.choice(languages))
        yield f"{text}\t{day.timetuple().tm_yday}\n"


def main():
    Path("dates.tsv").write_text("text\tnumber\n" + "".join(rows(6000)), encoding="utf-8")
    Path("dates.yaml").write_text(RECIPE, encoding="utf-8")
    print("training a GRU to say which day of the year a date is …")
    folder = seqlab.train("dates.yaml", code=__file__).folder

    run = seqlab.load(folder, code=__file__)  # a run folder holds no code: whoever loads it gives the file
    print("\nstep  days off, on average, in held-out dates")
    for entry in run.log:
        if "valid" in entry:
            print(f"{entry['step']:4}  {entry['valid']['mae']:5.1f} {'█' * round(entry['valid']['mae'])}")
    print(f"best {run.evaluate()['mae']:6.1f}\n")

    asked = {"jeudi 5 mars 2015": 64, "4. Juli 1976": 186, "31 de diciembre de 1999": 365}
    Path("asked.txt").write_text("\n".join(asked), encoding="utf-8")
    for answer in run.predict("asked.txt", lines=True):
        print(f"{answer['text']:24} day {answer['answer']:>3}, and it is {asked[answer['text']]}")


if __name__ == "__main__":
    main()
