"""What README and the documentation promise exists and works."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import matplotlib.pyplot as plt
import numpy as np
import pytest
import yaml
from PIL import Image

import hpctrip
from hpctrip.base.errors import EXIT_CODES, InterruptedRun, UnsavedRun
from hpctrip.cluster.run import read_cluster_input
from hpctrip.cluster.scenario import ClusterScenario
from hpctrip.config.component import Registry, owner_of
from hpctrip.record.reader import open_run
from hpctrip.record.show import summary
from hpctrip.runner.experiment import Experiment, read_input
from hpctrip.sim.network.link_table import read_matrix

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
"""The text of README and of every page of the docs."""
DOCUMENTS = PAGES | {
    name: (ROOT / name).read_text()
    for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "hpctrip/DESIGN.md")
    if (ROOT / name).exists()
}
FILES = {
    title: text
    for page in PAGES.values()
    for title, text in re.findall(r'^```\w+ title="(.+?)"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
}
"""What readers are told to write into a file: {its name: its text}."""


def commands(page):
    """The arguments of every command line of hpctrip in it. A variable of the shell counts as 0."""
    page = re.sub(r"\\\n *", "", page)
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    code = [line for block in blocks for line in block.splitlines()]
    code += re.findall(r"^    .*|`[^`\n]+`", page, re.MULTILINE)
    for line in code:
        for command in re.split(r"&&|\|\||  +#|`", line):
            words = re.sub(r"\$\w+", "0", command.strip())
            if "python -m hpctrip " in words or re.match(r"hpctrip \S+ \S", words):
                _, _, arguments = words.partition("hpctrip ")
                yield tuple(shlex.split(arguments))


COMMANDS = sorted({words for page in PAGES.values() for words in commands(page) if words[-1] != "--help"})


def test_readme_opens_with_the_two_commands():
    blocks = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2 and all(len(block.splitlines()) == 1 for block in blocks)
    assert "python -m hpctrip" in blocks[0] and blocks[1].strip().endswith("pytest")
    assert PAGES["docs/tutorial.md"].split("```bash\n")[1].startswith(blocks[0])


def test_readme_is_a_page_and_not_a_manual():
    assert len(README.split()) < 800
    assert (ROOT / "docs/images/first.png").stat().st_size < 200_000
    assert "(docs/images/first.png)" in README


@pytest.fixture
def folder(folder):
    """A working folder with the files that readers write, and the scenarios."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "inputs").symlink_to(ROOT / "inputs")
    return folder


def test_every_command_of_the_docs_is_understood(folder):
    """Parsed, not run: the options and arguments exist, and where there are input files, they are valid."""
    assert len(COMMANDS) > 200
    for words in COMMANDS:
        try:
            parse(words, folder)
        except Exception as error:
            error.add_note(f"in the command: hpctrip {shlex.join(words)}")
            raise


def parse(words, folder):
    from hpctrip.cli.main import cli
    from hpctrip.studies.studies import Changes, sweep_study

    name, *rest = words
    if name == "--version":
        cli.main([name], standalone_mode=False)
        return
    if name not in cli.commands:
        name, rest = "run", [name, *rest]
    group = cli.commands["cluster"].commands if name == "cluster" else cli.commands
    if name == "cluster":
        name, *rest = rest if rest[0] in group else ["run", *rest]
    with group[name].make_context(name, rest) as context:
        given = [context.params.get(part, ()) for part in ("paths", "overrides", "plugins")]
        if group is not cli.commands:
            if name in ("run", "check"):
                read_cluster_input(*given)
        elif name == "run" and (sweeps := context.params["sweeps"]):
            assert sweep_study(given[0], folder, Changes(given[1], sweeps, given[2])).entries
        elif name in ("run", "check", "plan", "prepare") and "FILE" not in given[0]:
            read_input(*given)


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.startswith("example_")))
def test_the_examples_of_the_library_run(name, folder, capsys):
    exec(FILES[name], {})
    assert capsys.readouterr().out


