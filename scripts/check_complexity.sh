#!/bin/sh
# usage: check_complexity.sh [ROOT]
# The ratchet. Branch complexity over 50 stops. A function over 70 lines, or a file over 1000, stops unless
# scripts/long_functions.txt lists it with a length that it does not pass; entries that are no longer needed stop too, so
# that the list only shrinks.
set -eu
cd "${1:-$(dirname "$0")/..}"
files=$(find src examples -name '*.[ch]' 2>/dev/null | sort)
[ -n "$files" ] || { echo "complexity: no files found, so nothing was checked"; exit 1; }
sources=$(find src examples -name '*.c' 2>/dev/null | sort)
# shellcheck disable=SC2086 # lists of words
{
    # its complaint about a macro at the end of a file comes after all functions were seen
    pmccabe $sources 2>/dev/null | sed 's/^/function\t/'
    wc -l $files | awk '$2 != "total" { print "file\t" $1 "\t" $2 }'
} | awk -F '\t' -v list=scripts/long_functions.txt '
    BEGIN { while ((getline line < list) > 0) {
                if (line ~ /^#/ || line == "") continue
                split(line, w, " "); limit[w[1]] = w[2] } }
    function check(name, lines, most) {
        if (lines <= most) return
        if (!(name in limit)) { print "complexity: " name ": " lines " lines, more than " most; bad = 1 }
        else if (lines > limit[name]) { print "complexity: " name ": grew from " limit[name] " to " lines " lines"; bad = 1 }
        used[name] = 1
    }
    $1 == "file" { check($3, $2, 1000); next }
    { # modified and plain complexity, statements, first line, lines, file(line): name
        n = split($7, where, /[(): ]+/); name = where[1] ":" where[3]; seen++
        if ($2 > 50) { print "complexity: " name ": branch complexity " $2 ", more than 50"; bad = 1 }
        check(name, $6, 70)
    }
    END {
        if (!seen) { print "complexity: no functions found, so nothing was checked"; bad = 1 }
        for (name in limit) if (!(name in used)) { print "complexity: take " name " off " list; bad = 1 }
        exit bad
    }'
