# Sourced by jccl and .ci/run. Starts no process, so that it costs nothing.

# Sets JCCL_JDK to the home of the first JDK of version 25 or newer, or fails.
find_jdk() {
    local floor=25 home line version
    for home in "${JAVA_HOME:-}" "${JAVA25_HOME:-}" /usr/lib/jvm/* \
        "${HOME:-/nonexistent}"/.sdkman/candidates/java/* /opt/*jdk* /opt/*/*jdk* /usr/java/*; do
        [[ -n $home && -r $home/release && -x $home/bin/javac ]] || continue
        version=
        while IFS= read -r line || [[ -n $line ]]; do
            if [[ $line =~ ^JAVA_VERSION=\"?([0-9]+) ]]; then
                version=${BASH_REMATCH[1]}
                break
            fi
        done <"$home/release"
        if [[ -n $version ]] && ((version >= floor)); then
            JCCL_JDK=$home
            return 0
        fi
    done
    return 1
}

# What to print when there is none.
readonly JDK_NEEDED='no JDK 25 or newer in JAVA_HOME, JAVA25_HOME, /usr/lib/jvm, ~/.sdkman, /opt or /usr/java: install Temurin 25, or set JAVA25_HOME to a JDK'
