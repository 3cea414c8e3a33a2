"""Units: SI inside, miles, GB, hours and Gbit/s at the edge.

Input keys take a plain number (already in the SI unit that the key's suffix names) or a text with a unit:
`update_bytes = "1.5 GB"`, `radius_m = "1000 mi"`, `near_bandwidth_bps = "1 Gbit/s"`, `interval_s = "5 min"`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import core_schema

MILE_M = 1609.344
HOUR_S = 3600.0
GB = 1e9
J_PER_KWH = 3.6e6

_FACTORS = {
    "bytes": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
    "metres": {"m": 1, "km": 1e3, "mi": MILE_M},
    "seconds": {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": HOUR_S, "d": 24 * HOUR_S},
    "bits per second": {"bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12},
    "watts": {"W": 1, "kW": 1e3, "MW": 1e6},
    "joules": {"J": 1, "kJ": 1e3, "MJ": 1e6, "GJ": 1e9}
    | {"Wh": 3600, "kWh": 3.6e6, "MWh": 3.6e9, "GWh": 3.6e12},
    "grams": {"g": 1, "kg": 1e3, "t": 1e6},
}
_ALIASES = {
    "bytes": {"byte": "B", "bytes": "B", "kb": "kB", "mb": "MB", "gb": "GB", "tb": "TB"},
    "metres": {"metre": "m", "metres": "m", "meter": "m", "meters": "m", "mile": "mi", "miles": "mi"},
    "seconds": {
        **dict.fromkeys(("sec", "second", "seconds"), "s"),
        **dict.fromkeys(("mins", "minute", "minutes"), "min"),
        **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
        **dict.fromkeys(("day", "days"), "d"),
    },
    "bits per second": {
        f"{prefix}{end}": f"{prefix}bit/s" for prefix in ("", "k", "M", "G", "T") for end in ("bps", "b/s")
    }
    | {f"{prefix.lower()}bps": f"{prefix}bit/s" for prefix in ("M", "G", "T")},
    "watts": {"watt": "W", "watts": "W", "kw": "kW"},
    "joules": {"joule": "J", "joules": "J", "kwh": "kWh"},
    "grams": {"gram": "g", "grams": "g", "tonne": "t", "tonnes": "t"},
}
"""Other names of units. Ambiguous ones are left out: "Gb" for bytes, "Mw", "M"."""
_QUANTITY = re.compile(r"\s*([-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/]+)\s*")


def parse(value: object, dimension: str) -> object:
    """The SI number of a text such as "1.5 GB"; any other value unchanged. ValueError lists the dimension's units."""
    if not isinstance(value, str):
        return value
    factors = _FACTORS[dimension]
    match = _QUANTITY.fullmatch(value)
    unit = _ALIASES[dimension].get(match.group(2), match.group(2)) if match else ""
    if match is None or unit not in factors:
        units = ", ".join(factors)
        raise ValueError(f"{value!r} is not a quantity in {dimension}; write a number and one of {units}")
    try:
        return float(match.group(1)) * factors[unit]
    except ValueError:
        raise ValueError(f"{match.group(1)!r} is not a number") from None


def spelled(value: float, dimension: str) -> str:
    """The shortest text with a unit for an SI number, in the SI unit if as short: "1.5 GB" for 1.5e9 bytes."""
    factors = sorted(_FACTORS[dimension].items(), key=lambda item: item[1] != 1)
    texts = [f"{value / factor:g} {unit}" for unit, factor in factors]
    exact = [text for text in texts if math.isclose(float(str(parse(text, dimension))), value, rel_tol=1e-12)]
    return min(exact, key=lambda text: len(text.split()[0]), default=repr(value)) if value else "0"


_READ = {"joules": ("Wh", "kWh", "MWh", "GWh"), "grams": ("g", "kg", "t"), "watts": ("W", "kW", "MW")}
"""The units in which people read an amount of a dimension, rising."""


def unit_of(largest: float, dimension: str, currency: str = "") -> tuple[float, str]:
    """The unit in which people read amounts up to this one of joules, of grams or, without a dimension, of a currency,
    as (factor, name): (3.6e9, "MWh") for 2.6e12 joules. A currency that is not known is called money."""
    factors = {unit: _FACTORS[dimension][unit] for unit in _READ[dimension]} if dimension else {}
    currency = currency or "money"
    factors = factors or {currency: 1.0, f"million {currency}": 1e6}
    # 999.6 kWh would be rounded to 1,000
    fitting = [unit for unit, factor in factors.items() if abs(largest) >= 0.9995 * factor]
    unit = fitting[-1] if fitting else next(iter(factors))
    return factors[unit], unit


def figures(value: float) -> str:
    """A number with three significant figures, "-" for NaN: 1,230 and 718 and 12.3."""
    return "-" if math.isnan(value) else f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def amount(value: float, dimension: str, currency: str = "") -> str:
    """An amount for people, with its unit as of `unit_of`: "718 MWh", "12.3 t", "1,230 EUR"."""
    factor, unit = unit_of(value, dimension, currency)
    return f"{figures(value / factor)} {unit}"


def units() -> dict[str, tuple[list[str], list[str]]]:
    """{dimension: (its units, other names of these)}."""
    return {dimension: (list(factors), list(_ALIASES[dimension])) for dimension, factors in _FACTORS.items()}


@dataclass(frozen=True)
class Quantity:
    """Type annotation of a number that an input may give as a text with a unit of this dimension."""

    dimension: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        convert = partial(parse, dimension=self.dimension)
        return core_schema.no_info_before_validator_function(convert, handler(source))

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {**handler(schema), "dimension": self.dimension}


Bytes = Annotated[float, Quantity("bytes"), Field(le=1e15)]
Metres = Annotated[float, Quantity("metres"), Field(le=1e12)]
Seconds = Annotated[float, Quantity("seconds"), Field(le=1e15)]
BitsPerSecond = Annotated[float, Quantity("bits per second")]
Watts = Annotated[float, Quantity("watts"), Field(le=1e15)]
Joules = Annotated[float, Quantity("joules"), Field(le=1e21)]
Grams = Annotated[float, Quantity("grams"), Field(le=1e18)]
