#!/bin/bash
# What hpctrip 0.3.0 reads and writes, small, for test_compat.py. Run in an empty folder, with that version's source tree:
#
#     git worktree add --detach OLD 8c1410e0      # the last commit that CHANGELOG's section 0.3.0 describes
#     cd EMPTY && PYTHONPATH=OLD bash .../tests/compat/make.sh
set -euo pipefail
hpctrip() { python -m hpctrip "$@" >/dev/null; }
[[ $(python -m hpctrip --version) == *0.3.0* ]]

# inputs: own arrays, sites, power, carbon and prices, an own model, and words that only 0.3.0 reads
python - <<'PY'
import numpy as np

rng = np.random.default_rng(3)
y = np.arange(120) % 3
np.savez_compressed("samples.npz", x=(rng.normal(size=(120, 4)) + y[:, None]).astype(np.float32), y=y)
PY
cat >net.py <<'PY'
from torch import nn


def Net(num_classes):
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, num_classes))
PY
cat >sites.csv <<'CSV'
name,latitude,longitude,rtt_ms,bandwidth_mbps,gpus,group,zone
Oslo,59.91,10.75,28,400,64,north,no
Lisbon,38.72,-9.14,44,,100,south,pt
Warsaw,52.23,21.01,,250,200,east,pl
Athens,37.98,23.73,60,300,90,south,gr
CSV
cat >power.csv <<'CSV'
time,Oslo_kw,Lisbon_kw,Warsaw_kw,Athens_kw
2024-05-01 00:00,20,35,64,30
2024-05-01 00:15,22,30,44,36
2024-05-01 00:30,26,28,70,20
CSV
cat >carbon.csv <<'CSV'
time,zone,per_kwh
2024-05-01T00:00,no,30
2024-05-01T00:00,pt,150
2024-05-01T00:00,pl,700
2024-05-01T00:00,gr,400
2024-05-01T01:00,no,32
2024-05-01T01:00,pt,140
2024-05-01T01:00,pl,720
2024-05-01T01:00,gr,380
CSV
sed 's/per_kwh/value/' carbon.csv >prices.csv
cat >run.toml <<'TOML'
name = "old"

[sites]
kind = "csv"
path = "sites.csv"
aggregator = [47.37, 8.54]

[power]
kind = "csv"
path = "power.csv"

[carbon]
kind = "csv"
path = "carbon.csv"
zone_column = "zone"
site_column = "zone"

[price]
kind = "constant"
per_kwh = 0.2

[faults]
deadline_s = "30 min"
lost_fraction = 0.1

[workload]
kind = "arrays"
data = "samples.npz"

[timing]
seconds_per_sample = 3

[train]
lr = 0.1

[compression]
kind = "top-k"

[policy]
kind = "powertrip"

[stop]
target_accuracy = 0.5
max_rounds = 4
TOML
printf 'name = "own"\nsites.num_sites = 3\nworkload.kind = "arrays"\nworkload.data = "samples.npz"\nworkload.model = "net.py:Net"\nstop.max_rounds = 3\nstop.target_accuracy = 1\n' >own_model.toml
{
    grep -v workload.model own_model.toml
    printf 'engine.name = "loop"\n'
} >loop.toml
printf 'carbon.kind = "csv"\ncarbon.path = "prices.csv"\ncarbon.value_column = "value"\ncarbon.zone_column = "zone"\n' >no_unit.toml
cat >study.toml <<'TOML'
name = "two"
title = "Two cohort sizes"
inputs = ["run.toml"]
seeds = [0, 1]

[common.power]
kind = "uniform"

[[axis]]
name = "policy"
variants = [
    { label = "PowerTrip", policy.kind = "powertrip" },
    { label = "static 2", policy.kind = "static", policy.k = 2 },
]

[[figure]]
name = "curves"
TOML
printf 'name = "cluster"\n[cluster]\nnum_nodes = 2\n[gpu]\nkind = "a100"\n[jobs]\nkind = "synthetic"\nnum_jobs = 4\nspan_s = "1 h"\n[scheduler]\nkind = "powerflow"\n' >cluster.toml

# results: a finished run and its tables, two interrupted ones, a simulated cluster, and a study
hpctrip run run.toml --out finished.h5
rm finished.h5.*
hpctrip export finished.h5 exported
for name in run own_model loop; do
    code=0 # the time is up after the first round: exit code 85, and a checkpoint
    hpctrip run $name.toml --out stopped_$name.h5 -o interrupt.job_s=1 || code=$?
    [[ $code == 85 ]]
done
hpctrip cluster cluster.toml --out cluster.h5
hpctrip study study.toml --out out
hpctrip run run.toml --sweep seed=0,1 --out swept
rm -r */store */logs out/two/figures # what is made again
tar -czf hpctrip_0.3.0.tar.gz --sort=name --exclude='*.tar.gz' --exclude=__pycache__ ./*
