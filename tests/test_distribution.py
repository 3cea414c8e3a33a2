"""What is handed out: the wheel holds scenarios and batch scripts, the source distribution all that its tests need."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from zipfile import ZipFile

import pytest
import yaml
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from PIL import Image

import hpctrip
from hpctrip.figures import FIGURES
from hpctrip.figures.common import reading

ROOT = Path(__file__).parents[1]
OURS = ["hpctrip", "inputs", "slurm", "traces", "tests", "postprocess", "benchmarks", "docs", ".ci"]
"""The folders of the repository; a checkout may hold results, environments and caches beside them."""


def run(*command, cwd, **variables):
    """What a command of somebody elsewhere prints; it must not fail."""
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **{name: str(value) for name, value in variables.items()}},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the repository's own files, in which builds may leave theirs."""
    folder = tmp_path_factory.mktemp("source")
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, folder)
        elif path.name in OURS:
            junk = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(path, folder / path.name, symlinks=True, ignore=junk)
    return folder


def built(kind, source, folder, **variables):
    """The one file that the build backend makes."""
    script = f"import sys, setuptools.build_meta as backend; backend.build_{kind}(sys.argv[1])"
    run("-c", script, folder, cwd=source, **variables)
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    return built("wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site_packages(wheel, tmp_path_factory):
    """Where the wheel is installed, outside the checkout."""
    target = tmp_path_factory.mktemp("site-packages")
    install = ["--no-deps", "--no-index", "--quiet", "--target", target, wheel]
    run("-m", "pip", "install", *install, cwd=target)
    where = "import hpctrip; print(hpctrip.__file__)"
    assert run("-c", where, cwd=target, PYTHONPATH=target).startswith(str(target))
    return target


@pytest.fixture(scope="module")
def python(site_packages):
    """`python(*arguments, cwd=)`: the interpreter that knows the wheel."""
    return lambda *arguments, cwd: run(*arguments, cwd=cwd, PYTHONPATH=site_packages)


COMMANDS = """
import contextlib, io, json, os, sys
from hpctrip.cli.main import run_command
for line in sys.stdin:
    folder, words = json.loads(line)
    os.chdir(folder)
    sys.argv, out = ["hpctrip", *words], io.StringIO()
    with contextlib.redirect_stdout(out):
        code = run_command()
    print(json.dumps([code, out.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def installed(site_packages):
    """`installed(*arguments, cwd=)`: the command line of the wheel, whose commands one process runs."""
    command = [sys.executable, "-c", COMMANDS]
    environment = {**os.environ, "PYTHONPATH": str(site_packages)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=site_packages
    ) as process:

        def run_installed(*arguments, cwd):
            print(json.dumps([str(cwd), arguments]), file=process.stdin, flush=True)
            code, out = json.loads(process.stdout.readline())
            assert code == 0, out
            return out

        yield run_installed
        process.stdin.close()


def test_a_wheel_lists_copies_and_checks_its_scenarios(installed, tmp_path):
    listed = installed("inputs", cwd=tmp_path).splitlines()
    folders = [ROOT / "inputs", *(ROOT / "inputs" / name for name in ("cluster", "real", "worlds"))]
    shipped = [path for folder in folders for path in folder.glob("*.toml")]
    assert len(listed) == len(shipped)
    assert any(re.match(r"smoke +The smallest run", line) for line in listed)
    assert installed("inputs", "smoke", "--to", "inputs", cwd=tmp_path) == "inputs/smoke.toml\n"
    assert (tmp_path / "inputs/smoke.toml").read_text() == (ROOT / "inputs/smoke.toml").read_text()
    assert 'name = "smoke"' in installed("check", "inputs/smoke.toml", cwd=tmp_path)


def test_a_world_of_a_wheel_is_read_by_its_name_and_copied_with_its_tables(installed, tmp_path):
    checked = installed("check", "emnist_dynamic", "worlds/cloud_regions", cwd=tmp_path)
    assert "of 38 sites" in checked
    copied = installed("inputs", "worlds/cloud_regions", "--to", "own", cwd=tmp_path).splitlines()
    assert {*copied} == {f"own/worlds/cloud_regions{end}" for end in (".toml", ".csv", "_carbon.csv")}
    edited = tmp_path / "own/worlds/cloud_regions.csv"
    edited.write_text("".join(edited.read_text().splitlines(keepends=True)[:20]))
    checked = installed("check", "emnist_dynamic", "own/worlds/cloud_regions.toml", cwd=tmp_path)
    assert "of 38 sites" not in checked


def test_a_wheel_lists_and_reads_its_studies(installed, tmp_path):
    listed = installed("study", cwd=tmp_path).splitlines()
    assert len(listed) == len(list((ROOT / "inputs/studies").glob("*.toml")))
    assert "planned      PowerTrip, seed 0" in installed("study", "status", "smoke", cwd=tmp_path)


def test_a_release_has_one_version_and_a_small_wheel(wheel):
    assert wheel.stat().st_size < 1_000_000
    version, cited = hpctrip.__version__, (ROOT / "CITATION.cff").read_text()
    assert wheel.name.startswith(f"hpctrip-{version}-")
    if ".dev" not in version:
        date = re.search(r"^date-released: (.*)$", cited, re.MULTILINE).group(1)
        assert f"\nversion: {version}\n" in cited
        assert f"version = {{{version}}}" in (ROOT / "docs/cite.md").read_text()
        assert f"\n## {version} - {date}\n" in (ROOT / "CHANGELOG.md").read_text()
        with Image.open(ROOT / "docs/images/first.png") as picture:
            assert picture.info["Software"] == f"hpctrip {version}", "make README's picture: .ci/picture"


@pytest.mark.parametrize("repository", ["", "https://host/owner/hpctrip"])
def test_the_page_on_pypi_has_no_link_to_a_file_beside_it(source, tmp_path, repository):
    script = (
        "import sys, setuptools.build_meta as backend; backend.prepare_metadata_for_build_wheel(sys.argv[1])"
    )
    run("-c", script, tmp_path, cwd=source, HPCTRIP_REPOSITORY=repository)
    (page,) = (path.read_text() for path in tmp_path.glob("*.dist-info/METADATA"))
    addresses = re.findall(r"\]\((.*?)\)", page)
    assert addresses and all(address.startswith("https://") for address in addresses)
    picture = f"({repository}/raw/v{hpctrip.__version__}/docs/images/first.png)"
    assert (picture in page) == bool(repository)


def test_a_wheel_writes_batch_scripts(installed, tmp_path):
    assert "requeue" in installed("slurm", cwd=tmp_path)
    said = installed("slurm", "emnist_dynamic", "--to", ".", "--account=abc", cwd=tmp_path)
    assert said.splitlines()[0] == "emnist_dynamic.sh" and "hpctrip inputs --to inputs" in said
    assert "#SBATCH --account=abc\n" in (tmp_path / "emnist_dynamic.sh").read_text()


DRAW_ALL = """
import sys
from contextlib import contextmanager
from hpctrip.cli.main import cli
from hpctrip.figures import FIGURES
from hpctrip.figures.common import reading

for name, figure in FIGURES.items():
    if figure.source in (reading.RUNS, reading.ONE_RUN):
        runs = sys.argv[1:] if figure.source is reading.RUNS else sys.argv[1:2]
        cli(["plot", name, *runs, "--out", f"{name}.svg"], standalone_mode=False)
"""


def test_a_wheel_draws_every_figure_of_runs(python, trained, tmp_path):
    lines = ("stop.max_rounds=2", "evaluate.every_rounds=1", "power.kind=constant")
    policies = (("policy.kind=powertrip",), *(("policy.kind=static", f"policy.k={k}") for k in (2, 3)))
    python("-c", DRAW_ALL, *(trained(*lines, *policy).path for policy in policies), cwd=tmp_path)
    of_runs = [name for name, figure in FIGURES.items() if figure.source in (reading.RUNS, reading.ONE_RUN)]
    assert len(of_runs) > 8
    for name in of_runs:
        assert (tmp_path / f"{name}.svg").read_bytes().startswith(b"<?xml"), name


def test_a_wheel_says_how_an_extra_is_installed_without_the_checkout(python, tmp_path):
    said = "from hpctrip.base.errors import how_to_install; print(how_to_install('mlflow'))"
    assert python("-c", said, cwd=tmp_path) == "pip install 'hpctrip[mlflow]'\n"


def texts_of(path):
    """What a file of the package may say: the literals of a module, the whole of any other file."""
    text = path.read_text()
    if path.suffix != ".py":
        return [text]
    parts = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return [part for part in parts if isinstance(part, str)]


def test_what_the_package_says_names_no_file_that_a_wheel_lacks(wheel):
    """Unless it says that it is one of the source tree."""
    with ZipFile(wheel) as file:
        held = [name.removeprefix("hpctrip/") for name in file.namelist()]
    folders = "inputs|slurm|traces|tests|postprocess|benchmarks|docs|hpctrip"
    named = re.compile(
        rf"(?<![\w./-])(?:(?:{folders})/[\w./-]*\w|constraints\.txt)\b(?!`? of the source tree)"
    )
    wrong = []
    files = [path for suffix in ("py", "toml", "sh") for path in (ROOT / "hpctrip").rglob(f"*.{suffix}")]
    files += [path for folder in ("inputs", "slurm") for path in (ROOT / folder).rglob("*.*")]
    for path in files:
        for text in texts_of(path):
            for name in named.findall(" ".join(text.split())):
                inside = name.removeprefix("hpctrip/")
                if (ROOT / name).exists() and not any(f"{one}/".startswith(f"{inside}/") for one in held):
                    wrong.append(f"{path.relative_to(ROOT)} names {name}")
    assert wrong == []


def test_a_wheel_is_typed_and_names_no_person_and_no_place_but_the_paper(wheel):
    with ZipFile(wheel) as file:
        names = file.namelist()
        (metadata,) = [name for name in names if name.endswith("/METADATA")]
        text, _, readme = file.read(metadata).decode().partition("\n\n")
    assert "hpctrip/py.typed" in names
    assert re.findall(r"^(?:Home-page|Project-URL|Download-URL): (.*)", text, re.MULTILINE) == [
        "Paper, https://arxiv.org/abs/2507.17904"
    ]
    assert "Author: The hpctrip authors" in text and "@" not in text
    assert "https://arxiv.org" in readme and not re.findall(
        r"\]\((?!https:)", readme
    )  # PyPI has no other page


@pytest.fixture(scope="module")
def sdist(source, tmp_path_factory):
    return built("sdist", source, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def unpacked(sdist, tmp_path_factory):
    """The folder that a source distribution holds."""
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["tar", "-xf", sdist, "-C", folder], check=True)
    (top,) = folder.iterdir()
    return top


def test_pypi_takes_what_is_built_and_pip_installs_it_from_source(wheel, sdist, unpacked, tmp_path):
    """As far as `twine check` and an upload can be followed without PyPI: valid metadata, the same in both files."""
    assert sdist.name == f"hpctrip-{hpctrip.__version__}.tar.gz"
    with ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith("/METADATA"))
        texts = [file.read(name), (unpacked / "PKG-INFO").read_bytes()]
    of_wheel, of_source = (Metadata.from_email(text, validate=True) for text in texts)
    assert of_wheel.description_content_type == "text/markdown" and of_wheel.description
    assert str(of_wheel.version) == hpctrip.__version__
    for fact in ("name", "version", "requires_python", "requires_dist", "description"):
        assert getattr(of_wheel, fact) == getattr(of_source, fact)
    install = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", tmp_path / "site"]
    run("-m", "pip", "install", *install, sdist, cwd=tmp_path)
    said = run("-m", "hpctrip", "--version", cwd=tmp_path, PYTHONPATH=tmp_path / "site")
    assert said.endswith(f"{hpctrip.__version__}\n")


def test_spack_installs_what_setup_asks_for(unpacked):
    """The recipe, executed with stand-ins for Spack's own words."""

    said = []
    note = lambda name: lambda *args, **options: said.append((name, args, options))  # noqa: E731
    inner = contextmanager(lambda **options: iter([said.append(("all", (), options))]))
    words = {name: note(name) for name in ("depends_on", "license", "version")} | {"default_args": inner}
    modules = {
        "spack.package": SimpleNamespace(**words),
        "spack_repo.builtin.build_systems.python": SimpleNamespace(PythonPackage=object),
    }
    recipe = ModuleType("package")
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            for depth in range(1, name.count(".") + 1):
                patch.setitem(sys.modules, name.rsplit(".", depth)[0], ModuleType("stand-in"))
            patch.setitem(sys.modules, name, module)
        exec((ROOT / "docs/site/package.py").read_text(), recipe.__dict__)
    metadata = Metadata.from_email((unpacked / "PKG-INFO").read_bytes())
    wanted = {f"python@{str(metadata.requires_python).removeprefix('>=')}:"}
    for each in map(str, metadata.requires_dist):
        if "extra ==" not in each:
            each = Requirement(each)
            wanted.add(f"py-{canonicalize_name(each.name)}@{str(each.specifier).removeprefix('>=')}:")
    begins = next(at for at, (name, _, _) in enumerate(said) if name == "all")
    assert said[begins][2] == {"type": ("build", "run")}
    assert {args[0] for name, args, _ in said[begins:] if name == "depends_on"} == wanted
    assert [args[0] for name, args, _ in said if name == "version"] == [hpctrip.__version__]
    assert recipe.PyHpctrip.pypi == f"hpctrip/hpctrip-{hpctrip.__version__}.tar.gz"


def test_read_the_docs_builds_the_documentation_as_the_tests_do():
    """tests/test_docs_site.py builds it; here, that the recipe names what there is."""
    recipe = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())
    assert recipe["mkdocs"] == {"configuration": "mkdocs.yml", "fail_on_warning": True}
    assert recipe["build"]["tools"]["python"] in SpecifierSet(">=3.11")
    commands = recipe["build"]["jobs"]["install"]
    assert (
        commands[-1] == "pip install -c constraints.txt -e '.[docs]'" and (ROOT / "constraints.txt").exists()
    )
    assert '"docs": DOCS' in (ROOT / "setup.py").read_text()


