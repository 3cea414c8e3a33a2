"""Batch scripts for a site of the user's: a shipped script with the site's options and settings in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from hpctrip.base.errors import InputError
from hpctrip.base.text import unknown_name
from hpctrip.config.package_data import SCRIPTS, described, shipped

LIBRARY = "launch"
"""The file that the other scripts source."""


def scripts() -> dict[str, str]:
    """{name: what it does} of the scripts that can be submitted."""
    return {name: described(file) for name, file in shipped(SCRIPTS).items() if name != LIBRARY}


def site_script(
    name: str,
    path: str,
    account: str | None = None,
    partition: str | None = None,
    options: Iterable[str] = (),
    **settings: str | None,
) -> str:
    """`batch_script` with what a person says of a site: `settings` are the library's variables without HPCTRIP_."""
    given = {"--account": account, "--partition": partition}
    lines = [*(f"{option}={value}" for option, value in given.items() if value), *options]
    variables = {f"HPCTRIP_{key.upper()}": value for key, value in settings.items() if value is not None}
    return batch_script(name, path, lines, variables)


def batch_script(name: str, path: str, options: Iterable[str], settings: Mapping[str, str]) -> str:
    """The text of the script `name` as the file `path`: in one piece, as it can be submitted from anywhere.

    `options` are sbatch's ("--account=a"): each takes the place of the script's own. `settings` are defaults for the
    variables of the library, slurm/launch.sh, which say what they mean. Raises InputError for what is none of these.
    """
    files = shipped(SCRIPTS)
    if name not in scripts():
        raise InputError(f"slurm {name}", "no such script", unknown_name(name, scripts()))
    options = list(options)
    for value in (path, *options, *settings.values()):
        if not value.isprintable():
            problem = "holds control characters, and is to be a line of a script"
            raise InputError(f"slurm {name}: {value}", problem, "leave them out")
    text = files[name].read_text(encoding="utf-8").replace(f"slurm/{name}.sh", path)
    for option in options:
        text = _with_option(text, option)
    defaults = [f"[[ -v {key} ]] || {key}={shlex.quote(value)}\n" for key, value in settings.items()]
    library = "".join(defaults) + files[LIBRARY].read_text(encoding="utf-8")
    return text.replace(f"source slurm/{LIBRARY}.sh\n", library)


def _with_option(text: str, option: str) -> str:
    """The script with this line for sbatch instead of its own of that name, or before its first."""
    if not re.fullmatch(r"--[a-z][a-z-]*(=\S.*)?", option):
        raise InputError(f"--sbatch {option}", "no long option of sbatch", "e.g. --sbatch=--qos=long")
    name = option.partition("=")[0]
    own = re.compile(rf"^#SBATCH {name}(?![a-z-]).*$", re.MULTILINE)
    if own.search(text):
        return own.sub(lambda _: f"#SBATCH {option}", text)
    return text.replace("#SBATCH ", f"#SBATCH {option}\n#SBATCH ", 1)
