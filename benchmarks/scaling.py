"""Strong and weak scaling over hosts, where a round's time goes, and what the machine could do at best.

    python benchmarks/scaling.py [--hosts 1,2,4] [--sites 16] [--samples 100] [--rounds 6] [--out FILE.csv]

Runs the program itself (mpirun, hosts + 1 ranks; one process where there is one host) on synthetic glyphs with the
light CNN and reads its results files; the first round warms up. Strong: the same sites on more hosts. Weak: so many
sites on every host. The phases are of the median round: training on the slowest host, exchange, evaluation,
recording, and the share of their training phase that hosts wait. Ceilings: a large matrix product and a copy by as
many processes as there are hosts, a message between two ranks, and NCCL's all-reduce where there are several GPUs.
`hpctrip plot scaling FILE.csv` draws the CSV.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import click
import pandas as pd
import tomli_w
import torch
from ceilings import best_rate, copy_bytes, gemm_flops
from rich.console import Console
from rich.table import Table

from hpctrip.record.reader import open_run

PHASES = ("train", "exchange", "evaluate", "record")


def launch(
    folder: Path, num_hosts: int, num_sites: int, samples: int, rounds: int, engine: str
) -> pd.DataFrame:
    """The rounds of one run, without the first."""
    tables = {
        "name": "scaling",
        "sites": {"num_sites": num_sites},
        "workload": {"kind": "emnist", "train_samples": num_sites * samples, "test_samples": 1000},
        "partition": {"kind": "iid", "samples_per_site": samples},
        "policy": {"kind": "all"},
        "engine": {"name": engine},
        "stop": {"target_accuracy": 1.0, "max_rounds": rounds + 1},
    }
    source, out = folder / "scaling.toml", folder / "scaling.h5"
    source.write_text(tomli_w.dumps(tables))
    ranks = ["mpirun", "-n", str(num_hosts + 1)] if num_hosts > 1 else []
    command = [*ranks, sys.executable, "-m", "hpctrip", str(source), "--out", str(out), "--overwrite"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return open_run(out).rounds[1:]


def scaling(kind: str, folder: Path, hosts: list[int], sites: int, **size: object) -> pd.DataFrame:
    """One row a number of hosts: median seconds of a round and of its phases."""
    rows = []
    for num_hosts in hosts:
        num_sites = sites * num_hosts if kind == "weak" else sites
        rounds = launch(folder, num_hosts, num_sites, **size)
        row = {"kind": kind, "hosts": num_hosts, "sites": num_sites}
        row["num_rounds"] = len(rounds)
        quartiles = rounds["wall_s"].quantile([0.25, 0.5, 0.75])
        row |= dict(zip(("round_q1_s", "round_s", "round_q3_s"), quartiles, strict=True))
        row |= {f"{phase}_s": rounds[f"{phase}_wall_s"].median() for phase in PHASES}
        rows.append(row | {"idle_fraction": rounds["idle_fraction"].median()})
        click.echo(f"{kind}, {num_hosts} host(s), {num_sites} sites: {row['round_s']:.3f} s a round")
    frame = pd.DataFrame(rows)
    per_site = frame["round_s"] / frame["sites"]
    frame["efficiency"] = (per_site[0] * frame["hosts"][0]) / (per_site * frame["hosts"])
    return frame


def table(frame: pd.DataFrame) -> Table:
    """Seconds a round, then shares."""
    result = Table("scaling", "hosts", "sites", "round s", "efficiency", *PHASES, "idle of train")
    for row in frame.itertuples():
        phases = [f"{getattr(row, f'{phase}_s') / row.round_s:.0%}" for phase in PHASES]
        head = row.kind, str(row.hosts), str(row.sites), f"{row.round_s:.3f}", f"{row.efficiency:.2f}"
        result.add_row(*head, *phases, f"{row.idle_fraction:.0%}")
    return result


def at_once(work: Callable[[], float], processes: int) -> float:
    """The sum of what so many processes reach at the same time."""
    with ProcessPoolExecutor(processes) as pool:
        return sum(f.result() for f in [pool.submit(work) for _ in range(processes)])


def link() -> None:
    """Under `mpirun -n 2`: bytes a second of a 64 MiB message from rank 0 to rank 1, printed."""
    import numpy as np
    from mpi4py import MPI

    comm, message = MPI.COMM_WORLD, np.zeros(64 << 20, np.uint8)

    def send() -> None:
        comm.Send(message, 1) if comm.rank == 0 else comm.Recv(message, 0)
        comm.Barrier()

    rate = best_rate(send, message.nbytes, "cpu")
    if comm.rank == 0:
        print(rate)


def all_reduce(rank: int, size: int, address: str) -> None:
    """One of `size` GPUs in NCCL's all-reduce of 256 MiB of int64; the first prints its bytes a second."""
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method=address, rank=rank, world_size=size)
    vector = torch.zeros(1 << 25, dtype=torch.int64, device="cuda")
    torch.distributed.all_reduce(vector)
    rate = best_rate(lambda: torch.distributed.all_reduce(vector), vector.nbytes, "cuda")
    if rank == 0:
        print(f"NCCL all-reduce over {size} GPUs   {rate / 1e9:10.1f} GB/s of vector")


