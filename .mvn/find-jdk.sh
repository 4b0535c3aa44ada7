# Sourced by jccl, here and in distributions, and by .ci/run. Plain sh; starts no process, so that it
# costs nothing.

# Sets JCCL_JDK to the home of the first JDK of version 25 or newer, or fails.
find_jdk() {
    for JCCL_JDK in "${JAVA_HOME:-}" "${JAVA25_HOME:-}" /usr/lib/jvm/* \
        "${HOME:-/nonexistent}"/.sdkman/candidates/java/* /opt/*jdk* /opt/*/*jdk* /usr/java/*; do
        [ -n "$JCCL_JDK" ] && [ -r "$JCCL_JDK/release" ] && [ -x "$JCCL_JDK/bin/javac" ] || continue
        while IFS= read -r jdk_line || [ -n "$jdk_line" ]; do
            case $jdk_line in
                JAVA_VERSION=*)
                    jdk_line=${jdk_line#JAVA_VERSION=}
                    jdk_line=${jdk_line#\"}
                    jdk_line=${jdk_line%%[!0-9]*}
                    [ "${jdk_line:-0}" -lt 25 ] || return 0
                    break
                    ;;
            esac
        done <"$JCCL_JDK/release"
    done
    return 1
}

# What to print when there is none.
readonly JDK_NEEDED='no JDK 25 or newer in JAVA_HOME, JAVA25_HOME, /usr/lib/jvm, ~/.sdkman, /opt or /usr/java: install Temurin 25, or set JAVA25_HOME to a JDK'
