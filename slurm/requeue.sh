#!/bin/bash
# PowerTrip in pieces: stops with a checkpoint before its time limit, and requeues itself.
# From the folder that holds inputs/:
#
#     sbatch slurm/requeue.sh                                                        # inputs/emnist_dynamic.toml
#     sbatch --time=00:30:00 --ntasks=5 --gpus=4 slurm/requeue.sh inputs/emnist_static.toml -o seed=3
#     sbatch --ntasks=5 --gpus=0 slurm/requeue.sh inputs/emnist_static.toml          # no GPU
#
# Options of sbatch win over the lines below; what follows the script goes to hpctrip. All pieces have one job id, so
# they share results/NAME_ID.h5 and its checkpoints. What happens when:
#
# time limit                         hpctrip leaves some rounds before it, or at the latest when USR2 comes
# scancel --batch --signal=USR2 ID   leaves at once: the round ends, checkpoint, requeue
# scancel ID                         ends for good; `python -m hpctrip resume results/NAME_ID.h5` goes on by hand
# preemption with a grace time       SIGTERM reaches the ranks: the round ends, checkpoint, requeue
# preemption at once, node failure   Slurm requeues by itself; goes on from the last checkpoint
# touch results/NAME_ID.h5.stop      leaves with a checkpoint and is not requeued
#
#SBATCH --job-name=hpctrip
#SBATCH --output=slurm-%x-%j.out
#SBATCH --open-mode=append      # the pieces' logs follow one another
#SBATCH --requeue
#SBATCH --signal=B:USR2@120     # to this script; 120 s must hold a round and a checkpoint, and be far below --time
#SBATCH --time=04:00:00
#SBATCH --ntasks=41
#SBATCH --gpus=40
#SBATCH --exclusive
#SBATCH --distribution=cyclic
#SBATCH --mem=0
set -euo pipefail

file=results/${SLURM_JOB_NAME}_$SLURM_JOB_ID.h5
(($# > 0)) || set -- inputs/emnist_dynamic.toml
if [[ $1 == -* ]]; then
    echo "requeue.sh: name an input before $1, e.g. inputs/emnist_dynamic.toml; else the demonstration would run" >&2
    exit 2
fi

source slurm/launch.sh

# To leave, the stop file: every launcher hands on other signals (srun USR2 but not TERM, Hydra's mpirun TERM but not
# USR2, of which it dies), and none reaches ranks that have not started yet. The job's number in it tells them that it is
# meant for them. They run in the background, as bash would run a trap only after a child in the foreground.
mkdir -p "${file%/*}"
# one of an earlier start of this job, whose node was lost before it could remove it; a user's own is empty
[[ ! -s $file.stop || $(<"$file.stop") != "$SLURM_JOB_ID" ]] || rm -f "$file.stop"
told=
trap 'told=$SECONDS; echo "$SLURM_JOB_ID" > "$file.stop"' USR2
(launch --out "$file" --resume "$@") &
ranks=$!
code=0
wait "$ranks" || code=$?
if [[ -n $told ]]; then   # the signal has ended that wait
    echo "requeue.sh: told to leave $told s after the start"   # at once: --time is too short for the notice of --signal
    code=0
    wait "$ranks" || code=$?
    rm -f "$file.stop"
fi

if ((code == 85)) && [[ -e $file.stop ]]; then
    echo "requeue.sh: stopped by $file.stop; remove it and submit again, or resume, to go on"
else
    requeue "$code"
fi
