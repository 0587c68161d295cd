"""Watch the gates of an LSTM open and close while it reads.

    python gates.py             # draws gates.png

The LSTM learns to predict the next character of Python's documentation. Nobody tells it what a vowel or a digit is, but
predicting needs such things. For each of a few kinds of characters, this finds the gate that tells them from the others
best, on held-out text, and shows how open it is at each character of a sentence.
"""

import re

import torch
from matplotlib import pyplot as plt

import seqlab

SENTENCE = "In 2008 Python 3 came out."
KINDS = {"spaces": "[ ]", "vowels": "[aeiou]", "capitals": "[A-Z]", "digits": "[0-9]", "first letters": r"\b[a-z]"}
GATES = ("input", "forget", "output")
LAYER = "recurrent.layers.0"


def gates(run, tokens):
    """How open each gate is when the LSTM reads each token, from 0 to 1: (3 × units, tokens)."""
    with torch.no_grad(), seqlab.record(run.model, LAYER) as tape:
        run.model(torch.tensor([tokens]))
    return torch.cat([tape[LAYER][gate][0][0].T for gate in GATES])


def telling(run, sentence, tokens=30_000):
    """For each kind: which gate tells it from the others best, and how open that is in a sentence."""
    held_out = run.held_out().tokens[:tokens].tolist()
    text = "".join(run.tokenizer.decode([token]) or "\n" for token in held_out)  # a document ends with <end>
    found, shown = gates(run, held_out), gates(run, run.tokenizer.encode(sentence).ids)
    for kind, pattern in KINDS.items():
        here = torch.zeros(len(text), dtype=torch.bool)
        here[[match.start() for match in re.finditer(pattern, text)]] = True
        inside, outside = found[:, here].mean(1), found[:, ~here].mean(1)
        best = int((inside - outside).abs().argmax())
        gate, unit = divmod(best, len(found) // len(GATES))
        about = f"{GATES[gate]} gate {unit}\n{inside[best]:.2f} there, {outside[best]:.2f} elsewhere"
        yield kind, about, shown[best].tolist()


def draw(run, path, sentence=SENTENCE):
    figure, panels = plt.subplots(len(KINDS), figsize=(7.2, 3.4), dpi=120, layout="constrained")
    print(f"\n{'':13}  {sentence}")
    for panel, (kind, about, values) in zip(panels, telling(run, sentence), strict=True):
        print(f"{kind:>13}  {''.join(' ░▒▓█'[min(4, int(5 * value))] for value in values)}  {about.splitlines()[0]}")
        panel.imshow([values], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for place, (character, value) in enumerate(zip(sentence, values, strict=True)):
            style = {"family": "monospace", "fontsize": 14, "color": "white" if value > 0.5 else "black"}
            panel.text(place, 0, character, ha="center", va="center", **style)
        panel.text(len(sentence) - 0.2, 0, about, va="center", fontsize=8.5)
        panel.set(xticks=[], yticks=[])
        panel.set_ylabel(kind, rotation=0, ha="right", va="center", fontweight="bold")
        panel.spines[:].set_visible(False)
    panels[0].set_title("Gates of an LSTM at each character: white is shut, blue is open", loc="left", fontsize=11)
    figure.savefig(path)


def main():
    print("training an LSTM on characters …")
    draw(seqlab.train("lm/char", {"model.width": 128, "training.steps": 500}), "gates.png")
    print("\ndrawn: gates.png")


if __name__ == "__main__":
    main()