def ceilings(hosts: int) -> None:
    """Measure and print."""
    print(f"{hosts} processes, matrix product  {at_once(gemm_flops, hosts) / 1e9:10.1f} GFLOP/s (float32)")
    print(f"{hosts} processes, copy            {at_once(copy_bytes, hosts) / 1e9:10.1f} GB/s")
    command = ["mpirun", "-n", "2", sys.executable, __file__, "--link"]
    print(f"MPI, 64 MiB between two ranks  {float(subprocess.check_output(command)) / 1e9:8.1f} GB/s")
    num_gpus = torch.cuda.device_count()
    if num_gpus:
        print(f"one GPU, matrix product       {gemm_flops('cuda', 8192) / 1e12:9.1f} TFLOP/s (float32)")
        print(f"one GPU, copy                 {copy_bytes('cuda', 2048) / 1e9:9.1f} GB/s")
    if num_gpus > 1:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(all_reduce, (num_gpus, f"file://{folder}/nccl"), num_gpus)
    elif not num_gpus:
        print("no GPU here: GPU and NCCL ceilings are not measured")


@click.command(help=__doc__)
@click.option("--hosts", default="1,2", show_default=True, help="Numbers of hosts, separated by commas.")
@click.option(
    "--sites", default=16, show_default=True, type=click.IntRange(1), help="In all; weak: per host."
)
@click.option("--samples", default=100, show_default=True, type=click.IntRange(1), help="Per site.")
@click.option("--rounds", default=6, show_default=True, type=click.IntRange(1))
@click.option("--engine", default="auto", show_default=True)
@click.option("--out", default="results/scaling.csv", show_default=True, type=click.Path(path_type=Path))
@click.option("--link", "is_link", is_flag=True, hidden=True)
def main(hosts: str, sites: int, samples: int, rounds: int, engine: str, out: Path, is_link: bool) -> None:
    """Measure all, print, write the CSV."""
    if is_link:
        return link()
    if shutil.which("mpirun") is None:
        raise click.ClickException("mpirun is not on the PATH")
    numbers = [int(number) for number in hosts.split(",")]
    size = {"samples": samples, "rounds": rounds, "engine": engine}
    with tempfile.TemporaryDirectory() as folder:
        frames = [scaling(kind, Path(folder), numbers, sites, **size) for kind in ("strong", "weak")]
    frame = pd.concat(frames, ignore_index=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(out, index=False)
    Console().print(table(frame))
    print(f"{os.cpu_count()} cores; one thread a process; load {os.getloadavg()[0]:.1f} at the end; {out}")
    ceilings(max(numbers))


if __name__ == "__main__":
    main()
