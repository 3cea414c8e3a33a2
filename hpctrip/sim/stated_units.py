"""Units of the columns of files: the input key `unit` states them, or the end of a column's name, spelled exactly.

Other spellings of units are recognised only to refuse them, with the line to paste: nothing is read by a guess.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import product
from typing import Literal

import numpy as np

from hpctrip.base.csv import Table
from hpctrip.base.errors import InputError

PowerUnit = Literal["W", "kW", "MW", "fraction"]
POWER: dict[PowerUnit, float] = {"W": 1.0, "kW": 1e3, "MW": 1e6, "fraction": 1.0}
_POWER_ENDS: dict[str, PowerUnit] = {unit: unit for unit in POWER} | {"w": "W", "kw": "kW", "mw": "MW"}
_NAME = re.compile(r"(.+?)[-_. (\[]+([^-_. ()\[\]]+)[)\]]?|(.+?)([kKmMG]W)")
"""A name that ends in a unit: oslo_kw, oslo kW, oslo (kW), oslo [kW], osloMW."""
_OTHER_POWER = {
    r"[kmg]?wh(r|rs)?": "has energy, not power: divide by the hours of a step, and name it e.g. {}_kw",
    r"[km]var?": "has apparent power: multiply by the power factor, and name it e.g. {}_kw",
    r"%|pct|percent(age)?": "has percent: divide by 100, and name it {}_fraction",
    r"([kmgtuµ]|kilo|mega|milli|giga)?w(atts?)?": (
        "is not in W, kW or MW, spelled so (mW is a milliwatt): convert it, and name it e.g. {}_kw"
    ),
}
"""{word of a name, in any case: what to do about the column}."""


def power_unit(place: str, column: str, unit: PowerUnit | None) -> tuple[str, PowerUnit]:
    """(the site, the unit) of a column of power, in the unit that its name ends in, else in `unit`, the key power.unit.
    InputError where neither is there, and where the name has a word for another unit."""
    match = _NAME.fullmatch(column)
    site, end = filter(None, match.groups()) if match else (column, "")
    inner = [word for word in re.split(r"[-_. ()\[\]]+", site)[1:] if len(word) > 1]  # as in load_mw_mean
    stated = next((_POWER_ENDS[word] for word in (end, *inner) if word in _POWER_ENDS), None)
    what = f"the column {column!r}"
    if stated is None:
        for word, form in product((end, *inner), _OTHER_POWER):
            if re.fullmatch(form, word, re.IGNORECASE):
                problem, hint = _OTHER_POWER[form].replace("{}", site).split(": ", 1)
                raise InputError(place, f"{what} {problem}", hint)
    if None not in (unit, stated) and unit != stated:
        hint = "leave power.unit out, or take the unit out of the name"
        raise InputError(place, f"{what} is in {stated} by its name, but power.unit = {unit!r}", hint)
    if end in _POWER_ENDS:
        return site, _POWER_ENDS[end]
    if unit is None:
        hint = (
            f'set power.unit = "{stated or "kW"}" (or one of {", ".join(POWER)}), or name it e.g. {column}_kw'
        )
        raise InputError(place, f"{what} does not tell its unit", hint)
    return column, unit


_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(table: Table, name: str, absent: float | None = None) -> tuple[str, np.ndarray]:
    """(column, its values [R] in seconds) of the column `name` with a unit of time at its end, as in start_h; where
    there is none, (name_s, `absent`). InputError as of `Table.numbers`, also where there is none and no `absent`."""
    units = {f"{name}_{unit}": factor for unit, factor in _SECONDS.items()}
    column = table.one_of(units) or f"{name}_s"
    if column not in table.columns and absent is not None:
        return column, np.full(len(table.lines), absent)
    return column, table.numbers(column) * units[column]


PER_KWH: dict[str | None, float] = {
    **{"per kWh": 1.0, "per MWh": 1e-3},
    **{"kg per kWh": 1e3, "kg per MWh": 1.0, "t per MWh": 1e3, "lb per MWh": 0.45359237},
}
"""{unit: factor to grams or money for a kilowatt-hour}."""
_PER_KWH_ENDS: dict[str, str] = {unit.lower().replace(" ", "_"): unit for unit in PER_KWH} | {
    f"{amount}_per_{energy.lower()}": f"per {energy}"
    for amount in ("g", "price")
    for energy in ("kWh", "MWh")
}
OWN_COLUMN = "per_kwh"
"""The column that is read by default; its name leaves the unit to the key, and means grams or money per kWh without."""
_AMOUNTS = {
    "carbon": "kg|lb|pound|tonne|ton|gram|oz|(?<![a-z])(?:t|g|mg|mt|kt)",
    "price": r"cent|pence|rappen|grosz|(?<![a-z])(?:ct|c|p|rp|[oöø]re)|\d+(?=\s*[kmg]w)",
}
"""{table: words before an energy}: masses; of a price the parts of money and numbers of hours, in which none is."""
_CANONICAL = {"tonne": "t", "ton": "t", "mt": "t", "pound": "lb", "gram": "", "g": ""}
_ENERGY = r"([kmg])(?:ilo|ega|iga)?w(?:att)?[\W_]*h"
_BETWEEN = r"s?(?:[\W_]|of|co2|eq?|carbon|dioxide|equivalents?|per)*"


def stated_per_kwh(column: str) -> str | None:
    """The unit that the name of a column ends in, as in `g_per_kwh`, `kg_per_mwh` or `price_per_mwh`; `per_kwh` and
    `per_mwh` tell one only as the whole name, because cents or pounds may stand before them."""
    return _PER_KWH_ENDS.get("_".join(column.split("_")[-3:]))


def named_per_kwh(table: str, column: str, unit: str | None) -> tuple[str, float]:
    """(what its name says beside the unit, factor to grams or money for a kilowatt-hour) of a column in `unit`, else in
    the one that its name ends in. InputError as for `check_per_kwh`."""
    stated = stated_per_kwh(column)
    unit = unit or stated
    check_per_kwh(table, column, unit)
    name = "_".join(column.split("_")[:-3]) if stated else ""
    return name or column, PER_KWH[unit]


def check_per_kwh(table: str, column: str, unit: str | None) -> None:
    """InputError where a column's `unit`, the key of its table, is absent, is a mass of a price, or differs from that
    which the name of the column tells, in whatever spelling."""
    key, place = f"{table}.unit", f"{table}.value_column = {column!r}"
    units = [each for each in PER_KWH if table == "carbon" or each.startswith("per")]
    if unit not in (None, *units):
        problem = "is a mass" if unit in PER_KWH else "is not a unit of these values"
        raise InputError(f"{key} = {unit!r}", problem, f"give {' or '.join(map(repr, units))}")
    name = unicodedata.normalize("NFKC", column).lower()
    stated: str | None = unit
    if column != OWN_COLUMN and (energy := re.search(_ENERGY, name)):
        amount = re.search(f"({_AMOUNTS[table]}){_BETWEEN}{_ENERGY}", name)
        of = _CANONICAL.get(amount[1], amount[1]) if amount else (unit or "").rpartition("per ")[0].strip()
        stated = f"{of} per {energy[1].upper().replace('K', 'k')}Wh".strip()
    if unit is not None and PER_KWH[unit] == PER_KWH.get(stated):
        return
    problem = "does not tell its unit" if unit is None else f"is in another unit than {key} = {unit!r}"
    hint = f"set {key} to {' or '.join(map(repr, units))}"
    if stated is not None:
        hint = f"set {key} = {stated!r}" if stated in units else "convert it, and rename the column"
    raise InputError(place, problem, hint)