def test_the_input_of_a_real_job_is_what_its_example_computes(folder, capsys, hpctrip):
    exec(FILES["example_real_job.py"], names := {})
    assert FILES["real_job.toml"].startswith(capsys.readouterr().out)
    world = read_input(["real_job.toml"]).experiment.check().world
    computes_s = world.hardware.work_s(np.full(12, names["samples"]), world.timing.seconds_per_sample)
    assert computes_s == pytest.approx([names["steps"] * names["step_s"]] * 12)
    assert hpctrip("plan", "real_job.toml", "--rounds", "1", "--samples-per-second", "1000").code == 0


def test_the_policy_the_power_model_and_the_partition_of_the_docs_run(folder, trained):
    run = trained(
        "plugins=['nearest.py', 'day_night.py', 'by_position.py']",
        "policy={kind = 'nearest', k = 3}",
        "power={kind = 'day-night', night = 0.5}",
        "partition.kind=by-position",
    )
    assert run.rounds["num_sites"].tolist() == [3] * 3
    assert set(run.sites["power_fraction"]) == {0.5, 1.0} and run.sites["zone_h"].between(0, 23).all()
    assert set(run.sites["num_samples"]) == {20}


def test_the_workload_of_the_docs_learns(folder, trained):
    run = trained(
        "plugins=['blobs.py']", "workload.kind=blobs", "stop.max_rounds=15", "evaluate.every_rounds=5"
    )
    assert run.meta["synthetic_data"] and run.rounds["accuracy"].max() > 0.5


def test_the_callback_of_the_docs_ends_a_run(folder, trained):
    lines = ("evaluate.every_rounds=9", "stop.max_rounds=9", "callbacks.plateau.rounds=2")
    run = trained("plugins=['plateau.py']", *lines)
    assert run.meta["stop_reason"] == "callbacks.plateau: best accuracy 0.000 since round 0"
    assert len(run.rounds) == 3


def test_the_sites_of_the_docs_are_those_of_a_run(folder, hpctrip):
    page = PAGES["docs/howto/sites.md"]
    checked, ran, *_ = commands(page)
    said = [line for line in hpctrip(*checked).out.splitlines() if line.startswith("# sites")]
    assert said == re.findall("# sites.*", page)
    small = ("stop.max_rounds=1", "workload.train_samples=60", "workload.test_samples=20")
    assert hpctrip(*ran, *(word for line in small for word in ("-o", line)), "--out", "run.h5").code == 0
    run = open_run("run.h5")
    assert run.sites["name"].tolist() == ["Oslo", "Lisbon", "Warsaw"]
    assert run.sites["num_gpus"].tolist() == [64, 100, 200] and run.sites["bandwidth_bps"][0] == 4e8
    assert summary(run)["sites"] == "3 from sites.csv, power uniform (synthetic)"


def test_the_report_of_the_docs_is_that_of_the_planners_twelve_sites(folder, hpctrip):
    assert hpctrip("run", "inputs/planner.toml", "-o", "stop.max_rounds=7", "--out", "planner.h5").code == 0
    head, *rows = hpctrip("show", "--sites", "planner.h5").out.splitlines()[1:]
    said = re.search(r"(?s)```text\nsite (.*?)```", PAGES["docs/howto/sites.md"])[0].splitlines()[1:-1]
    assert said[0].split() == head.split()
    assert {line.split()[0] for line in said[1:]} - {"..."} <= {row.split()[0] for row in rows}
    assert len(rows) == 12 + 1 and set(open_run("planner.h5").sites["fact_operator"]) == {"own", "partner"}


def test_the_power_of_the_docs_is_that_of_its_sites(folder, hpctrip):
    page = PAGES["docs/howto/power.md"]
    first, used, *_ = commands(page)
    assert re.findall("^    (# .*)", page, re.MULTILINE) == re.findall(
        "^# .*", hpctrip(*first).out, re.MULTILINE
    )
    quarters_s, full_kw = np.arange(3) * 900, 44
    world = read_input(first[1:]).experiment.check().world
    power = np.array([world.power_fraction(clock_s) for clock_s in quarters_s]) * full_kw
    assert power == pytest.approx(np.array([[20, 35, 44], [22, 30, 44], [26, 28, 40]]))
    assert world.start == ["power 2024-05-01T00:00:00 UTC, data until 2024-05-01T00:45:00"]
    world = read_input(used[1:2], used[3::2]).experiment.check().world
    assert world.power_fraction(0.0) * full_kw == pytest.approx([40, 25, 16])


