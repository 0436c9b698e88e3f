#!/usr/bin/env bash
# What:   vLLM's own server, as TRL's trainer needs it: it accepts new weights and returns log-probabilities.
# When:   for recipes with [grpo.vllm] mode = "server"; start it before training, on GPUs that do not train.
# How:    CUDA_VISIBLE_DEVICES=0 training/launch/vllm_server.sh talk-multi
# Change: REPLICAS (at PORT, PORT + 1, ...; each of TENSOR_PARALLEL GPUs), PORT, MODEL; HOST=0.0.0.0 for access from other machines (without authentication: private networks only).
# Back:   nothing; stop it with Ctrl-C or SIGTERM.
set -euo pipefail

recipe=${1:-talk-multi}
shift $(($# > 0))
told=$(python - "$recipe" <<'PYTHON'
import sys
from art_e.errors import UserError
from art_e.models.checkpoint import vllm_rank
from training.recipe import load_recipe
try:
    recipe = load_recipe(sys.argv[1])
    lora = recipe.model.lora
    print(recipe.model.base or "", recipe.episode.episode_tokens, lora and vllm_rank(lora), sep="\n")
except UserError as error:
    sys.exit(f"error: {error}")
PYTHON
)
{ read -r base; read -r length; read -r rank; } <<< "$told"
model=${MODEL:-$base}
: "${model:?the recipe names no model: set MODEL}"

# An adapter arrives as files in the run's folder, full weights over NCCL.
takes=(--weight-transfer-config '{"backend": "nccl"}')
[[ $rank == 0 ]] || takes=(--enable-lora --max-lora-rank "$rank")
# Enable the endpoints that receive both and clear the prefix cache: off by default, as they have no authentication.
export VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
port=${PORT:-8000} replicas=${REPLICAS:-1} size=${TENSOR_PARALLEL:-1}
serve() {
    local at=$1
    shift
    exec vllm serve "$model" \
        --host "${HOST:-127.0.0.1}" --port "$at" \
        --tensor-parallel-size "$size" --data-parallel-size 1 \
        --gpu-memory-utilization "${MEMORY:-0.9}" --dtype auto --kv-cache-dtype auto \
        --model-impl vllm --uvicorn-log-level info --max-model-len "$length" \
        --enable-prefix-caching --enable-scale-out "${takes[@]}" \
        --logprobs-mode processed_logprobs --max-logprobs -1 "$@"
}
if [ "$replicas" = 1 ]; then serve "$port" "$@"; fi

# Separate servers, because only one of vLLM's data-parallel replicas would load an adapter.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
trap 'exit 143' INT TERM
IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((replicas * size - 1)))}"
for ((at = 0; at < replicas; at++)); do
    CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${gpus[*]:at * size:size}") serve $((port + at)) "$@" &
done
# If one server stops, stop all.
wait -n
