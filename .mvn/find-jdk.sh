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

# Sets JCCL_COLLECTOR to the flags of the JVM's collector: none if a variable of the user chooses one.
# Short-lived commands whose bulk data lies outside the heap: the smallest collector starts fastest.
# Its marks of written references would bounce between the ranks' cores if they were not conditional.
choose_collector() {
    case " ${JCCL_JAVA_OPTS:-} ${JAVA_TOOL_OPTIONS:-} ${JDK_JAVA_OPTIONS:-} ${_JAVA_OPTIONS:-}" in
        *' -XX:+Use'*GC*) JCCL_COLLECTOR= ;;
        *) JCCL_COLLECTOR='-XX:+UseSerialGC -XX:+UseCondCardMark' ;;
    esac
}

# Sets LC_ALL where the locale is C, in which the JVM cannot open files whose names are not ASCII.
choose_locale() {
    case ${LC_ALL:-${LC_CTYPE:-${LANG:-C}}} in
        # A shell complains if the system lacks it.
        C | POSIX) { LC_ALL=C.UTF-8 && export LC_ALL; } 2>/dev/null ;;
    esac
}

# Opens standard input and standard error if they are closed: a file that the JVM opens would take
# their place. Standard output stays as it is: that nobody can read it is an error.
open_closed() {
    { true 3<&0; } 2>/dev/null || exec </dev/null
    # Where it was closed, bash has its script open there.
    if ! true 3>&2 || [ /dev/fd/2 -ef "$0" ]; then exec 2>/dev/null; fi
}

# What to print when there is no JDK.
readonly JDK_NEEDED='no JDK 25 or newer in JAVA_HOME, JAVA25_HOME, /usr/lib/jvm, ~/.sdkman, /opt or /usr/java: install Temurin 25, or set JAVA25_HOME to a JDK'
