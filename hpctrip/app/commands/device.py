"""`knobs`: what is done with this machine's devices."""

from __future__ import annotations

import click

from hpctrip.base.text import printable


@click.command()
@click.option("--restore", is_flag=True, help="Put back what killed runs have left.")
def knobs(restore: bool) -> None:
    """List this machine's GPUs with their power caps, and the settings that killed runs have left on them.

    A run puts its settings ([knobs] in the input) back however it ends. Only where a batch system kills every process
    at once nothing is left to do so.
    """
    from hpctrip.base.errors import HpctripError
    from hpctrip.device.notes import leftovers
    from hpctrip.device.nvml import Gpu, all_uuids
    from hpctrip.device.source import Unavailable

    left = list(leftovers())
    try:
        for found in left:
            if restore:
                found.put_back()
            click.echo(printable(f"{'put back' if restore else 'left'}: {found}", 1000))
        for gpu in map(Gpu.of, all_uuids()):
            low, high = gpu.cap_range_mw
            click.echo(
                f"{gpu.uuid} {gpu.name}: power cap {gpu.cap_mw / 1000:g} W of {low / 1000:g} to {high / 1000:g} W"
            )
    except Unavailable as error:
        raise HpctripError(str(error)) from None
