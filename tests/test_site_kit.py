"""docs/site, and the page about clusters: the images' recipes can be read and copy what an installation needs."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "site"
NOTES = ROOT / "docs" / "howto" / "cluster.md"
INSTRUCTIONS = {"FROM", "ARG", "COPY", "RUN", "ENV", "WORKDIR", "USER", "ENTRYPOINT"}
SECTIONS = {"files", "post", "environment", "runscript", "test", "help"}


def dockerfile():
    """[(instruction, arguments)] of the Dockerfile."""
    text = re.sub(r"^#.*\n", "", (SITE / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def definition():
    """The header of the Apptainer definition, and its sections: {name: text}."""
    head, *parts = re.split(r"^%", (SITE / "hpctrip.def").read_text(), flags=re.MULTILINE)
    header = dict(line.split(": ") for line in head.splitlines() if line and not line.startswith("#"))
    return header, {part.split()[0]: part.partition("\n")[2] for part in parts}


def test_the_dockerfile_is_well_formed_and_starts_hpctrip():
    found = dockerfile()
    assert {name for name, _ in found} <= INSTRUCTIONS
    assert found[:2] == [("ARG", f"BASE={definition()[0]['From']}"), ("FROM", "${BASE}")]
    (user,) = [arguments for name, arguments in found if name == "USER"]
    assert "0" not in user.split(":")
    assert [name for name, _ in found].index("USER") > max(
        i for i, (name, _) in enumerate(found) if name == "RUN"
    )
    (variables,) = [arguments for name, arguments in found if name == "ENV"]
    assert "HPCTRIP_CACHE=/tmp/" in variables  # where any user may write
    (entry,) = [json.loads(arguments) for name, arguments in found if name == "ENTRYPOINT"]
    assert entry == ["python", "-m", "hpctrip"]
    for name, arguments in found:
        if name == "RUN":
            check_shell(arguments)


def test_the_base_has_a_version_and_nothing_is_fetched_but_by_pip():
    header, sections = definition()
    assert re.fullmatch(r"python:3\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", header["From"])  # not latest
    for text in (
        sections["post"],
        *(arguments for name, arguments in dockerfile() if name in ("RUN", "COPY")),
    ):
        assert not re.search(r"https?:|git\+|\b(curl|wget|git|apt|apt-get)\b", text), text


def test_the_apptainer_definition_is_well_formed_and_starts_hpctrip():
    header, sections = definition()
    assert header.keys() == {"Bootstrap", "From"} and header["Bootstrap"] == "docker"
    assert sections.keys() == SECTIONS
    assert 'exec python -m hpctrip "$@"' in sections["runscript"]
    for name in ("post", "environment", "runscript", "test"):
        check_shell(sections[name])


def check_shell(text):
    checked = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True)
    assert not checked.stderr and checked.returncode == 0, checked.stderr


def copied_by_docker():
    words = [shlex.split(arguments) for name, arguments in dockerfile() if name == "COPY"]
    return {
        source: (target + source if target.endswith("/") else target)
        for *sources, target in words
        for source in sources
    }


def test_both_images_are_one():
    header, sections = definition()
    assert ("ARG", f"BASE={header['From']}") in dockerfile()
    assert dict(line.split() for line in sections["files"].splitlines() if line.strip()) == copied_by_docker()
    (run,) = [arguments for name, arguments in dockerfile() if name == "RUN"]
    assert [part.strip() for part in run.split("&&")] == [
        line.strip() for line in sections["post"].splitlines() if line.strip()
    ]
    assert "-c /opt/hpctrip/constraints.txt" in run


def test_the_context_of_the_docker_build_is_what_the_image_copies():
    patterns = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] not in ("#", "")
    ]
    assert patterns[0] == "*" and {line[1:] for line in patterns if line[0] == "!"} == {*copied_by_docker()}


def test_what_the_images_copy_is_all_that_an_installation_needs(tmp_path):
    for source, target in copied_by_docker().items():
        to = tmp_path / Path(target).relative_to("/opt/hpctrip")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, to, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, to)
    script = "import setuptools.build_meta as backend; print(backend.build_wheel('.'))"
    built = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0 and built.stdout.split()[-1].endswith(".whl"), built.stderr
    assert (tmp_path / "hpctrip" / "inputs" / "smoke.toml").is_file()


def test_the_page_names_files_variables_and_keys_that_exist():
    from hpctrip.runner.experiment import Experiment

    text = NOTES.read_text()
    for name in re.findall(r"\]\(([^):#]+)[)#]", text):
        assert (NOTES.parent / name).exists(), name
    ours = "".join(path.read_text() for path in [*ROOT.glob("hpctrip/*/**/*.py"), *ROOT.glob("slurm/*.sh")])
    for name in re.findall(r"\bHPCTRIP_\w+", text):
        assert name in ours or name.removeprefix("HPCTRIP_").lower() in ours, name
    for table, key in re.findall(r"\b(ranks|interrupt|stop)\.(\w+)", text):
        assert key in Experiment.model_fields[table].annotation.model_fields, f"{table}.{key}"


def test_commands_of_the_page_are_understood():
    from hpctrip.cli.main import cli

    text = NOTES.read_text().replace("\\\n", " ")
    commands = re.findall(r"(?:^ {4}|\n)[^`\n]*python -m hpctrip ([^\n`|&#]+)", text, re.MULTILINE)
    for command in commands:
        name, *rest = shlex.split(re.sub(r"\.\.\.$", "", command))
        if name not in cli.commands:
            name, rest = "run", [name, *rest]
        with cli.commands[name].make_context(name, rest):
            pass
