#!/bin/sh
# usage: demo.sh [QUESTION]
# Installs what is missing, builds a release, and puts a question to the bundled model: text to token ids, ids to an
# answer, answer to text. The model is small but was trained (models/demo/MODEL.md), and every step is the real one: a
# tenth of its experts are kept in memory, the others are read when they are wanted.
set -eu
cd "$(dirname "$0")/.."
question=${1:-What is the capital of France?}
scripts/install_deps.sh build
scripts/build.sh release
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

prompt="[gMASK]<sop><|user|>$question<|assistant|><think></think>"
ids=$(build/weir tokenize models/demo "$prompt")
build/weir generate models/demo --ids "$ids" --max-tokens 128 --temperature 0 --experts-resident 10% >"$answer"
echo "question: $question"
printf 'answer:   '
build/weir tokenize models/demo --decode "$(cat "$answer")"
echo
