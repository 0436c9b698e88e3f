#!/usr/bin/env bash
# What:   the run of ddp.yaml by torchrun alone: one process a GPU, on one machine or several.
# When:   without accelerate's command; on several machines it is started on each, at the same time.
# How:    RECIPE=talk-multi OUT=talk-multi training/launch/torchrun.sh
# Change: GPUS (of each machine); for several NODES=2 HEAD=HOST:29500, an OUT that all see, and options of train grpo.
# Back:   OUT, the run's folder; after a kill or exit code 75 (it paused) start it again: it goes on.
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
# torchrun ends with 1 whatever its processes end with.
if [ -e "$out/PAUSED" ]; then code=75; fi
exit "$code"
