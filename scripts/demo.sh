#!/bin/sh
# usage: demo.sh [QUESTION]
# Installs what is missing, builds a release, and puts a question to the bundled model. It prints the answer, and one line
# of facts behind it. The model is small but was trained (models/demo/MODEL.md), and every step is the real one: a tenth of
# its experts are kept in memory, the others are read when they are wanted.
set -eu
cd "$(dirname "$0")/.."
question=${1:-What is this engine?}
scripts/install_deps.sh build
scripts/build.sh release
echo
echo "question: $question"
build/weir generate models/demo --prompt "$question" --temperature 0 --experts-resident 10%
