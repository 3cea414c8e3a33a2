"""Shows a results file: as a summary on one screen, and as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from hpctrip.base.frames import pd
from hpctrip.base.text import counted, labelled, printable
from hpctrip.base.units import HOUR_S, amount
from hpctrip.config.sources import PLUGINS, read_sources
from hpctrip.record.event_report import by_event, sentence
from hpctrip.record.lock import is_held
from hpctrip.record.reader import Run, open_run
from hpctrip.record.results_file import ResultsFile
from hpctrip.record.site_report import by_site, utilisation
from hpctrip.sim.quantities import BY_SIGNAL, CARBON, SPENT

Facts = Mapping[str, Any]
"""The results as {name: value}, as `facts_of` returns them."""


def show(run: ResultsFile, width: int = 0) -> str:
    """The path and the summary as text that fits one screen, of this width (0: that of the terminal): texts of the file
    are escaped and cut."""
    return "\n".join([printable(str(run.path)), *labelled(summary(run), 200, width)])


LANGUAGE = ("llm", "shakespeare")
"""Workloads whose loss is that of the next token or character, so that perplexity means something."""
_AS_RECORDED = (
    *("status", "stop_reason", "scenario", "label", "seed", "data_source"),
    *("synthetic_data", "synthetic_power", "synthetic_signals", "simulated_start"),
    *("target_accuracy", "num_ranks", "transport", "mpi_library", "engine", "blocks", "params_digest"),
    *("stored_rounds", "hpctrip_version", "git_commit", "git_dirty", "created_utc", "updated_utc"),
)


MOST_EVENTS = 10
"""Events of [availability] that are shown; `--format json` has all."""
DEADLINES = ("stop.deadline_s", "policy.objective.deadline_s")
"""The input keys of the time by which the target accuracy is to be reached; the first that is given counts."""


@singledispatch
def facts_of(run: Run) -> dict[str, Any]:
    """The results as {name: value}, with units in the names; NaN stands for unknown numbers. Other classes of results
    files register their own function."""
    settings, clock_s, reached_s = run.settings, run.rounds["clock_s"], run.time_to_accuracy_s
    train = {key.removeprefix("train."): v for key, v in settings.items() if key.startswith("train.")}
    return {
        "path": str(run.path),
        **{name: run.meta[name] for name in _AS_RECORDED},
        "is_unheld": run.status == "running" and not is_held(run.path),
        **{name: str(run.setting(f"{name}.kind", "unknown")) for name in ("policy", "workload", "power")},
        "model": str(run.setting("workload.model", None) or ""),
        "num_params": run.meta["num_params"],
        "plugins": [source.path for source in read_sources(run.meta["sources"]) if source.key == PLUGINS],
        "local_training": train,
        "currency": str(run.setting("accounts.currency", "")),
        "num_sites": len(run.sites),
        **{f"{name}_path": str(run.setting(f"{name}.path", None) or "") for name in ("sites", "power")},
        **round_facts(run.rounds),
        "time_to_accuracy_s": reached_s,
        "deadline_s": float(next(filter(None, (run.setting(key, None) for key in DEADLINES)), math.nan)),
        "time_to_accuracy_round": math.nan
        if math.isnan(reached_s)
        else (clock_s < reached_s).sum().item() + 1,
        "hosts": list(dict.fromkeys(run.meta["hosts"])),
        "devices": list(dict.fromkeys(run.meta["devices"])),
        "meters": run.meta["meters"],
        **_of_availability(run),
        "not_recorded": [
            f"{name}/{c}"
            for name, frame in run.tables.items()
            for c in frame.attrs["added"]
            if "is_counted" not in run.format.tables.get(name, {}).get(c, {})
        ],
    }


def _of_availability(run: Run) -> dict[str, Any]:
    """The facts of a run with [availability]: its events, and the share of the time for which sites were held in which
    they computed; NaN without it, where a site is held for its flights only."""
    if run.rounds.empty or not run.input.get("availability"):
        return {"events": [], "utilisation": math.nan}
    whole = open_run(run.path) if run.cohorts.empty else run  # `show` reads without the rows of cohorts
    return {"events": by_event(whole), "utilisation": utilisation(by_site(whole))}


def round_facts(rounds: Mapping[str, Sequence[float]] | pd.DataFrame) -> dict[str, Any]:
    """The facts of the rounds of a run, from the columns of its table /rounds."""
    column = {name: np.asarray(rounds[name]) for name in rounds}
    accuracy = _present(column["accuracy"])
    evaluated = ~np.isnan(column["eval_loss"]) & ~np.isnan(column["eval_perplexity"])
    k, idle = column["num_sites"], _present(column["idle_fraction"])
    return {
        "num_rounds": len(k),
        "clock_s": _last(column["clock_s"]),
        "last_accuracy": _last(accuracy),
        "best_accuracy": float(accuracy.max()) if len(accuracy) else math.nan,
        "last_eval_loss": _last(column["eval_loss"][evaluated]),
        "last_eval_perplexity": _last(column["eval_perplexity"][evaluated]),
        "first_num_sites": _last(k[:1]),
        "median_num_sites": float(np.median(k)) if len(k) else math.nan,
        "last_num_sites": _last(k),
        "wall_s": float(np.nansum(column["wall_s"])),
        **{f"{name}_wall_s": float(np.nansum(column[f"{name}_wall_s"])) for name in PHASES},
        "mean_idle_fraction": float(idle.mean()) if len(idle) else math.nan,
        # unknown in total if unknown in any round
        **{name: float(column[name].sum()) for name in ("energy_j", *SPENT)},
        **_measured_facts(column),
    }


def _measured_facts(column: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Energy measured in the rounds that have it; NaN if none has."""
    measured = ~np.isnan(column["wall_j"])
    parts = {f"{name}wall_j": _present(column[f"{name}wall_j"][measured]) for name in ("", *_DRAWN)}
    joules = {name: float(values.sum()) if len(values) else math.nan for name, values in parts.items()}
    samples = float(column["num_samples"][measured].sum())
    wall_s = float(np.nansum(column["wall_s"][measured]))
    return joules | {
        "num_measured_rounds": int(measured.sum()),
        "samples_per_wall_j": samples / joules["wall_j"] if joules["wall_j"] > 0 else math.nan,
        "mean_wall_w": joules["wall_j"] / wall_s if wall_s > 0 else math.nan,
    }


