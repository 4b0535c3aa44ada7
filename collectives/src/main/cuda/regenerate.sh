#!/usr/bin/env bash
# Compiles kernels.cu to the PTX that is shipped. See README.md beside this file.
#   regenerate.sh          writes it
#   regenerate.sh check    fails if it is not what the sources give; status 77 without this compiler
set -euo pipefail
export LC_ALL=C
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
shipped=../resources/io/jccl/device/cuda/kernels.ptx
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
"$nvcc" -ptx -arch=compute_75 -std=c++17 -fmad=false -Werror all-warnings -o "$scratch/75.ptx" kernels.cu
# nvcc 13 starts at 7.5 and writes PTX ISA 9.0, which drivers before CUDA 13 refuse. The code needs
# neither: ptxas refuses what the declared target and version do not have.
{
    printf '// Compiled from collectives/src/main/cuda by regenerate.sh there; do not edit.\n'
    printf '// SHA-256 of the sources: %s\n' "$(cat -- *.cu *.h | sha256sum | cut -d ' ' -f 1)"
    sed -E -e '/^\/\//d' -e 's/^\.version .*/.version 6.0/' -e 's/^\.target .*/.target sm_70/' \
        -e '/^[[:space:]]*\/\/ /d' -e '/^$/d' "$scratch/75.ptx"
} >"$scratch/kernels.ptx"
tools=$("$nvcc" --dryrun -cubin -o /dev/null -x cu /dev/null 2>&1 | sed -nE 's/^#\$ _HERE_=(.*)$/\1/p')
for arch in sm_75 sm_80 sm_90 sm_100; do
    "$tools/ptxas" -arch="$arch" "$scratch/kernels.ptx" -o "$scratch/$arch.cubin" ||
        fail "ptxas does not take the PTX for $arch"
done
if [[ ${1:-} == check ]]; then
    cmp -- "$scratch/kernels.ptx" "$shipped" || fail "the committed PTX is not what the sources give: run regenerate.sh"
    echo "the committed PTX is what the sources give"
else
    mkdir -p -- "$(dirname -- "$shipped")"
    cp -- "$scratch/kernels.ptx" "$shipped"
    printf 'written: %s, %d kernels\n' "$shipped" "$(grep -c '\.entry' "$shipped")"
fi
