#!/bin/sh
# setup.sh [run|all] -- install what is missing to build and run (run) or to test as well (all).
# Silent and instant when nothing is missing. Nothing of Python goes to the system: .venv.
set -eu
cd "$(dirname "$0")/.."

run_packages="gcc libc6-dev make meson ninja-build pkg-config scdoc liburing-dev libyaml-dev
    libjansson-dev libjpeg-dev libspng-dev libsndfile1-dev libflac-dev libarchive-dev libsoxr-dev
    libzstd-dev zlib1g-dev libncurses-dev libmicrohttpd-dev ocl-icd-opencl-dev opencl-headers"
test_packages="clang libclang-rt-14-dev llvm libcmocka-dev pocl-opencl-icd python3-venv python3-dev
    tmux"
python_packages="pytest numpy"
modules="liburing yaml-0.1 jansson zlib cmocka"

say() { printf '%s\n' "$*" >&2; }

wanted_packages() {
    printf '%s ' $run_packages
    [ "$1" = run ] || printf '%s ' $test_packages
}

# Whatever dpkg does not call installed.
missing_packages() {
    known=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null |
        sed -n 's/ installed$//p' | tr '\n' ' ' || true)
    for package in "$@"; do
        case " $known " in *" $package "*) ;; *) printf '%s ' "$package" ;; esac
    done
}

# A build folder was configured with what was there then.
reconfigure_builds() {
    for folder in build/*/; do
        [ -e "$folder/meson-private/coredata.dat" ] && meson setup --reconfigure "$folder" >&2
    done
    return 0
}

install_packages() {
    sudo=
    if [ "$(id -u)" != 0 ]; then
        sudo=sudo
        command -v sudo >/dev/null || {
            say "These packages are missing and there is no sudo; as root, run:"
            say "  apt-get install -y --no-install-recommends $*"
            exit 1
        }
    fi
    say "+ $sudo apt-get install -y --no-install-recommends $*"
    $sudo apt-get update -q >&2 </dev/null
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" \
        >&2 </dev/null
    reconfigure_builds
}

# Not Debian: ask for the things themselves, and name the packages if one is not there.
check_elsewhere() {
    missing=
    for tool in cc meson ninja pkg-config; do
        command -v "$tool" >/dev/null || missing="$missing $tool"
    done
    for module in $modules; do
        [ "$1" = run ] && [ "$module" = cmocka ] && continue
        pkg-config --exists "$module" 2>/dev/null || missing="$missing $module"
    done
    [ -z "$missing" ] && return 0
    say "Missing:$missing. On Debian 12 these packages have all of it; install what your system calls them:"
    say "  $(wanted_packages "$1")"
    exit 1
}

# The stamp names what is inside, so that a changed list is noticed. The system's own Python is
# preferred to one in somebody's home: the tests also run as a user who may not look there.
install_python() {
    python=python3
    [ -x /usr/bin/python3 ] && python=/usr/bin/python3
    stamp=.venv/.forebay-$(printf '%s' "$python_packages" | tr -c 'a-z0-9' '-')
    [ -e "$stamp" ] && return 0
    say "+ $python -m venv .venv && .venv/bin/python -m pip install $python_packages"
    $python -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check $python_packages </dev/null >&2
    : >"$stamp"
}

what=${1:-all}
case "$what" in run | all) ;; *) say "usage: tools/setup.sh [run|all]"; exit 2 ;; esac

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
    missing=$(missing_packages $(wanted_packages "$what"))
    [ -z "$missing" ] || install_packages $missing
else
    check_elsewhere "$what"
fi
[ "$what" = run ] || install_python
