#!/usr/bin/env bash
# What:   the run of ddp.yaml with torchrun only: one process per GPU, on one machine or several.
# When:   to train without accelerate's launcher; with several machines, start it on all at the same time.
# How:    RECIPE=talk-multi OUT=talk-multi training/launch/torchrun.sh
# Change: GPUS (per machine); for several machines NODES=2 HEAD=HOST:29500 and an OUT on a shared disk; options of train grpo.
# Back:   OUT, the run's folder; after a kill or exit code 75 (paused) start it again: it continues.
set -euo pipefail

out=${OUT:?name the folder of the run: OUT=talk-multi}
resume=()
if [ -e "$out/config.json" ]; then resume=(--resume); fi
if [ "${NODES:-1}" = 1 ]; then
    together=(--standalone)
else
    : "${HEAD:?name the first machine: HEAD=HOST:29500}"
    together=(--nnodes "$NODES" --rdzv-backend c10d --rdzv-endpoint "$HEAD" --rdzv-id "${ID:-art-e}")
fi
rm -f "$out/PAUSED"
code=0
torchrun "${together[@]}" --nproc-per-node "${GPUS:-gpu}" -m art_e train grpo \
    --recipe "${RECIPE:-talk-multi}" --out "$out" ${resume[@]+"${resume[@]}"} "$@" || code=$?
# torchrun exits with 1, whatever its processes exit with.
if [ -e "$out/PAUSED" ]; then code=75; fi
exit "$code"
