"""Commands about the devices of this machine: `tune`, `gpu-settings`."""

from __future__ import annotations

from pathlib import Path

import click

from hpctrip.cli.arguments import FILE, Number, echo, input_options, overwrite_option


@click.command("gpu-settings")
@click.option("--restore", is_flag=True, help="Put back the settings that killed runs have left.")
def gpu_settings(restore: bool) -> None:
    """List this machine's GPUs with their power caps, and the settings that killed runs have left on them.

    A run puts its settings ([knobs] in the input) back however it ends. Only where a batch system kills every process
    at once nothing is left to do so.
    """
    from hpctrip.base.errors import HpctripError
    from hpctrip.device.counters import Unavailable
    from hpctrip.device.nvml import Gpu, all_uuids
    from hpctrip.device.recovery_log import leftovers

    left = list(leftovers())
    try:
        for settings in left:
            if restore:
                settings.put_back()
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
@click.option("--out", type=FILE, default="tuned", metavar="DIR", help="Folder to write into.")
@overwrite_option
@click.option(
    "--over",
    multiple=True,
    metavar="KEY=[...]",
    help="Values of an input key to try, instead of the usual knobs of this device; may be repeated.",
)
@click.option("--rounds", type=click.IntRange(1, 10_000), default=4, help="Rounds to compare accuracy after.")
@click.option(
    "--accuracy-bound",
    type=Number(0, 1),
    default=0.01,
    help="Largest loss of accuracy that a setting may cost.",
)
@click.option("--eta", type=Number(0, 1), default=0.5, help="Zeus' weight of energy (1) against time (0).")
@click.option(
    "--error",
    type=Number(0.001, 1),
    default=0.05,
    help="Measure until the 95 % interval of a sample's time is within this share of it.",
)
@click.option("--no-knobs", is_flag=True, help="Try no power caps and clocks of the GPU.")
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
    """Measure under which settings this machine trains an input fastest, and on the least energy.

    Precision, sites in a block and batch size are tried, on a CPU engine and threads too; then power caps and clocks of
    the GPU are searched, where it takes them. Written are inputs to lay over the one that was tuned (best_*.toml), all
    trials (trials.csv), their front (trials.png), and what power is worth here (curve.csv).
    """
    from hpctrip.ranks.launched import launched_size
    from hpctrip.runner.run_metadata import device_name
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
