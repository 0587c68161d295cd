"""Weather reports from measurements: synthetic days, whose seven numbers determine the whole report.

    measurements    -2.4 6.3 45 262 994 88 3.5
    target          Mostly cloudy with rain and sleet. Cool, up to 6 degrees, with frost at night.
                    A strong wind from the west. Low pressure of 994 hPa: it stays unsettled.

Lowest and highest temperature (°C), wind (km/h) and its direction (degrees from north), pressure (hPa), clouds (%),
rain or melted snow (mm). Numbers are rounded and words chosen by thresholds; anything unremarkable is left out, and a
storm, great heat or hard frost comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from seqlab.data.randomness import mix
from seqlab.data.records import Document

Scale = tuple[tuple[float, str], ...]
"""Words, each with the number where it begins to apply."""

SKY: Scale = ((0, "sunny"), (20, "partly cloudy"), (60, "mostly cloudy"), (90, "overcast"))
WARMTH: Scale = ((-99, "bitterly cold"), (-10, "cold"), (5, "cool"), (14, "mild"), (20, "warm"), (28, "hot"))
AMOUNT: Scale = ((0, "a little "), (2, ""), (12, "heavy "))
WIND: Scale = ((0, ""), (6, "a light breeze"), (20, "a fresh wind"), (39, "a strong wind"), (62, "a storm"))
COMPASS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
LOW, HIGH = 1000, 1025
STORM, HEAT, HARD_FROST, THAW, CLOUDY = 62, 30, -15, 2, 60


class Day(NamedTuple):
    low: float
    high: float
    wind: int
    direction: int
    pressure: int
    clouds: int
    rain: float

    @property
    def measurements(self) -> str:
        return " ".join(map(str, self))


def weather(many: int) -> Iterator[Document]:
    """Yield the reports of `many` days."""
    for number in range(many):
        day = made_up(number)
        fields = {"measurements": day.measurements, "target": report(day)}
        yield Document(str(number), fields, key=day.measurements)


def made_up(number: int) -> Day:
    """Make up a day: low pressure brings clouds and wind, and clouds bring rain."""

    def below(limit: int, place: int) -> int:
        return mix(number, place) % limit

    low, pressure = below(451, 0) - 200, 975 + below(66, 1)
    wetness = (1040 - pressure) / 65  # from 0 to 1
    clouds = round(100 * (wetness + below(100, 2) / 100) / 2)
    rain = below(200, 3) * below(100, 4) / 1000 if clouds > 50 and below(3, 5) else 0.0
    wind = round((10 + 75 * wetness) * below(100, 6) / 100)
    return Day(low / 10, (low + 20 + below(120, 7)) / 10, wind, below(360, 8), pressure, clouds, round(rain, 1))


def report(day: Day) -> str:
    sky, warmth, wind = _sky(day), _warmth(day), _wind(day)
    if day.wind >= STORM:
        said = [wind, sky, warmth]
    elif day.high >= HEAT or day.low <= HARD_FROST:
        said = [warmth, sky, wind]
    else:
        said = [sky, warmth, wind]
    return " ".join(f"{one[0].upper()}{one[1:]}." for one in (*said, _pressure(day)) if one)


def _sky(day: Day) -> str:
    sky = _word(SKY, day.clouds)
    if day.rain == 0:
        return f"{sky} and dry" if day.clouds >= CLOUDY else sky
    falls = "snow" if day.high <= THAW else "rain and sleet" if day.low <= 0 else "rain"
    return f"{sky} with {_word(AMOUNT, day.rain)}{falls}"


def _warmth(day: Day) -> str:
    frost = ", with frost at night" if day.low < 0 and day.high > THAW else ""
    if frost or _whole(day.low) == _whole(day.high):
        return f"{_word(WARMTH, day.high)}, up to {_degrees(day.high)}{frost}"
    return f"{_word(WARMTH, day.high)}, {_whole(day.low)} to {_degrees(day.high)}"


def _wind(day: Day) -> str:
    strength = _word(WIND, day.wind)
    return strength and f"{strength} from the {COMPASS[(day.direction + 22) // 45 % 8]}"


def _pressure(day: Day) -> str:
    if LOW <= day.pressure <= HIGH:
        return ""
    kind, outlook = ("low", "unsettled") if day.pressure < LOW else ("high", "as it is" if day.rain else "fair")
    return f"{kind} pressure of {day.pressure} hPa: it stays {outlook}"


def _word(scale: Scale, number: float) -> str:
    return [word for least, word in scale if number >= least][-1]


def _whole(number: float) -> int:
    """Round, half a degree upwards."""
    return (round(number * 10) + 5) // 10


def _degrees(number: float) -> str:
    whole = _whole(number)
    return f"{whole} degree{'' if abs(whole) == 1 else 's'}"
