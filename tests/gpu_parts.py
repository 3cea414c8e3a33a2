"""Parts that end badly, and the conductor over them: `python gpu_parts.py FOLDER` prints how each ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from gpu import conductor
from gpu.conductor import Conductor, Part, Setting
from gpu.rows import Report, Written


def good(setting: Setting, report: Report, value: float = 1.0) -> None:
    report.at_most("told", value, 2.0, shape="small", n=3)


def broken(setting: Setting, report: Report) -> None:
    report.row("told_before_the_error", 1)
    raise ValueError("this shape is none\nand more lines")


def crashing(setting: Setting, report: Report) -> None:
    report.row("told_before_the_crash", 1)
    os.abort()


def leaving(setting: Setting, report: Report) -> None:
    os._exit(3)


def hanging(setting: Setting, report: Report) -> None:
    child = subprocess.Popen(["sleep", "600"])
    report.row("child", child.pid)
    time.sleep(600)


def main(folder: str) -> None:
    conductor.LEAST_LIMIT_S, conductor.LEAVING_S = 2.0, 1.0
    written = Written(Path(folder), lambda: 0.0)
    setting = Setting("cpu", False, folder, folder)
    conducted = Conductor(written, time.monotonic() + 300)
    for function in (broken, crashing, leaving, hanging, good):
        name = function.__name__
        print(name, "|", conducted.run(Part(name, f"gpu_parts:{name}", 0.1, ""), setting))
    late = Conductor(written, time.monotonic() + conductor.CLOSING_S + 20)
    for seconds in (30, 0.1):  # the worthier part does not fit any more, a short one does
        part = Part("good", "gpu_parts:good", seconds, "", (("value", 4.0),))
        print(f"late {seconds}", "|", late.run(part, setting))


if __name__ == "__main__":
    main(*sys.argv[1:])