PHASES = ("train", "exchange", "evaluate")
"""The phases of a round's wall time that are shown."""
_DRAWN = ("train_", "exchange_", "evaluate_", "record_")


def _present(values: np.ndarray) -> np.ndarray:
    """The values that are not NaN."""
    return values[~np.isnan(values)]


def _last(values: np.ndarray) -> Any:
    """The last value as a Python number; NaN of an empty column."""
    return values[-1].item() if len(values) else math.nan


@singledispatch
def summary(run: Run) -> dict[str, str]:
    """The facts in words, {label: text}. Other classes of results files register their own function."""
    facts = facts_of(run)
    unheld = " when last written, but no process is seen to hold it: it was killed"
    reason = f": {facts['stop_reason']}" if facts["stop_reason"] else unheld * facts["is_unheld"]
    commit = f", commit {facts['git_commit'][:12]}{' with changes' if facts['git_dirty'] else ''}"
    source = f": {facts['data_source']}" if facts["data_source"] else ""
    absent = facts["not_recorded"]
    return {
        "status": f"{facts['status']}{reason}",
        "scenario": f"{facts['scenario'] or 'unnamed'}, seed {facts['seed']}",
        "policy": facts["policy"],
        "data": f"{facts['workload']}{source}{_synthetic(facts['synthetic_data'])}",
        **({"model": f"{facts['model']}, {facts['num_params']:,} parameters"} if facts["model"] else {}),
        **({"plug-ins": ", ".join(facts["plugins"])} if facts["plugins"] else {}),
        "local training": local_training(facts["local_training"]),
        "sites": f"{facts['num_sites']}{_from(facts['sites_path'])}, power {facts['power']}"
        f"{_from(facts['power_path'])}{_synthetic(facts['synthetic_power'])}",
        **({"begins": "; ".join(facts["simulated_start"])} if facts["simulated_start"] else {}),
        **(_progress(facts) if facts["num_rounds"] else {"rounds": "none finished yet"}),
        **_target(facts),
        **deadline(facts),
        **drawn(facts),
        **{
            f"event {n} of {event['table']}": sentence(event)
            for n, event in enumerate(facts["events"][:MOST_EVENTS], 1)
        },
        **({"measured by": ", ".join(facts["meters"])} if facts["meters"] else {}),
        "ran on": _machines(facts),
        "model digest": facts["params_digest"] or "not known",
        "hpctrip": facts["hpctrip_version"] + (commit if facts["git_commit"] else ""),
        "written": f"{facts['updated_utc']}, started {facts['created_utc']}",
        **({"not recorded": f"{', '.join(absent)}: the file is older"} if absent else {}),
    }


