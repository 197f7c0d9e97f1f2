#!/bin/sh
# setup.sh [run|all] -- install what is missing to build and run (run) or to test as well (all).
# Silent and instant when nothing is missing. Nothing of Python goes to the system: .venv.
set -eu
cd "$(dirname "$0")/.."

run_packages="gcc libc6-dev make meson ninja-build pkg-config scdoc liburing-dev libyaml-dev
    libjansson-dev libjpeg-dev libspng-dev libsndfile1-dev libmpg123-dev libflac-dev libarchive-dev libsoxr-dev
    libzstd-dev zlib1g-dev libncurses-dev libmicrohttpd-dev ocl-icd-opencl-dev opencl-headers"
test_packages="clang libclang-rt-14-dev llvm libcmocka-dev pocl-opencl-icd python3-venv python3-dev
    tmux slurmctld slurmd slurm-client openmpi-bin"
# .venv: what the tests of the package need, and (if there is a wheel for this machine) torch and the
# readers they compare with; without those they skip. .venv-numpy1: the oldest NumPy, and no torch.
python_packages="pytest==9.2.0 tqdm==4.70.1 meson-python==0.22.1 meson==1.12.1 ninja==1.13.2"
numpy_new="numpy==2.4.6"
numpy_old="numpy==1.26.4"
compared_packages="torch==2.13.0 ml_dtypes==0.6.0 pillow==13.0.0 soundfile==0.14.0 webdataset==1.0.2
    pandas==3.1.1 pyarrow==26.0.1"
torch_index=https://download.pytorch.org/whl/cpu
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

# What the folder has is in its stamp, so that a changed list is noticed.
has_packages() {
    [ -e "$1/.forebay-packages" ] && [ "$(cat "$1/.forebay-packages")" = "$2" ]
}

pip_install() {
    folder=$1
    shift
    say "+ $folder/bin/python -m pip install $*"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" </dev/null >&2
}

# The system's own Python is preferred to one in somebody's home: the tests also run as a user who may
# not look there.
make_venv() {
    python=python3
    [ -x /usr/bin/python3 ] && python=/usr/bin/python3
    "$1/bin/python" -c '' 2>/dev/null || $python -m venv "$1"
    rm -f "$1/.forebay-packages"
}

# One by one: what has no wheel here must not keep the others away. The CPU build of torch is a tenth of
# the other one; where its index cannot be reached pip takes what it finds.
install_compared() {
    index=
    .venv/bin/python -c "import urllib.request as u; u.urlopen('$torch_index/torch/', timeout=5)" \
        2>/dev/null && index="--extra-index-url $torch_index"
    for package in $compared_packages; do
        pip_install .venv --only-binary=:all: $index "$package" "$numpy_new" ||
            say "no $package here: the tests that need it are skipped"
    done
}

install_python() {
    wanted="$python_packages $numpy_new $compared_packages"
    has_packages .venv "$wanted" || {
        make_venv .venv
        pip_install .venv $python_packages $numpy_new
        install_compared
        printf '%s\n' "$wanted" >.venv/.forebay-packages
    }
    wanted="$python_packages $numpy_old"
    has_packages .venv-numpy1 "$wanted" || {
        make_venv .venv-numpy1
        # Python 3.13 and later have no NumPy 1 any more.
        pip_install .venv-numpy1 --only-binary=:all: $python_packages $numpy_old || {
            say "no $numpy_old here: that step is skipped"
            rm -rf .venv-numpy1/bin
        }
        printf '%s\n' "$wanted" >.venv-numpy1/.forebay-packages
    }
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