def test_images_arrays_and_the_model_of_the_docs_learn(folder, hpctrip):
    rng = np.random.default_rng(0)
    for label, colour in {"cat": (210, 70, 40), "dog": (40, 70, 210)}.items():
        (folder / "photos" / label).mkdir(parents=True)
        for number in range(1, 151):
            pixels = np.clip(colour + rng.normal(0, 40, (36, 48, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / label / f"{number}.png")
    for command in map(list, commands(PAGES["docs/howto/own_data.md"])):
        if command[0] != "keys":
            more = (
                ["-o", "stop.max_rounds=25", "--out", "run.h5", "--overwrite"] if command[0] == "run" else []
            )
            ended = hpctrip(*command, *more)
            assert ended.code == 0, ended.err
            if command == ["check", "photos.toml"]:
                assert "# data: 300 images, 2 classes; 270 to train on, 30 to test on\n" in ended.out
            if command == ["run", "photos.toml"]:
                run = open_run("run.h5")
                assert run.meta["stop_reason"] == "target accuracy 0.9 reached"
                assert not run.meta["synthetic_data"]
    source = "arrays from points.py:points: 2 classes (0, 1), 360 training and 40 test samples"
    assert summary(open_run("run.h5"))["data"] == f"arrays: {source}"


def test_the_recipe_of_diloco_runs_small_and_has_a_label_of_its_own(folder):
    (words,) = [words for words in COMMANDS if words[:2] == ("llm_full", "diloco.toml")]
    small = read_input(words[:2], words[3::2]).experiment
    assert small.label == "DiLoCo" and small.stop.max_rounds <= 5 and small.train.keep_optimizer


def test_the_trace_of_the_docs_is_read(folder):
    trace = ("power.kind=trace", "power.path=cella_pdu1.csv", "power.column=measured")
    read_input(["mine.toml"], trace).experiment.check()


def test_wide_and_long_tables_and_dated_files_of_public_sources_are_read_as_the_docs_say(folder):
    for script in ("entsoe.py", "solcast.py", "nvidia_smi.py"):
        exec(FILES[script], {})
    page = PAGES["docs/howto/data.md"].partition("### Wide and long tables")[2]
    checks = [words for words in COMMANDS if words in set(commands(page)) and "check" in words]
    worlds = {}
    for words in checks:
        at = words.index("-o") if "-o" in words else len(words)
        worlds[words] = read_input(words[1:at], words[at + 1 :: 2]).experiment.check().world
    starts = [world.start for world in worlds.values()]
    assert len(checks) == 13 and starts.count([]) == 3
    grid = worlds["check", "two_sites.toml"].signals
    assert grid["price"].at(0.0).tolist() == pytest.approx([31.5e-3, 52e-3])
    assert grid["carbon"].at(0.0).tolist() == [25, 140]
    assert ["carbon 2022-01-01T00:00:00 UTC, data until 2022-01-01T03:00:00"] in starts
    for table in ("carbon", "price"):  # wide and long
        assert starts.count([f"{table} 2024-05-01T00:00:00 UTC, data until 2024-05-01T02:00:00"]) == 2
    assert ["price 2025-10-25T23:00:00 UTC, data until 2025-10-26T03:00:00"] in starts
    assert ["power 2024-08-08T05:00:00 UTC, data until 2024-08-08T06:30:00"] in starts


def test_the_python_of_the_docs_runs(folder, capsys):
    exec(FILES["library.py"], {})
    assert (folder / "k5.png").exists()
    hpctrip.run("inputs/smoke.toml", {"stop.max_rounds": 1}, out="results/first.h5", quiet=True)
    exec(FILES["again.py"], {})
    exec(FILES["cluster.py"], {})
    exec(FILES["read.py"], {})
    exec(FILES["in_xarray.py"], {})
    (folder / "docs").symlink_to(ROOT / "docs")
    exec(FILES["start.py"], {})
    assert (folder / "when_to_start.png").exists()
    plt.close("all")
    assert "held-out accuracy of the global model" in capsys.readouterr().out


@pytest.mark.parametrize(("program", "name"), [("Rscript", "in_r.R"), ("octave-cli", "in_octave.m")])
def test_other_languages_read_results_as_the_docs_say(program, name, folder):
    if shutil.which(program) is None:
        pytest.skip(f"no {program} here")
    run = hpctrip.run("inputs/smoke.toml", {"stop.max_rounds": 1}, out="results/first.h5", quiet=True)
    done = subprocess.run([program, name], cwd=folder, capture_output=True, text=True)
    if "no package called" in done.stderr:
        pytest.skip("R has no package hdf5r here")
    assert f"{run.rounds['accuracy'].iloc[-1]:g}" in done.stdout, done.stderr


def test_every_file_that_a_document_names_exists():
    folders = "inputs|slurm|postprocess|tests|benchmarks|traces|docs|hpctrip"
    file = re.compile(rf"\b(?<![/-])(?:{folders})/[\w/]+\.(?:py|toml|sh|md)\b")
    named = {(name, path) for name, text in DOCUMENTS.items() for path in file.findall(text)}
    assert not sorted((name, path) for name, path in named if not (ROOT / path).exists())


def test_every_link_of_a_document_outside_the_site_holds():
    """Those of the site are checked where it is built."""
    for name in (name for name in DOCUMENTS if not name.startswith("docs/")):
        linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", DOCUMENTS[name])
        assert not [(name, path) for path in linked if not (ROOT / name).parent.joinpath(path).exists()]


def test_every_key_that_a_page_names_exists():
    assert {name: keys for name in PAGES if (keys := unknown_keys(name))} == {}


def unknown_keys(name):
    """The keys that a page names and no table has."""
    text = re.sub(r"^```python.*?^```", "", PAGES[name], flags=re.MULTILINE | re.DOTALL)
    root = ClusterScenario if name == "docs/howto/gpu_cluster.md" else Experiment
    tables = "|".join(name for name in root.model_fields if name != "name")
    named = set(re.findall(rf"(?<![\w./])({tables})\.(?!(?:py|toml|h5|md|csv)\b)(\w+)", text))
    own = {
        "docs/howto/components.md": {("workload", "samples"), ("power", "night"), ("callbacks", "plateau")},
        "docs/howto/data.md": {("power", "draw")},  # of nvidia-smi
    }.get(name, set())
    return {(table, key) for table, key in named - own if key not in words_of(table, root)}


@pytest.mark.parametrize("world", sorted(ROOT.glob("inputs/worlds/*.toml")), ids=lambda path: path.stem)
def test_every_world_is_valid_over_a_scenario_and_names_the_origin_of_its_values(world, folder, hpctrip):
    checked = hpctrip("check", "inputs/emnist_dynamic.toml", f"inputs/worlds/{world.name}")
    assert checked.code == 0, checked.err
    head = world.read_text().partition("[")[0]
    tables = set(re.findall(rf"\"({world.stem}\w*\.csv)\"", world.read_text()))
    assert tables and all(name in head for name in tables)


def test_the_kinds_and_keys_in_the_table_of_inputs_exist():
    rows = re.findall(r"^\| `\[.*", PAGES["docs/reference/input.md"], re.MULTILINE)
    assert len(rows) > 15
    for row in rows:
        tables, names = row.split("|")[1:3]
        known = {word for table in re.findall(r"\[(\w+)\]", tables) for word in words_of(table)}
        assert set(re.findall(r"`([\w-]+)`", names)) <= known, row


def test_the_choices_of_the_readings_exist():
    rows = re.findall(r"^\| [^|]+\| `\w+\..*", PAGES["docs/explanation/readings.md"], re.MULTILINE)
    assert len(rows) > 15
    for row in rows:
        keys, choices = row.split("|")[2:4]
        known = {word for table, _ in re.findall(r"`(\w+)\.(\w+)`", keys) for word in words_of(table)}
        assert set(re.findall(r"`([a-z][\w-]+)`", choices)) <= known | {"true", "false"}, row


def words_of(table, root=Experiment):
    """The kinds, keys and choices of a table of the input whose root is `root`."""
    field = root.model_fields[table]
    registry = owner if isinstance(owner := owner_of(field), Registry) else {}
    classes = [cls for cls in registry.values() or [field.annotation] if hasattr(cls, "model_fields")]
    keys = {key: field for cls in classes for key, field in cls.model_fields.items()}
    choices = {value for field in keys.values() for value in get_args(field.annotation)}
    return {*registry, *keys, "kind"} | {choice for choice in choices if isinstance(choice, str)}


def test_the_columns_of_sites_are_those_of_a_run(trained):
    sites = trained("stop.max_rounds=1").sites
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+) \|$", PAGES["docs/reference/results.md"], re.MULTILINE)
    units, descriptions = sites.attrs["units"], sites.attrs["descriptions"]
    assert rows == [(name, units[name], descriptions[name]) for name in sites]


def test_every_message_that_troubleshooting_explains_is_one_of_ours():
    page = PAGES["docs/troubleshooting.md"]
    rows = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    quoted = [message for row in rows for message in re.findall(r"`([^`]+)`", row)]
    ours = "".join(path.read_text() for path in (ROOT / "hpctrip").rglob("*.py"))
    foreign = {
        "Invalid generic resource (gres) specification",  # of Slurm
        "There are not enough slots available in the system",  # of Open MPI
        "Runtime environment uses unsupported PMI version PMIx",  # of MPICH
    }
    parts = {part.strip() for message in quoted for part in message.split("…")} - foreign - {"verify"}
    assert len(parts) > 25
    assert not {part for part in parts if part not in ours}


def test_every_exit_code_is_explained():
    page = PAGES["docs/troubleshooting.md"]
    assert list(map(int, re.findall(r"^\| (\d+) \|", page, re.MULTILINE))) == list(EXIT_CODES)


def test_kubernetes_starts_those_runs_again_that_were_interrupted():
    (job,) = re.findall(
        r"^```yaml\n(apiVersion.*?)^```", PAGES["docs/howto/cluster.md"], re.MULTILINE | re.DOTALL
    )
    spec = yaml.safe_load(job)["spec"]
    rule = spec["podFailurePolicy"]["rules"][-1]
    codes = [InterruptedRun.exit_code, UnsavedRun.exit_code]
    assert rule == {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": codes}}
    assert spec["template"]["spec"]["restartPolicy"] == "Never"  # or the policy is refused


def test_the_converter_of_the_docs_reads_files_of_iperf3(folder):
    """In one of which the server sent, and of which two are of one link, an hour apart."""
    names = "a--b.json", "a--c.json", "a--b--again.json"
    for name, reverse, rtt_us, time_s in zip(
        names, (0, 1, 0), (52_100, 900, 70_000), (1_764_374_400, 1_764_374_405, 1_764_378_000), strict=True
    ):
        end = {
            "streams": [{"sender": {"min_rtt": rtt_us}}, {"sender": {"min_rtt": rtt_us + 7}}],
            "sum_received": {"bits_per_second": 8.25e8},
        }
        start = {"test_start": {"reverse": reverse}, "timestamp": {"timesecs": time_s}}
        Path(name).write_text(json.dumps({"start": start, "end": end}))
    converter = [sys.executable, "-c", FILES["iperf3_links.py"]]
    for number in 2, 3:
        made = subprocess.run([*converter, *names[:number]], capture_output=True, text=True, check=True)
        first, second, *_ = made.stdout.splitlines()[1:]
        assert first == "1764374400,a,b,52.1,825000000" and second == "1764374405,c,a,0.9,825000000"
        Path("links.csv").write_text(made.stdout)
        links = read_matrix("links.csv", "links.csv")
        assert links.at(0.0).latency_s[0, 1] == 0.02605 and links.at(0.0).bandwidth_bps[2, 0] == 825e6
        assert links.at(4000.0).latency_s[0, 1] == (0.035 if number == 3 else 0.02605)
    Path("a--b.json").write_text('{"error": "unable to connect"}')
    refused = subprocess.run([*converter, "a--b.json"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and refused.stderr == "a--b.json: iperf3 says: unable to connect\n"
