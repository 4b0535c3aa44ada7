#!/usr/bin/env bash
# Generates bindings/src/generated/java anew. See README.md beside this file.
set -euo pipefail
export LC_ALL=C
CDPATH= cd -- "$(dirname -- "${BASH_SOURCE[0]}")"

fail() {
    printf 'regenerate.sh: %s\n' "$1" >&2
    exit 1
}

# expect WHAT FOUND WANTED
expect() {
    [[ $2 == "$3" ]] || fail "$1 is '$2', expected '$3': use that version, or change it here, in README.md and in the tests"
}

# macro FILE NAME: the number that a header defines
macro() {
    sed -nE "s/^[[:space:]]*#[[:space:]]*define[[:space:]]+$2[[:space:]]+([0-9]+).*/\\1/p" "$1" | sed -n 1p
}

# header VARIABLE FILE: a header in the folder that an environment variable names
header() {
    local folder=${!1:-}
    [[ -n $folder ]] || fail "$1 is not set: set it to the folder that holds $2"
    [[ -r $folder/$2 ]] || fail "$1 is $folder, and there is no $2 in it"
    printf '%s/%s' "$folder" "$2"
}

command -v jextract >/dev/null || fail "there is no jextract on the PATH"
tool=$(jextract --version 2>&1)
expect "jextract" "$(sed -nE 's/^jextract ([0-9]+).*/\1/p' <<<"$tool")" 23
expect "the JDK of jextract" "$(sed -nE 's/^JDK version ([0-9]+).*/\1/p' <<<"$tool")" 25
expect "libclang" "$(sed -nE 's/.*clang version ([0-9.]+).*/\1/p' <<<"$tool")" 14.0.6

h=$(header NCCL_INCLUDE nccl.h)
expect "NCCL in $h" "$(macro "$h" NCCL_VERSION_CODE)" 23007
h=$(header CUDA_INCLUDE cuda_runtime_api.h)
expect "the CUDA runtime in $h" "$(macro "$h" CUDART_VERSION)" 13000
h=$(header CUBLAS_INCLUDE cublas_api.h)
expect "cuBLAS in $h" \
    "$(macro "$h" CUBLAS_VER_MAJOR).$(macro "$h" CUBLAS_VER_MINOR).$(macro "$h" CUBLAS_VER_PATCH)" 13.1.1
h=$(header MPI_INCLUDE mpi.h)
expect "Open MPI in $h" \
    "$(macro "$h" OMPI_MAJOR_VERSION).$(macro "$h" OMPI_MINOR_VERSION).$(macro "$h" OMPI_RELEASE_VERSION)" 4.1.4

scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT

# generate NAME INCLUDE_FOLDER...
generate() {
    local name=$1 folder
    local -a folders=()
    shift
    for folder; do
        folders+=(-I "$folder")
    done
    sort -c "$name.includes" || fail "$name.includes is not sorted: LC_ALL=C sort -u it"
    # A name that the header does not have would be left out in silence.
    jextract "${folders[@]}" --dump-includes "$scratch/$name.all" "jccl_$name.h" >/dev/null 2>&1 ||
        fail "jextract cannot read jccl_$name.h: run jextract ${folders[*]} jccl_$name.h to see why"
    awk '/^--include/ { print $1, $2 }' "$scratch/$name.all" | sort -u >"$scratch/$name.has"
    comm -23 "$name.includes" "$scratch/$name.has" >"$scratch/$name.lost"
    [[ ! -s $scratch/$name.lost ]] || fail "$name.includes names what the header lacks: $(<"$scratch/$name.lost")"
    jextract "${folders[@]}" --output "$scratch/java" --target-package "io.jccl.bindings.generated.$name" \
        --header-class-name "${name}_h" "@$name.includes" "jccl_$name.h" 2>"$scratch/$name.log" ||
        fail "jextract failed: $(<"$scratch/$name.log")"
    # Warnings about opaque handles are expected: they are bound as pointers.
    grep -E 'error|ERROR' "$scratch/$name.log" >&2 && fail "jextract reported errors"
    printf '%-7s %4d names, %3d files\n' "$name" "$(wc -l <"$name.includes")" \
        "$(find "$scratch/java/io/jccl/bindings/generated/$name" -name '*.java' | wc -l)"
}

generate nccl "$NCCL_INCLUDE" "$CUDA_INCLUDE"
# Nothing public may be forgotten when NCCL grows.
grep -E '^--include-(function|constant|typedef) (nccl|NCCL_)' "$scratch/nccl.has" |
    comm -23 - nccl.includes >"$scratch/nccl.unbound"
[[ ! -s $scratch/nccl.unbound ]] || fail "nccl.includes lacks: $(<"$scratch/nccl.unbound")"
generate cudart "$CUDA_INCLUDE"
generate cuda "$CUDA_INCLUDE"
generate cublas "$CUBLAS_INCLUDE" "$CUDA_INCLUDE"
generate mpi "$MPI_INCLUDE"

rm -rf ../src/generated/java/io/jccl/bindings/generated
mkdir -p ../src/generated/java
cp -R "$scratch/java/io" ../src/generated/java/
echo "written: bindings/src/generated/java"
