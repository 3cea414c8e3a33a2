"""Checks of samples that hpctrip has not made: their classes, names and types, and values that are not finite.

Each raises InputError at `place`. A workload on the user's own data makes them before its arrays are prepared, and
`Workload.checked_task` for the task of a plug-in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from hpctrip.base.errors import InputError
from hpctrip.base.io import digest
from hpctrip.base.text import shown
from hpctrip.learn.data.cached import PARTS, examined
from hpctrip.learn.task import Task


def check_classes(parts: Mapping[str, np.ndarray], place: str) -> None:
    """The labels of the parts, {name: [n] texts or whole numbers}, are of two classes or more, and no class of "test"
    is missing in "train"."""
    first, labels = next(iter(parts.values())), np.concatenate([*parts.values()])
    if len({labels.dtype.kind == "U", *(each.dtype.kind == "U" for each in parts.values())}) > 1:
        types = " and ".join(str(each.dtype) for each in parts.values())
        raise InputError(place, f"has labels of types {types}", "give either texts or whole numbers")
    if len(classes := np.unique(first)) == 1:
        problem = f"has one class, {shown(classes[0].item())}, of which all {len(first):,} samples are"
        raise InputError(place, problem, "name the folder whose folders are the classes, or the right labels")
    check_names(labels, place, "classes")
    if "test" in parts and (only := only_in_test(first, parts["test"])):
        problem = f"has test samples of classes that no training sample has: {only}"
        raise InputError(place, problem, "write their names alike, or take them out")


def only_in_test(train: np.ndarray, test: np.ndarray, classes: np.ndarray | None = None) -> str:
    """The first classes, of the labels of the two sets, that are in the test set only; empty where there are none.
    Labels are names, or else numbers of `classes`."""
    only = np.setdiff1d(test, train)
    names = only if classes is None else classes[only]
    return ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")


def check_names(names: np.ndarray, place: str, what: str) -> None:
    """No text among the names [n] is blank, and no two differ only in blanks at their ends."""
    if names.dtype.kind == "U":
        bare, number = np.unique(np.char.strip(unique := np.unique(names)), return_counts=True)
        wrong = bare[(number > 1) | (bare == "")]
        same = [shown(name.item()) for name in unique if name.strip() in wrong[:1]]
        if same:
            problem = f"has {what} that are blank or differ only in blanks: {', '.join(same)}"
            raise InputError(place, problem, "write each in one way")


def check_alike(inputs: Sequence[np.ndarray], place: str) -> None:
    """The inputs [n, ...] of all parts are of one type, and samples of one shape."""
    sorts = [f"{each.dtype} {list(each.shape[1:])}" for each in inputs]
    if len(set(sorts)) > 1:
        problem = f"has training inputs of type and shape {sorts[0]}, and test inputs of {sorts[1]}"
        raise InputError(place, problem, "give both alike: bytes are scaled, other numbers are not")


def checked_samples(task: Task, place: str) -> Task:
    """The task of a plug-in, with a digest of its samples, which are compared over the ranks, if it gives none. Its
    source names classes that are in the test set only."""
    train, test = task.train, task.test
    check_alike([train.inputs, test.inputs], place)
    if train.labels.min() == train.labels.max():
        problem = f"gave {len(train):,} training samples, all of class {train.labels.min()}"
        raise InputError(place, problem, "there must be two classes or more")
    digests = []
    for name, data in zip(PARTS, (train, test), strict=True):
        content, faulty = examined(data.inputs)
        if faulty >= 0:
            problem = f"gave {name} inputs that are not finite, the first in sample {faulty}"
            raise InputError(place, problem, "fill or leave out missing values")
        others = [data.labels] if data.groups is None else [data.labels, data.groups]
        digests += [content, *(examined(array)[0] for array in others)]
    only = only_in_test(train.labels, test.labels)
    return replace(
        task,
        digests=task.digests or {"samples": digest(" ".join(digests).encode())},
        source=f"{task.source}; only in the test set: {only}" if only else task.source,
    )
