#!/bin/sh
# usage: convert_demo.sh SOURCE [DEST]
# Makes the bundled demo model (models/demo, or DEST) anew from its bf16 checkpoint. The result depends on nothing else:
# it must be the same bytes as what is committed. Group 32, because the default of 64 has the same sizes as 48 at this
# model's narrow widths (expert rows of 96 columns), and readers know groups by sizes only. Eight bits outside the routed
# experts: at these widths it buys back two thirds of what int4 costs there, for 1.9 MiB.
set -eu
weir=$(dirname "$0")/../build/weir
[ -x "$weir" ] || weir=$(dirname "$0")/../build-gcc/weir
exec "$weir" convert "$1" "${2:-$(dirname "$0")/../models/demo}" --group 32 --bits 8 --expert-bits 4 --keep-mtp-indexer
