"""Runs in an MLflow tracking store (the extra `[mlflow]`)."""

from __future__ import annotations

import fcntl
import math
import os
import re
import time
from contextlib import nullcontext, suppress
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from ssl import SSLError
from typing import Any, ClassVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from pydantic import Field, field_validator

from hpctrip.base.errors import InputError, require
from hpctrip.base.io import append_to
from hpctrip.config.identity import flat, identity
from hpctrip.runner.callbacks.base import CALLBACKS, Callback, RunFacts, scalars
from hpctrip.sim.rounds import RoundRow

_KEY, _RESULTS = "hpctrip.run", "hpctrip.results"
"""Tags of a run: a digest of results file and time, by which a resumed run is found, and the file's name."""
_LONGEST_PARAM = 500
"""Longest parameter, in characters, that every version of MLflow takes."""
_BATCH = 100
"""Largest number of parameters in one request; for metrics the limit is higher."""
_ANSWER_S = 5.0
"""Longest time to wait for an answer of the server."""
_STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


@lru_cache
def _silence(address: str, minute: int) -> str:
    """Why no server answers at an address; empty if one does, whatever it says. MLflow itself would try for a minute,
    and not say why. Asked once a `minute`: a study checks each of its runs."""
    try:
        urlopen(address, timeout=_ANSWER_S).close()
    except HTTPError:
        pass
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if not isinstance(reason, SSLError):  # MLflow has settings for certificates
            return (getattr(reason, "strerror", "") or str(reason)).lower()
    return ""


@CALLBACKS.add
class Mlflow(Callback):
    """Logs a run to MLflow: its input as parameters, the numbers of every round as metrics.

    The step is the round. A resumed run continues its run in MLflow. MLflow's usage telemetry is switched off unless
    $MLFLOW_DISABLE_TELEMETRY says otherwise.
    """

    kind: ClassVar[str] = "mlflow"
    tracking_uri: str | None = Field(None, min_length=1)
    """The tracking store. Absent: $MLFLOW_TRACKING_URI, and without it the database mlflow.db beside the results file,
    shown by `mlflow ui --backend-store-uri sqlite:///results/mlflow.db`. Jobs that run at the same time on several
    machines need a server. Passwords belong into $MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD: this key is
    stored with the results."""
    experiment: str | None = Field(None, min_length=1)
    """The experiment under which the run is listed. Absent: the scenario's name."""

    start_limit_s: ClassVar[float] = 60.0  # making a database takes MLflow 20 s
    _client: Any
    _run_id: str
    _logged: int
    """The last round that an earlier start has logged."""

    @field_validator("tracking_uri")
    @classmethod
    def _without_password(cls, uri: str | None) -> str | None:
        if uri and urlsplit(uri).username is not None:
            raise ValueError(
                "holds a user name or a password, and is stored with the results; use "
                "$MLFLOW_TRACKING_USERNAME and $MLFLOW_TRACKING_PASSWORD"
            )
        return uri

    def check(self) -> None:
        """The packages, with those of the database beside the results where that is used, and the server."""
        place, store = 'callbacks: kind = "mlflow"', self._store()
        require(place, "mlflow", "mlflow", *(() if store else ("sqlalchemy", "alembic")))
        address = re.sub("//[^/]*@", "//", store or "")  # without a password
        is_server = address.startswith(("http://", "https://"))
        if is_server and (reason := _silence(address, int(time.monotonic() // 60))):
            hint = "start it, set MLFLOW_TRACKING_URI, or go without: callbacks.mlflow.enabled = false"
            raise InputError(place, f"no MLflow server at {address} ({reason})", hint)

    def start(self, run: RunFacts) -> None:
        """Find the run of an earlier start or create one; log the rounds that it lacks."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # more take longer than a call may
        from mlflow import MlflowClient
        from mlflow.entities import Param

        store = self._store() or f"sqlite:///{run.path.parent}/mlflow.db"
        # of runs that start together one makes the database and the experiment
        with (
            nullcontext() if store.startswith("http") else append_to(run.path.parent / "mlflow.lock") as lock
        ):
            with suppress(OSError):  # a file system without locks
                if lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
            self._client = MlflowClient(store)
            experiment_id = self._experiment_id(self.experiment or run.name, run.path.parent)
        tags = {_KEY: identity({"path": str(run.path), "created": run.created_utc}), _RESULTS: str(run.path)}
        runs = self._client.search_runs([experiment_id], f"tags.`{_KEY}` = '{tags[_KEY]}'")
        if runs:
            self._run_id = runs[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            run_there = self._client.create_run(experiment_id, run_name=run.path.name, tags=tags)
            self._run_id = run_there.info.run_id
            params = [Param(key, str(value)[:_LONGEST_PARAM]) for key, value in flat(run.input).items()]
            self._log("params", params)
        history = self._client.get_metric_history(self._run_id, "clock_s")
        self._logged = max((point.step for point in history), default=0)
        for row in run.rounds:
            self.round(row)

    def round(self, row: RoundRow) -> None:
        """Log a point of every metric, unless an earlier start has logged this round: its numbers were the same."""
        from mlflow.entities import Metric

        if row.round <= self._logged:
            return
        now_ms = int(time.time() * 1000)
        values = {name: value for name, value in scalars(row).items() if math.isfinite(value)}
        self._log("metrics", [Metric(name, value, now_ms, row.round) for name, value in values.items()])

    def end(self, status: str) -> None:
        """Close the run in the store."""
        self._client.set_terminated(self._run_id, _STATUS[status])

    def _store(self) -> str | None:
        """The store that the user names, if any."""
        return self.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")

    def _experiment_id(self, name: str, folder: Path) -> str:
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            return experiment.experiment_id
        # by default, artifacts of a local database lie in the working folder
        artifacts = None if self._store() else str(folder / "mlartifacts")
        return self._client.create_experiment(name, artifact_location=artifacts)

    def _log(self, kind: str, items: list[Any]) -> None:
        """Log parameters or metrics, in requests of a size that every store takes."""
        for first in range(0, len(items), _BATCH):
            self._client.log_batch(self._run_id, **{kind: items[first : first + _BATCH]})
