package io.jccl.bench.jmh;

/**
 * The JNI calls that our calls to NCCL are compared with; {@code bench/peers/jni_twin.c} is the C
 * side.
 */
@SuppressWarnings("restricted")
final class JniTwin {
    private JniTwin() {}

    /**
     * Loads the C side from the file named by scripts in {@code bench/peers}, and binds it to NCCL.
     */
    static void load(String nccl) {
        String twin = System.getenv("JCCL_JNI_TWIN");
        if (twin == null) {
            throw new IllegalStateException(
                    "JCCL_JNI_TWIN does not name the JNI twin: run bench/peers/bindings or"
                            + " bench/peers/enqueue -g 2");
        }
        System.load(twin);
        if (!bind(nccl)) {
            throw new IllegalStateException(
                    "the JNI twin finds no ncclGetVersion or ncclAllReduce in " + nccl);
        }
    }

    static native boolean bind(String nccl);

    static native int ncclGetVersion(long outVersion);

    /** Calls {@code ncclAllReduce} in a loop in C; returns the first result that is not 0. */
    static native int enqueue(
            long send, long recv, long count, int type, int op, long comm, long stream, int calls);
}
