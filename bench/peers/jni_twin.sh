# Sourced by scripts beside it: builds the JNI twin and names it in JCCL_JNI_TWIN. Wants $here and $root.
# jni.h is a JDK's, so a JDK and not just a Java runtime has to be there.
. "$root/.mvn/find-jdk.sh"
find_jdk || {
    printf 'peers: %s\n' "$JDK_NEEDED" >&2
    exit 3
}
mkdir -p -- "$root/bench/target/peers"
export JCCL_JNI_TWIN=$root/bench/target/peers/libjccl_jni_twin.so
cc -O2 -Wall -Wextra -Werror -shared -fPIC -I "$JCCL_JDK/include" -I "$JCCL_JDK/include/linux" \
    -o "$JCCL_JNI_TWIN" "$here/jni_twin.c" -ldl
