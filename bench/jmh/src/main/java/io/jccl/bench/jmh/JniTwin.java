package io.jccl.bench.jmh;

/** The same call through JNI, for comparison; the C side is {@code bench/peers/jni_twin.c}. */
@SuppressWarnings("restricted")
final class JniTwin {
    private JniTwin() {}

    /** Loads the C side, whose file {@code bench/peers/bindings} names, and binds it to NCCL. */
    static void load(String nccl) {
        String twin = System.getenv("JCCL_JNI_TWIN");
        if (twin == null) {
            throw new IllegalStateException(
                    "JCCL_JNI_TWIN does not name the JNI twin: run bench/peers/bindings");
        }
        System.load(twin);
        if (!bind(nccl)) {
            throw new IllegalStateException("the JNI twin finds no ncclGetVersion in " + nccl);
        }
    }

    static native boolean bind(String nccl);

    static native int ncclGetVersion(long outVersion);
}
