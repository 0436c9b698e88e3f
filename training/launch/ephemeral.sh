#!/usr/bin/env bash
# What:   trains on a machine that may be reclaimed: copies the run to KEPT at intervals.
# When:   sky.yaml starts it; use it on any machine with a bucket or disk that outlives the machine.
# How:    KEPT=/back/talk RECIPE=talk training/launch/ephemeral.sh --max-cost 40
# Change: GPUS (1: vLLM in the training process; more: a server on each GPU of the first half), EVERY (seconds between copies).
# Back:   KEPT, the run's folder; after a kill or exit code 75 (paused) start it again, here or elsewhere.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
gpus=${GPUS:-1} recipe=${RECIPE:-talk} out=${OUT:-$HOME/run}
mkdir -p "${KEPT:?name a folder that outlives this machine: KEPT=/back/talk}" "$out"
kept=$(cd "$KEPT" && pwd)
if [ -e "$kept/COMPLETE" ]; then
    echo "$kept is complete" >&2
    exit 0
fi
cp -ru --preserve=timestamps "$kept/." "$out"
rm -f "$out/PAUSED"

# A checkpoint is complete once it has a run.json, so these files are copied last: KEPT never has one
# without its weights. Then delete from KEPT the checkpoints that the run has deleted.
keep() {
    cd "$out" || return
    local each last gone=()
    for each in "$kept"/checkpoints/*; do
        if [ ! -e "checkpoints/${each##*/}" ]; then gone+=("$each"); fi
    done
    last=$(find . -name run.json -o -name COMPLETE)
    find . -type f ! -name run.json ! -name COMPLETE ! -name PAUSED \
        -exec cp -u --preserve=timestamps --parents -t "$kept" {} + &&
        printf '%s' "$last" | xargs -rd '\n' cp -u --preserve=timestamps --parents -t "$kept" &&
        rm -rf "${gone[@]}"
}

started=()
end() {
    trap - EXIT INT TERM
    if [ ${#started[@]} -gt 0 ]; then kill "${started[@]}" 2>/dev/null || true; fi
    wait || true
    (keep)
}
trap end EXIT
trap 'exit 143' INT TERM

# The sleep must not hold the output open after everything else has ended.
while sleep "${EVERY:-120}" >/dev/null 2>&1; do (keep) || true; done &
started+=($!)

command=(-m art_e train grpo --recipe "$recipe" --out "$out")
if [ -e "$out/config.json" ]; then command+=(--resume); fi
if [ "$gpus" = 1 ]; then
    python "${command[@]}" "$@" &
else
    half=$((gpus / 2))
    CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((half - 1))) REPLICAS=$half \
        bash "$here/vllm_server.sh" "$recipe" &
    started+=($!)
    CUDA_VISIBLE_DEVICES=$(seq -s, $half $((gpus - 1))) \
        accelerate launch --config_file "$here/ddp.yaml" --num_processes $((gpus - half)) \
        "${command[@]}" \
        --set "grpo.vllm.server=$(seq -s, -f 'http://127.0.0.1:%g' 8000 $((7999 + half)))" "$@" &
fi
started+=($!)
code=0
wait $! || code=$?
# accelerate exits with 1, whatever its processes exit with.
if [ -e "$out/PAUSED" ]; then code=75; fi
exit "$code"
