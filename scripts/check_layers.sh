#!/bin/sh
# usage: check_layers.sh [ROOT]
# Names every #include under src/ that src/LAYERS does not allow: a folder may include itself and those it lists. A line
# for a single file (cli/command_fit.c: ...) holds for all that the file includes, also through other headers, and lists
# folders and headers.
set -eu
cd "${1:-$(dirname "$0")/..}/src"
grep -rn --include='*.[ch]' '^ *# *include *"' . | awk '
    BEGIN { while ((getline line < "LAYERS") > 0) { n = split(line, w, /[: ]+/)
            if (w[1] ~ /\//) files[w[1]] = 1
            for (i = 1; i <= n; i++) ok[w[1], w[i]] = 1 } }
    { split($0, path, "/"); split($0, quoted, "\""); split(quoted[2], to, "/"); seen++
      from = $0; sub(/:.*/, "", from); sub(/^\.\//, "", from)
      includes[from] = includes[from] " " quoted[2] }
    quoted[2] ~ /\.c$/ { print "layers: a .c file is included: " $0; bad = 1 }
    !((path[2], to[1]) in ok) { print "layers: not allowed by src/LAYERS: " $0; bad = 1 }
    function look(file, at, via,   list, n, i, to) {
        n = split(includes[at], list, " ")
        for (i = 1; i <= n; i++) {
            if ((file, list[i]) in met) continue
            met[file, list[i]] = 1
            split(list[i], to, "/")
            if (!((file, to[1]) in ok) && !((file, list[i]) in ok)) {
                print "layers: not allowed by src/LAYERS: " file " sees " list[i] via; bad = 1
            } else look(file, list[i], via " through " list[i])
        }
    }
    END { for (file in files) { if (!(file in includes)) { print "layers: there is no " file; bad = 1 }
                                look(file, file, "") }
          if (!seen) { print "layers: no includes found, so nothing was checked"; bad = 1 }
          exit bad }'
