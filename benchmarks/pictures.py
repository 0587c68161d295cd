"""The pictures of README.md.

    python benchmarks/pictures.py terminal       # docs/terminal.png, docs/demo.png: the end of `seqlab demo`, 3 minutes
    python benchmarks/pictures.py attention      # docs/attention.png: a date from one language into another, 5 minutes
    python benchmarks/pictures.py gates          # docs/gates.png: examples/gates.py after a longer training, a minute

Runs are thrown away, unless --runs names a folder; what is found there is drawn again without a training.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from matplotlib.patches import Circle, FancyBboxPatch
from PIL import Image
from rich.ansi import AnsiDecoder
from rich.console import Console

import seqlab

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
COLUMNS = 100


# ---------------------------------------------------------------------- the terminal


def terminal(runs: Path) -> None:
    """What a person sees when `seqlab demo` is done, down to the second of the samples."""
    shown = runs / "demo.txt"
    if not shown.exists():
        shown.write_text(in_a_terminal([sys.executable, "-m", "seqlab", "demo"], runs), encoding="utf-8")
    shutil.copy(runs / "runs" / "demo" / "curves.png", DOCS / "demo.png")
    text = shown.read_text(encoding="utf-8").partition("\x1b[1m\nlm-gpt writes:")[0]
    draw_terminal(f"\x1b[1m$ seqlab demo\x1b[0m\n{text}…", DOCS / "terminal.png")


def in_a_terminal(command: list[str], folder: Path) -> str:
    """What a command writes to a terminal. Its progress bars are left out."""
    reader, writer = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.DEVNULL
    )
    os.close(writer)
    found = b""
    while piece := _read(reader):
        found += piece
    if process.wait():
        raise SystemExit(f"{' '.join(command)} has failed")
    return found.decode().replace("\r\n", "\n")


def _read(reader: int) -> bytes:
    try:
        return os.read(reader, 4096)
    except OSError:  # the other end was closed
        return b""


def draw_terminal(text: str, path: Path, size: float = 9.0) -> None:
    """A text with the escape sequences of a terminal, in a dark window."""
    across, down = 0.602 * size / 72, 1.35 * size / 72  # inches of a character of DejaVu Sans Mono
    rows = on_screen(text)
    width, height = (COLUMNS + 4) * across, (len(rows) + 3.5) * down
    figure = plt.figure(figsize=(width, height), dpi=130)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    window = "round,pad=0,rounding_size=0.1"
    axes.add_patch(FancyBboxPatch((0, 0), width, height, boxstyle=window, facecolor="#1e2227", edgecolor="none"))
    for number, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f")):
        axes.add_patch(Circle((0.2 + 0.2 * number, 1.1 * down), 0.055, facecolor=colour, edgecolor="none"))
    for row, characters in enumerate(rows):
        for column, (character, bold) in enumerate(characters):
            style = {"color": "white", "weight": "bold"} if bold else {"color": "#c9d1d9"}
            place = (column + 2) * across, (row + 3) * down
            axes.text(*place, character, size=size, family="DejaVu Sans Mono", parse_math=False, **style)
    figure.savefig(path, transparent=True)
    plt.close(figure)
    compress(path)


def on_screen(text: str) -> list[list[tuple[str, bool]]]:
    """Rows of characters, each bold or not; long lines are broken."""
    console, rows = Console(width=COLUMNS), []
    for line in AnsiDecoder().decode(text):
        pieces = [(piece.text, bool(piece.style and piece.style.bold)) for piece in line.render(console, end="")]
        characters = [(character, bold) for text, bold in pieces for character in text]
        rows += [characters[start : start + COLUMNS] for start in range(0, max(1, len(characters)), COLUMNS)]
    return rows


def compress(path: Path) -> None:
    """Few colours take few bytes."""
    Image.open(path).quantize(96, method=Image.Quantize.FASTOCTREE).save(path, optimize=True)


# ---------------------------------------------------------------------- what models do inside


DATE = "2015. március 5., csütörtök"
"""In Hungarian the year comes first and the weekday last."""
PIECES = {r"[A-Z]\w+day": "#c2255c", r"[A-Z]\w+(?= \d)": "#2b8a3e", r"\d+(?=,)": "#e67700", r"\d{4}": "#0b6e99"}
"""Of an English date, with the colours that they are drawn in: weekday, month, day, year."""


def attention(runs: Path) -> None:
    """A translated date: from each token that is written, lines to those that are read, as thick as its attention."""
    settings = {"training.steps": 1500, "training.evaluate_every": 1500, "decoding.beam": None}
    run = seqlab.train("translation/gnmt-v3", settings, out=runs / "dates", resume=True)
    place = "decoder.attention"
    with seqlab.record(run.decoder, (place, "weights")) as tape:
        (text,) = run.generate(DATE, temperature=0)
    weights = torch.cat(tape[place]["weights"], dim=2)[0, 0]
    read, written, shift = middles(run, DATE), middles(run, text), (len(DATE) - len(text)) / 2
    figure, axes = plt.subplots(figsize=(7, 3.4), dpi=120, layout="constrained")
    letters = {"ha": "center", "family": "monospace", "fontsize": 17}
    for place, character in enumerate(DATE):
        axes.text(place + 0.5, 1.07, character, va="bottom", **letters)
    for place, character in enumerate(text):
        axes.text(place + 0.5 + shift, -0.07, character, va="top", color=colour_of(text, place), **letters)
    for there, row in zip(written, weights.tolist(), strict=False):  # no lines from the end
        for here, weight in zip(read, row, strict=False):
            style = {"color": colour_of(text, int(there)), "alpha": 0.25 + 0.6 * weight, "linewidth": 6 * weight}
            axes.plot([here, there + shift], [1, 0], solid_capstyle="round", **style)
    axes.set(xlim=(-0.5, len(DATE) + 0.5), ylim=(-0.3, 1.3))
    axes.set_axis_off()
    axes.set_title("Attention of an LSTM that reads a Hungarian date and writes it in English", loc="left", fontsize=11)
    figure.savefig(DOCS / "attention.png")
    plt.close(figure)
    compress(DOCS / "attention.png")


def middles(run: seqlab.Run, text: str) -> list[float]:
    """Where the middle of each token of a text is, in characters."""
    return [(start + stop) / 2 for start, stop in run.tokenizer.encode(text).offsets]


def colour_of(text: str, place: int) -> str:
    """The colour of the piece of a date that a character belongs to."""
    for pattern, colour in PIECES.items():
        if (match := re.search(pattern, text)) and match.start() <= place < match.end():
            return colour
    return "#868e96"


def gates(runs: Path) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "gates.py"))
    settings = {"model.width": 128, "training.steps": 2000}
    example["draw"](seqlab.train("lm/char", settings, out=runs / "gates", resume=True), DOCS / "gates.png")
    compress(DOCS / "gates.png")


PICTURES = {"terminal": terminal, "attention": attention, "gates": gates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="*", default=list(PICTURES), choices=PICTURES)
    parser.add_argument("--runs", type=Path, help="keep the runs here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        runs = (arguments.runs or Path(temporary)).resolve()
        runs.mkdir(parents=True, exist_ok=True)
        for name in arguments.pictures:
            PICTURES[name](runs)


if __name__ == "__main__":
    main()
