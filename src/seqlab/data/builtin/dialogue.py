"""Synthetic dialogues about journeys: answering the last question takes all of the dialogue before it.

history     A: Ben goes to Rome on Friday. It will rain there. B: On Monday Anna goes to Oslo, where it will snow.
            A: Where does Ben go? B: To Rome.
question    And Anna?
target      To Oslo.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from seqlab.data.randomness import mix
from seqlab.data.records import Document

NAMES = ("Anna", "Ben", "Clara", "David", "Eva", "Felix", "Grace", "Hugo", "Ida", "Jonas", "Kim", "Lea")
PLACES = ("Athens", "Berlin", "Cairo", "Dublin", "Lima", "Oslo", "Paris", "Quito", "Rome", "Seoul", "Tokyo", "Vienna")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
WEATHER = ("rain", "snow", "be sunny", "be windy", "be foggy", "be hot")
TOLD = (
    "{name} goes to {place} on {day}. It will {weather} there.",
    "On {day} {name} goes to {place}, where it will {weather}.",
    "They say it will {weather} in {place}, where {name} goes on {day}.",
)
ASKED = {
    "Where does {name} go?": "To {place}.",
    "When does {name} go?": "On {day}.",
    "What will the weather be like for {name}?": "It will {weather}.",
    "Does {name} need an umbrella?": "{umbrella}, it will {weather} in {place}.",
    "Who goes to {place}?": "{name} does.",
    "Who goes earliest in the week?": "{name} does, on {day}.",
}
"""Questions and their answers. The first four can be asked again about another person."""
QUESTIONS = tuple(ASKED)
OF_SOMEONE = QUESTIONS[:4]
EARLIEST = QUESTIONS[-1]
AGAIN = "And {name}?"


class Journey(NamedTuple):
    name: str
    place: str
    day: str
    weather: str

    def said(self, text: str) -> str:
        return text.format(**self._asdict(), umbrella="Yes" if self.weather == "rain" else "No")


def dialogue(many: int) -> Iterator[Document]:
    """Yield `many` questions, each after two to four journeys and up to two earlier questions."""
    for number in range(many):
        history, question, target = _talk(number)
        fields = {"history": history, "question": question, "target": target}
        yield Document(str(number), fields, key=f"{history} {question}")


def _talk(number: int) -> tuple[str, str, str]:
    journeys = _journeys(number, 2 + mix(number, 0) % 3)
    turns = [one.said(TOLD[mix(number, 1, place) % len(TOLD)]) for place, one in enumerate(journeys)]
    asked, journey = "", journeys[0]
    for turn in range(1 + mix(number, 2) % 3):
        drawn = mix(number, 3, turn)
        if asked in OF_SOMEONE and drawn & 1:
            question, others = AGAIN, [one for one in journeys if one != journey]
        else:
            asked = question = QUESTIONS[(drawn >> 1) % len(QUESTIONS)]
            others = journeys
        journey = others[(drawn >> 16) % len(others)]
        if asked == EARLIEST:
            journey = min(journeys, key=lambda one: DAYS.index(one.day))
        turns += [journey.said(question), journey.said(ASKED[asked])]
    *earlier, question, target = turns
    return " ".join(f"{'AB'[place % 2]}: {turn}" for place, turn in enumerate(earlier)), question, target


def _journeys(number: int, many: int) -> list[Journey]:
    """Draw journeys that differ in person, place and day."""
    columns = [_drawn(some, many, mix(number, 4, place)) for place, some in enumerate((NAMES, PLACES, DAYS))]
    weather = [WEATHER[mix(number, 5, place) % len(WEATHER)] for place in range(many)]
    return [Journey(*each) for each in zip(*columns, weather, strict=True)]


def _drawn(some: Sequence[str], many: int, number: int) -> list[str]:
    """Draw `many` different items."""
    left, found = list(some), []
    for _ in range(many):
        number, place = divmod(number, len(left))
        found.append(left.pop(place))
    return found