def test_a_source_distribution_holds_every_file_of_the_repository(source, unpacked):
    for folder in OURS:
        files = {path.relative_to(source) for path in (source / folder).rglob("*") if path.is_file()}
        missing = {str(path) for path in files if not (unpacked / path).is_file()}
        assert not {name for name in missing if "egg-info" not in name and "__pycache__" not in name}


@pytest.fixture(scope="module")
def pinned():
    """{package: version} of constraints.txt."""
    found = re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def test_every_pinned_package_runs_on_the_oldest_python_that_setup_allows(pinned):
    """A pin for 3.11.5 and later stops the README's commands on Debian 12, whose Python is 3.11.2."""
    oldest = re.search(r'python_requires=">=([\d.]+)"', (ROOT / "setup.py").read_text())[1] + ".0"
    asked = {
        canonicalize_name(found.name): (found.version, found.metadata.get("Requires-Python") or "")
        for found in metadata.distributions()
    }
    tested = {name for name, version in pinned.items() if asked.get(name, ("", ""))[0] == version}
    assert tested
    assert not [name for name in sorted(tested) if oldest not in SpecifierSet(asked[name][1])]


def test_every_requirement_has_a_floor_that_the_tested_version_reaches(pinned):
    """The floors are what `.ci/matrix lowest` installs."""
    floors = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', (ROOT / "setup.py").read_text()))
    assert len(floors) > 15
    numbers = lambda version: tuple(map(int, version.split(".")))  # noqa: E731
    for name, floor in floors.items():
        assert numbers(floor) <= numbers(pinned[name]), name
