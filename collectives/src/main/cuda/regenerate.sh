#!/usr/bin/env bash
# Compiles kernels.cu and tensor.cu to the images that are shipped, PTX and cubins. See README.md
# beside this file.
#   regenerate.sh          writes them, in minutes
#   regenerate.sh check    fails if they are not what the sources give; status 77 without this compiler
set -euo pipefail
export LC_ALL=C
CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
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
    fail "nvcc is $version, the committed images are of $wanted: use that, or change it here and in README.md" 77

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
tools=$("$nvcc" --dryrun -cubin -o /dev/null -x cu /dev/null 2>&1 | sed -nE 's/^#\$ _HERE_=(.*)$/\1/p')
checking=${1:-}

# nvcc 13 starts at 7.5 and writes PTX ISA 9.0, which drivers before CUDA 13 refuse. The code needs
# neither: ptxas refuses what the declared target and version do not have.
ptx() { # name, what it is compiled for, PTX ISA and target that are declared
    "$nvcc" -ptx -arch="$2" -std=c++17 -fmad=false -Werror all-warnings -o "$scratch/$1.nvcc" "$1.cu"
    {
        printf '// Compiled from collectives/src/main/cuda by regenerate.sh there; do not edit.\n'
        printf '// SHA-256 of the sources: %s\n' "$(cat -- *.cu *.h | sha256sum | cut -d ' ' -f 1)"
        sed -E -e '/^\/\//d' -e "s/^\.version .*/.version $3/" -e "s/^\.target .*/.target $4/" \
            -e '/^[[:space:]]*\/\/ /d' -e '/^$/d' "$scratch/$1.nvcc"
    } >"$scratch/$1.ptx"
}

# The cubins are made of the shipped PTX, as a driver would. Paths are relative, so that none gets in.
jobs=()
cubin() { # name, architecture
    (cd -- "$scratch" && "$tools/ptxas" -arch="$2" "$1.ptx" -o "$1.$2.cubin") &
    jobs+=($!)
}

ptx kernels compute_75 6.0 sm_70
ptx tensor compute_80 7.0 sm_80
for arch in 80 90 100; do # CudaKernel.Image names them too
    cubin kernels "sm_$arch"
    cubin tensor "sm_$arch"
done
# Not shipped: the oldest one that this ptxas assembles for.
cubin kernels sm_75
for job in "${jobs[@]}"; do
    wait "$job" || fail "ptxas does not take the PTX"
done
rm -- "$scratch/kernels.sm_75.cubin" "$scratch"/*.nvcc

(cd -- "$scratch" && sha256sum -- *.cubin *.ptx) >"$scratch/images.sha256"
if [[ $checking == check ]]; then
    diff -- "$scratch/images.sha256" images.sha256 >&2 ||
        fail "the committed images are not what the sources give: run regenerate.sh"
    (cd -- "$shipped" && sha256sum --quiet --strict -c) <images.sha256 >&2 ||
        fail "the committed images are not those of images.sha256: run regenerate.sh"
    echo "the committed images are what the sources give"
else
    mkdir -p -- "$shipped"
    rm -f -- "$shipped"/*.cubin "$shipped"/*.ptx
    cp -- "$scratch"/*.cubin "$scratch"/*.ptx "$shipped"
    cp -- "$scratch/images.sha256" .
    printf 'written: %s, %d kernels, %d files\n' "$shipped" "$(cat -- "$shipped"/*.ptx | grep -c '\.entry')" \
        "$(wc -l <images.sha256)"
fi