def local_training(train: Mapping[str, Any]) -> str:
    """Description of the local training of a site, from the keys of [train]."""
    words = [
        text.format(f"{train[key]:g}" if isinstance(train[key], float) else train[key])
        for key, text in _WORK.items()
        if train.get(key)
    ]
    return ", ".join(words) or "not known"


_WORK = {
    "optimizer": "{}",
    "keep_optimizer": "kept from round to round",
    "lr": "learning rate {}",
    "momentum": "momentum {}",
    "weight_decay": "weight decay {}",
    "clip_norm": "gradients clipped at {}",
    "warmup_steps": "{} steps of warm-up",
    "cosine_steps": "cosine up to step {}",
    "prox_mu": "prox_mu {}",
    "batch_size": "batches of {}",
    "micro_batch": "{} of them at once",
    "local_epochs": "{} epoch(s) a round",
    "local_steps": "{} step(s) a round",
}


def _progress(facts: Facts) -> dict[str, str]:
    loss, perplexity = facts["last_eval_loss"], f" (perplexity {facts['last_eval_perplexity']:.4g})"
    perplexity = perplexity if facts["workload"] in LANGUAGE else ""
    return {
        "rounds": f"{facts['num_rounds']}, {_hours(facts['clock_s'])} simulated"
        + (f", {facts['stored_rounds']} of them trained before" if facts["stored_rounds"] else ""),
        "accuracy": "not evaluated"
        if math.isnan(facts["last_accuracy"])
        else f"{facts['last_accuracy']:.2%} last, {facts['best_accuracy']:.2%} best",
        **({} if math.isnan(loss) else {"held-out loss": f"{loss:.4g} last{perplexity}"}),
        "cohort": f"{facts['first_num_sites']} sites first, {facts['median_num_sites']:g} median, "
        f"{facts['last_num_sites']} last",
        **(
            {}
            if math.isnan(used := facts["utilisation"])
            else {"utilisation": f"{used:.0%} of the sites' time"}
        ),
        **energy(facts),
        "wall time": wall_time(facts),
    }


def wall_time(facts: Facts) -> str:
    """The wall time of a run by phase, from `round_facts`."""
    phases = ", ".join(f"{name} {facts[f'{name}_wall_s']:.1f}" for name in PHASES)
    idle = f"hosts idle for {facts['mean_idle_fraction']:.0%} of training"
    return f"{facts['wall_s']:.1f} s: {phases}; {idle}"


