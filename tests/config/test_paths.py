"""Paths of data in an input file: relative to the file, else to the working folder."""

import pytest

SITES = "name,distance_km\nnorth,100\nsouth,200\n"
POWER = "time_s,north_kw,south_kw\n0,20,30\n900,25,20\n"


@pytest.fixture
def world(folder):
    """A working folder with world/input.toml, which names files, and none of these yet."""
    (folder / "world").mkdir()
    (folder / "world/input.toml").write_text(
        """
        sites = { kind = "csv", path = "sites.csv" }
        power = { kind = "csv", path = "power1.csv" }
        faults = { deadline_s = 1e6, outages = "out.csv" }
        workload.test_samples = 200
        workload.train_samples = 400
        policy = { kind = "static", k = 2 }
        stop = { max_rounds = 1, target_accuracy = 1.0 }
        """
    )
    return folder


def write(folder):
    (folder / "sites.csv").write_text(SITES)
    (folder / "power1.csv").write_text(POWER)
    (folder / "out.csv").write_text("site,start_s,end_s\n0,1e5,2e5\n")


@pytest.mark.parametrize("place", ["world", "."])
def test_files_are_found_beside_the_input_file_and_in_the_working_folder(world, hpctrip, place, monkeypatch):
    write(world / place)
    own = ("-o", f"power.path={place}/power1.csv")
    made = hpctrip("run", "world/input.toml", *own, "--out", "run.h5")
    assert made.code == 0, made.err
    monkeypatch.chdir(world / "world")
    moved = hpctrip(
        "run", "input.toml", "-o", f"power.path={world / place / 'power1.csv'}", "--out", "run.h5"
    )
    assert (moved.code == 0) == (place == "world")


def test_a_file_beside_the_input_file_comes_first(world, hpctrip):
    write(world / "world")
    (world / "sites.csv").write_text(SITES.replace("200", "300"))
    checked = hpctrip("check", "world/input.toml")
    assert 'path = "world/sites.csv"' in checked.out
    checked = hpctrip("check", "world/input.toml", "-o", "sites.path=sites.csv")
    assert 'path = "sites.csv"' in checked.out


def test_the_message_about_a_missing_file_names_both_folders(world, hpctrip):
    write(world / "world")
    (world / "world/sites.csv").unlink()
    refused = hpctrip("check", "world/input.toml")
    refused.check_refused(
        ["sites.path = 'sites.csv': is neither in world, the folder of the input file", f"{world}; check"]
    )
    other = ("-o", "sites.kind=powerlaw", "-o", "sites.num_sites=2")
    assert hpctrip("check", "world/input.toml", *other).code == 0  # no longer named


def test_a_run_of_a_file_and_of_its_copy_elsewhere_have_one_identity(world, hpctrip):
    write(world / "world")
    study = 'name = "s"\ninputs = ["input.toml"]\nseeds = [0]\n[common.power]\nkind = "csv"\npath = "power1.csv"\n'
    (world / "world/study.toml").write_text(study)
    assert hpctrip("study", "world/study.toml", "--out", "out").code == 0
    (world / "world").rename(world / "moved")
    listed = hpctrip("study", "status", "moved/study.toml", "--out", "out")
    assert "1 runs: 1 finished" in listed.out, listed.err
