#!/bin/sh
# usage: check_layers.sh [ROOT]
# Names every #include under src/ that src/LAYERS does not allow: a folder may include itself and those it lists.
set -eu
cd "${1:-$(dirname "$0")/..}/src"
grep -rn --include='*.[ch]' '^ *# *include *"' . | awk '
    BEGIN { while ((getline line < "LAYERS") > 0) { n = split(line, w, /[: ]+/)
            for (i = 1; i <= n; i++) ok[w[1], w[i]] = 1 } }
    { split($0, path, "/"); split($0, quoted, "\""); split(quoted[2], to, "/"); seen++ }
    quoted[2] ~ /\.c$/ { print "layers: a .c file is included: " $0; bad = 1 }
    !((path[2], to[1]) in ok) { print "layers: not allowed by src/LAYERS: " $0; bad = 1 }
    END { if (!seen) { print "layers: no includes found, so nothing was checked"; bad = 1 }
          exit bad }'
