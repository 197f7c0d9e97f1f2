#!/bin/sh
# make_docs.sh -- docs made from the program and its sources: the man page, the reference of keys.
set -eu
cd "$(dirname "$0")/.."

made=
if [ -e docs/forebay.1.scd ]; then
    scdoc <docs/forebay.1.scd >build/forebay.1
    made="$made build/forebay.1"
fi
if build/forebay run --help-config --markdown >build/configuration.md 2>/dev/null; then
    {
        echo '# Every key of the configuration'
        echo
        echo 'Made by `make docs` from the table in `src/config/schema.h`; `forebay run --help-config`'
        echo 'prints the same. A file is YAML, `--set memory.budget=8GiB` is over it; *live* keys can'
        echo 'be changed while it runs. Sizes: B, kB, MB, GB (powers of 1000), KiB, MiB, GiB (of 1024).'
        echo
        cat build/configuration.md
    } >docs/configuration.md
    made="$made docs/configuration.md"
fi
rm -f build/configuration.md
echo "made:${made:- nothing}"
