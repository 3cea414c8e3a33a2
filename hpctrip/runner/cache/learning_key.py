"""The learning key: a digest of all inputs of training besides the cohorts. Runs with equal keys that train the same
sites get the same models, bit for bit."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

import hpctrip
from hpctrip.base.io import digest as digest_of_bytes
from hpctrip.config.identity import identity
from hpctrip.config.sources import PLUGINS, Source
from hpctrip.learn.params import digest
from hpctrip.runner.experiment import Input
from hpctrip.runner.host import Host
from hpctrip.runner.provenance import WORKLOAD, learned_tables

CODE = (
    "learn",
    "base/rng.py",
    "ranks/placement.py",
    "runner/aggregator.py",
    "runner/host.py",
    "runner/loop.py",
)
"""The files and folders of hpctrip that training consists of."""


def learning_key(run_input: Input, host: Host, sources: Iterable[Source], arithmetic: Iterable[str]) -> str:
    """32 hexadecimal digits of all that training depends on before the first cohort: the input as far as training sees
    it, data and plug-ins by their digests, the shards and the first model as they came out, the engine that was chosen,
    hpctrip's own code, and what decides the last bits at the ranks (`learn.params.arithmetic`)."""
    shards = host.shards.bounds, host.shards.samples
    return identity(
        {
            **learned_tables(run_input.experiment),
            "engine": [host.engine.name, str(host.block_rule)],
            "data": sorted([s.key, s.digest] for s in sources if s.key.startswith(WORKLOAD)),
            "plugins": sorted(s.digest for s in sources if s.key == PLUGINS),
            "packages": sorted(map(str, run_input.extensions.packages)),
            "shards": digest_of_bytes(b"".join(array.astype("<i8").tobytes() for array in shards)),
            "model": [len(host.initial_params), digest(host.initial_params), host.constants_digest],
            "slots": len(host.slots),
            "code": code_digest(),
            "arithmetic": sorted(set(arithmetic)),
        }
    )


@functools.cache
def code_digest(package: Path = Path(hpctrip.__file__).parent) -> str:
    """Digest of the code that trains and of hpctrip's version.

    Raises FileNotFoundError where a path in `CODE` does not exist: the digest would no longer change with the code, and
    rounds that other code trained would be taken from the cache.
    """
    content = hashlib.blake2b(hpctrip.__version__.encode(), digest_size=16)
    for name in CODE:
        path = package / name
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        if not files:
            raise FileNotFoundError(f"{path} holds no Python files")
        for file in files:
            content.update(f"\n{file.relative_to(package)}\n".encode())
            content.update(file.read_bytes())
    return content.hexdigest()
