#!/bin/bash
# Time-to-accuracy against a fixed cohort size (the paper's Fig. 8), over k and seed.
# One array task, and one file, per (k, seed). From the folder that holds inputs/:
#
#     sbatch slurm/emnist_static_sweep.sh                                            # k = 10..100, ten seeds: 100 tasks
#     HPCTRIP_KS="10 40 70" HPCTRIP_SEEDS="1 2" sbatch --array=0-5 --ntasks=3 --gpus=0 slurm/emnist_static_sweep.sh
#
# Array index i means k = KS[i / number of seeds], seed = SEEDS[i modulo number of seeds]. A task whose file is
# finished already ends at once, one that was killed goes on from its checkpoint: submitting the sweep again does only
# what is missing. Options of sbatch win over the lines below; what follows the script goes to hpctrip.
#
# HPCTRIP_KS, HPCTRIP_SEEDS  the two lists; --array must then be 0 to (number of ks) x (number of seeds) - 1
# HPCTRIP_SWEEP              folder of the results inside results/; default fig08_static_sweep, and in it a folder named
#                            after what the arguments change, if anything: fig08_static_sweep/train.lr=0.05
#
#SBATCH --job-name=fig08_static_sweep
#SBATCH --output=slurm-%x-%A_%a.out
#SBATCH --time=04:00:00
#SBATCH --array=0-99
#SBATCH --nodes=1
#SBATCH --ntasks=5              # the aggregator and one host per GPU
#SBATCH --gpus=4
set -euo pipefail

source slurm/launch.sh
choose_task ks "${HPCTRIP_KS:-10 20 30 40 50 60 70 80 90 100}" "${HPCTRIP_SEEDS:-0 1 2 3 4 5 6 7 8 9}"
k=$chosen
choose_folder fig08_static_sweep "$@"

launch inputs/fig08_static_sweep.toml -o policy.k="$k" -o seed="$seed" "$@" \
    --out "$folder/static_k${k}_seed${seed}.h5" --resume
