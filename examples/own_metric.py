"""A metric of your own: what does a translator of dates learn first?

    python own_metric.py
    seqlab train translation/transformer 'task.metrics=[exact, month]' --code own_metric.py     # on the command line

A metric makes numbers of each line that can be added, and a figure of their sums. `seqlab evaluate` and `compare`,
confidence intervals and significance tests then work with it as with BLEU.
"""

import re

import numpy as np

import seqlab
from seqlab.metrics.metric import Metric

PIECES = {"weekday": r"\w+day", "month": r"[A-Z][a-z]+(?= \d)", "day": r"\d+(?=,)", "year": r"\d{4}"}


class Piece(Metric):
    """100 · lines in which a piece of the date is right / lines that have it"""

    pattern: str

    def statistics(self, hypothesis, references):
        written, wanted = (re.search(self.pattern, text) for text in (hypothesis, references[0]))
        right = written and wanted and written[0] == wanted[0]
        return np.array([bool(right), bool(wanted)], dtype=float)

    def figure(self, sums):
        return 100 * sums[0] / max(sums[1], 1)


for name, pattern in PIECES.items():
    seqlab.register("metric", name, type(name, (Piece,), {"pattern": pattern}))


def main():
    print("training a small Transformer to read dates in twenty languages and to write them in English …")
    settings = {
        "data.train": "english-dates:10000",
        "model.width": 64,
        "model.hidden_width": 128,
        "decoding.beam": None,
    }
    training = {"steps": 320, "evaluate_every": 80, "keep": 4, "learning_rate": 0.005}
    settings |= {f"training.{key}": value for key, value in training.items()}
    folder = seqlab.train("translation/transformer", settings).folder

    print("\nper cent of held-out dates\n\nstep", *(f"{name:>7}" for name in PIECES), "  the whole date")
    for step in (80, 160, 240, 320):
        run = seqlab.load(folder, checkpoint=step)
        found = run.evaluate(metrics=[*PIECES, "exact"])
        print(f"{step:4}", *(f"{found[name]:7.0f}" for name in PIECES), "  " + "█" * round(found["exact"] / 2), end="")
        print(f" {found['exact']:.0f}")

    print()
    for date in ("jeudi 5 mars 2015", "tiistai 29. tammikuuta 2002", "2021年7月4日日曜日"):
        print(f"{date}  →  {run.generate(date, temperature=0)[0]}")


if __name__ == "__main__":
    main()
