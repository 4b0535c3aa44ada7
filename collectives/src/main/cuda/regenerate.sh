#!/usr/bin/env bash
# Compiles kernels.cu and tensor.cu to the PTX that is shipped. See README.md beside this file.
#   regenerate.sh          writes it
#   regenerate.sh check    fails if it is not what the sources give; status 77 without this compiler
set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
shipped=../resources/io/jccl/device/cuda
wanted='V13.0.88'

fail() {
    printf 'regenerate.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

nvcc=${NVCC:-$(command -v nvcc || true)}
[[ -n $nvcc ]] || fail "there is no nvcc on the PATH, and NVCC is not set" 77
version=$("$nvcc" --version | sed -nE 's/.* (V[0-9.]+)$/\1/p')
[[ $version == "$wanted" ]] ||
    fail "nvcc is $version, the committed PTX is of $wanted: use that, or change it here and in README.md" 77

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
tools=$("$nvcc" --dryrun -cubin -o /dev/null -x cu /dev/null 2>&1 | sed -nE 's/^#\$ _HERE_=(.*)$/\1/p')
checking=${1:-}

# nvcc 13 starts at 7.5 and writes PTX ISA 9.0, which drivers before CUDA 13 refuse. The code needs
# neither: ptxas refuses what the declared target and version do not have.
image() { # name, what it is compiled for, PTX ISA and target that are declared, devices to assemble for
    local name=$1 compute=$2 isa=$3 target=$4 arch
    "$nvcc" -ptx -arch="$compute" -std=c++17 -fmad=false -Werror all-warnings -o "$scratch/nvcc.ptx" "$name.cu"
    {
        printf '// Compiled from collectives/src/main/cuda by regenerate.sh there; do not edit.\n'
        printf '// SHA-256 of the sources: %s\n' "$(cat -- *.cu *.h | sha256sum | cut -d ' ' -f 1)"
        sed -E -e '/^\/\//d' -e "s/^\.version .*/.version $isa/" -e "s/^\.target .*/.target $target/" \
            -e '/^[[:space:]]*\/\/ /d' -e '/^$/d' "$scratch/nvcc.ptx"
    } >"$scratch/$name.ptx"
    for arch in "${@:5}"; do
        "$tools/ptxas" -arch="$arch" "$scratch/$name.ptx" -o "$scratch/$arch.cubin" ||
            fail "ptxas does not take $name.ptx for $arch"
    done
    if [[ $checking == check ]]; then
        cmp -- "$scratch/$name.ptx" "$shipped/$name.ptx" ||
            fail "the committed $name.ptx is not what the sources give: run regenerate.sh"
        echo "the committed $name.ptx is what the sources give"
    else
        mkdir -p -- "$shipped"
        cp -- "$scratch/$name.ptx" "$shipped/$name.ptx"
        printf 'written: %s, %d kernels\n' "$shipped/$name.ptx" "$(grep -c '\.entry' "$shipped/$name.ptx")"
    fi
}
image kernels compute_75 6.0 sm_70 sm_75 sm_80 sm_90 sm_100
image tensor compute_80 7.0 sm_80 sm_80 sm_90 sm_100
