"""The concepts on the way of one run: the source files that rank 0 enters before round 1, and the records of a round.

    python benchmarks/concepts.py -o workload.kind=shakespeare        # with options of `hpctrip run`

A file is entered where one of its functions is called, from the start of the command to the first round; what runs
while modules are imported does not count. A record is a dataclass or NamedTuple of hpctrip that round 2 makes.
"""

import dataclasses
import sys
import tempfile
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import hpctrip
import hpctrip.runner.session
from hpctrip.cli.main import main

PACKAGE = f"{Path(hpctrip.__file__).parent}/"
SMALL = ("sites.num_sites=10", "workload.train_samples=400", "workload.test_samples=200", "stop.max_rounds=3")
files: set[str] = set()
records: Counter[str] = Counter()
rounds = 0


def profile(frame, event, _):
    """Count what is called, by `sys.setprofile`."""
    global rounds
    code = frame.f_code
    if event != "call":
        return
    if code.co_filename.startswith(PACKAGE):
        if rounds == 0 and code.co_flags & CO_OPTIMIZED:  # a function, no module and no class body
            files.add(code.co_filename.removeprefix(PACKAGE))
        rounds += code.co_qualname == "Simulation.begin"
    if rounds == 2 and code.co_argcount and code.co_name in ("__init__", "__new__", "<lambda>"):
        first = frame.f_locals.get(code.co_varnames[0])
        made = type(first) if code.co_name == "__init__" else first
        if isinstance(made, type) and (dataclasses.is_dataclass(made) or hasattr(made, "_fields")):
            records[made.__qualname__] += made.__module__.startswith("hpctrip.")


with tempfile.TemporaryDirectory() as folder:
    options = [word for line in SMALL for word in ("-o", line)]
    sys.argv = ["hpctrip", "run", *options, "--out", f"{folder}/run.h5", *sys.argv[1:]]
    sys.setprofile(profile)
    main()
    sys.setprofile(None)

packages = Counter(name.partition("/")[0] for name in files)
print(f"{len(files)} files:", ", ".join(f"{number} of {name}" for name, number in packages.most_common()))
print(f"{len(+records)} record types:", ", ".join(sorted(+records)))
