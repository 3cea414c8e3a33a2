"""Batch scripts for a Slurm site: the scripts of the package with the site's sbatch options and settings filled in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from hpctrip.base.errors import InputError
from hpctrip.base.text import unknown_name
from hpctrip.config.package_data import SCRIPTS, described, shipped

LIBRARY = "launch"
"""Name of the script that all others source."""


def scripts() -> dict[str, str]:
    """{name: description} of the scripts that can be submitted."""
    return {name: described(file) for name, file in shipped(SCRIPTS).items() if name != LIBRARY}


def site_script(
    name: str,
    path: str,
    account: str | None = None,
    partition: str | None = None,
    options: Iterable[str] = (),
    **settings: str | None,
) -> str:
    """The text of the script `name`, to be written to `path`: one self-contained file that can be submitted anywhere.

    `options` are sbatch options ("--qos=long"); each replaces the script's own. `settings` are default values of the
    variables that slurm/launch.sh documents, in lower case and without the prefix HPCTRIP_. Raises InputError for an
    unknown script and for an invalid option.
    """
    files = shipped(SCRIPTS)
    if name not in scripts():
        raise InputError(f"slurm {name}", "no such script", unknown_name(name, scripts()))
    site = {"--account": account, "--partition": partition}
    options = [*(f"{option}={value}" for option, value in site.items() if value), *options]
    variables = {f"HPCTRIP_{key.upper()}": value for key, value in settings.items() if value is not None}
    for value in (path, *options, *variables.values()):
        if not value.isprintable():
            problem = "holds control characters, and is to be a line of a script"
            raise InputError(f"slurm {name}: {value}", problem, "leave them out")
    text = files[name].read_text(encoding="utf-8").replace(f"slurm/{name}.sh", path)
    if (options or variables) and f"source slurm/{LIBRARY}.sh\n" not in text:
        hint = f"give them to it when you start it: bash {path} --partition P"
        raise InputError(
            f"slurm {name}", "is no job, but submits a study: it holds no settings of a site", hint
        )
    for option in options:
        text = _with_option(text, option)
    defaults = [f"[[ -v {key} ]] || {key}={shlex.quote(value)}\n" for key, value in variables.items()]
    library = "".join(defaults) + files[LIBRARY].read_text(encoding="utf-8")
    return text.replace(f"source slurm/{LIBRARY}.sh\n", library)


def _with_option(text: str, option: str) -> str:
    """The script with this #SBATCH line, in place of its line of that name if it has one, else before all others."""
    if not re.fullmatch(r"--[a-z][a-z-]*(=\S.*)?", option):
        raise InputError(f"--sbatch {option}", "no long option of sbatch", "e.g. --sbatch=--qos=long")
    name = option.partition("=")[0]
    own = re.compile(rf"^#SBATCH {name}(?![a-z-]).*$", re.MULTILINE)
    if own.search(text):
        return own.sub(lambda _: f"#SBATCH {option}", text)
    return text.replace("#SBATCH ", f"#SBATCH {option}\n#SBATCH ", 1)
