#!/bin/sh
# make_python.sh -- build the package's wheel once and install it into the project's own folders of Python;
# instant when nothing it is made of has changed.
set -eu
cd "$(dirname "$0")/.."

parts="pyproject.toml meson.build meson_options.txt include src cli python/forebay"
venvs=.venv
[ -x .venv-numpy1/bin/python ] && venvs="$venvs .venv-numpy1"

is_new() {
    [ -e "$1/.forebay-installed" ] &&
        [ -z "$(find $parts -newer "$1/.forebay-installed" ! -name __pycache__ ! -name '*.pyc' \
            ! -name 'test_*' ! -name 'fuzz_*' ! -type d 2>/dev/null | head -n 1)" ]
}

stale=
for venv in $venvs; do
    is_new "$venv" || stale="$stale $venv"
done
[ -n "$stale" ] || exit 0

# A time before the build: what changes while it runs is new the next time.
mkdir -p build/wheel
: >build/wheel/.begun
rm -f build/wheel/*.whl
# The tools are in .venv already, so nothing is fetched and nothing is built apart.
PATH="$PWD/.venv/bin:$PATH" .venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
    --no-build-isolation --wheel-dir build/wheel --config-settings=build-dir=build/python . >&2
for venv in $stale; do
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index \
        --force-reinstall build/wheel/*.whl >&2
    touch -r build/wheel/.begun "$venv/.forebay-installed"
done