def energy(facts: Facts) -> dict[str, str]:
    """The simulated energy of a run with its carbon and cost as {label: text}, from the facts energy_j, SPENT,
    currency and synthetic_signals. Empty where the energy is unknown."""
    total_j = facts["energy_j"]
    if math.isnan(total_j):
        return {}
    shares = ((name, facts[f"{part}_energy_j"] / (total_j or 1)) for name, part in _PARTS.items())
    text = f"{amount(total_j, 'joules')} simulated: " + ", ".join(f"{n} {s:.0%}" for n, s in shares)
    for signal, bill in bills(facts, facts["currency"]).items():
        text += f"; {bill}{_synthetic(signal in facts['synthetic_signals'])}"
    return {"energy": text}


def bills(spent: Mapping[str, float], currency: str) -> dict[str, str]:
    """{input table of a grid signal: what was spent by it, as text}, from the columns carbon_g and cost; empty where
    neither is known."""
    known = {name: quantity for name, quantity in BY_SIGNAL.items() if not math.isnan(spent[quantity.column])}
    return {
        name: amount(spent[quantity.column], quantity.unit, currency) + " CO2" * (quantity is CARBON)
        for name, quantity in known.items()
    }


_PARTS = {"computing": "compute", "waiting": "wait", "network": "comm"}


def drawn(facts: Facts) -> dict[str, str]:
    """The measured energy of a run as {label: text}, from `round_facts`. Empty where no machine measured any."""
    total_j, number = facts["wall_j"], facts["num_measured_rounds"]
    if not number:
        return {}
    rounds = "" if number == facts["num_rounds"] else f" in {number} of the rounds"
    if not total_j:
        return {"energy drawn": f"0 J{rounds}: the counters did not advance"}
    shares = ", ".join(f"{name} {facts[f'{name}_wall_j'] / total_j:.0%}" for name in (*PHASES, "record"))
    return {
        "energy drawn": f"{total_j:,.1f} J{rounds}: {shares}; {facts['mean_wall_w']:.1f} W, "
        f"{facts['samples_per_wall_j']:.4g} samples/J",
    }


def _target(facts: Facts) -> dict[str, str]:
    target, reached_s = facts["target_accuracy"], facts["time_to_accuracy_s"]
    if math.isnan(target):
        return {}
    if math.isnan(reached_s):
        return {"time to accuracy": f"{target:.2%} not reached"}
    number = facts["time_to_accuracy_round"]
    return {"time to accuracy": f"{_hours(reached_s)} to {target:.2%}, in round {number}"}


def deadline(facts: Facts) -> dict[str, str]:
    """Whether the target was reached by the deadline, as {label: text}, from the facts deadline_s,
    time_to_accuracy_s, clock_s and status. Empty where there is none."""
    asked_s, reached_s = facts["deadline_s"], facts["time_to_accuracy_s"]
    if math.isnan(asked_s):
        return {}
    took_s = facts["clock_s"] if math.isnan(reached_s) else reached_s
    asked, took = (f"{seconds / HOUR_S:.3g} h" for seconds in (asked_s, took_s))
    is_missed = took_s > asked_s or (facts["status"] == "finished" and math.isnan(reached_s))
    verdict = "missed: " * is_missed or "met: " * (reached_s <= asked_s)
    how = f"target not reached in {took}" if math.isnan(reached_s) else f"took {took}"
    return {"deadline": f"{verdict}asked {asked}, {how}"}


def _machines(facts: Facts) -> str:
    hosts = f" on {counted(len(facts['hosts']), 'host')}" if facts["hosts"] else ""
    named = {
        "transport": facts["transport"],
        "MPI": facts["mpi_library"].partition("\n")[0],
        "engine": ", ".join(filter(None, (facts["engine"], facts["blocks"]))),
        "device": ", ".join(facts["devices"]),
    }
    words = [f"{name} {fact}" for name, fact in named.items() if fact]
    return ", ".join([counted(facts["num_ranks"], "rank") + hosts, *words])


def _from(path: str) -> str:
    return f" from {path}" if path not in ("", "synthetic") else ""


def _synthetic(is_synthetic: bool) -> str:
    return " (synthetic)" if is_synthetic else ""


def _hours(seconds: float) -> str:
    return f"{seconds / HOUR_S:.3f} h"
