"""Commands about the devices of this machine: `tune`, `gpu-settings`."""

from __future__ import annotations

from pathlib import Path

import click

from hpctrip.cli.arguments import FILE, Number, echo, input_options, overwrite_option


@click.command("gpu-settings")
@click.option("--restore", is_flag=True, help="Restore settings that killed runs have left.")
def gpu_settings(restore: bool) -> None:
    """List this machine's GPUs with their power caps, and settings left by killed runs.

    A run restores the settings of its [knobs] however it ends, unless a batch system kills all its processes at once.
    """
    from hpctrip.base.errors import HpctripError
    from hpctrip.device.counters import Unavailable
    from hpctrip.device.nvml import Gpu, all_uuids
    from hpctrip.device.recovery_log import leftovers

    left = list(leftovers())
    try:
        for settings in left:
            if restore:
                settings.restore()
            echo(f"{'put back' if restore else 'left'}: {settings}")
        for gpu in map(Gpu.of, all_uuids()):
            low, high = gpu.cap_range_mw
            click.echo(
                f"{gpu.uuid} {gpu.name}: power cap {gpu.cap_mw / 1000:g} W of {low / 1000:g} to {high / 1000:g} W"
            )
    except Unavailable as error:
        raise HpctripError(str(error)) from None


@click.command(context_settings={"show_default": True})
@input_options
@click.option("--out", type=FILE, default="tuned", metavar="DIR", help="Output folder.")
@overwrite_option
@click.option(
    "--over",
    multiple=True,
    metavar="KEY=[...]",
    help="Values of an input key to try, instead of the default search; may be repeated.",
)
@click.option(
    "--rounds", type=click.IntRange(1, 10_000), default=4, help="Rounds after which accuracy is compared."
)
@click.option(
    "--accuracy-bound",
    type=Number(0, 1),
    default=0.01,
    help="Maximum loss of accuracy of a setting.",
)
@click.option("--eta", type=Number(0, 1), default=0.5, help="Zeus' weight of energy (1) against time (0).")
@click.option(
    "--error",
    type=Number(0.001, 1),
    default=0.05,
    help="Measure until the relative 95 % interval of the time per sample is this small.",
)
@click.option("--no-knobs", is_flag=True, help="Do not try power caps and clocks of the GPU.")
def tune(
    out: str,
    overwrite: bool,
    over: tuple[str, ...],
    rounds: int,
    accuracy_bound: float,
    eta: float,
    error: float,
    no_knobs: bool,
    **tuned_input: tuple[str, ...],
) -> None:
    """Find the settings with which this machine trains an input fastest, and with the least energy.

    Tries precision, sites per block and batch size; on a CPU also engine and threads. Then searches power caps and
    clocks of the GPU, if it supports them. Writes config layers for the tuned input (best_*.toml), all trials
    (trials.csv), their Pareto front (trials.png), and speed against power (curve.csv).
    """
    from hpctrip.base.process import launched_size
    from hpctrip.ranks.base import device_name
    from hpctrip.tune import report
    from hpctrip.tune.spaces import default_spaces, read_space
    from hpctrip.tune.trial import TrialRunner
    from hpctrip.tune.tuner import tune

    if launched_size() > 1:
        raise click.UsageError("tune measures the device of one process: start it without a launcher")
    spaces = [read_space(line) for line in over]
    runner = TrialRunner(**tuned_input, accuracy_round=rounds, error=error, max_rounds=10 * rounds)
    spaces = spaces or default_spaces(runner)
    report.check(Path(out), overwrite)
    device = device_name(runner.device)
    echo(f"tuning on {device}; energy: {runner.meter.description}")
    result = tune(runner, accuracy_bound, eta, spaces, not no_knobs, echo)
    echo(*result.notes)
    for name, trial in result.best.items():
        echo(f"{report.OBJECTIVES[name]}: {trial.setting_text}")
    echo(*report.write(result, Path(out), device, overwrite))
