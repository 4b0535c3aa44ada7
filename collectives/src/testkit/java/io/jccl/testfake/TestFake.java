package io.jccl.testfake;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.NativeLibraries;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.List;

/**
 * The fakes of libcudart, libnccl and libcublas in this JVM: how tests put them in place, steer
 * them and ask them. Tests call no native code themselves, so commands go through a function that
 * JCCL binds.
 */
public final class TestFake {
    private TestFake() {}

    /**
     * Makes the fakes what this JVM finds as NCCL, CUDA and cuBLAS; before the first use of any.
     */
    public static void use() {
        Path built = FakeBuild.folder();
        System.setProperty("jccl.nccl", built.resolve("libnccl.so.2").toString());
        System.setProperty("jccl.cudart", built.resolve("libcudart.so.13").toString());
        System.setProperty("jccl.cublas", built.resolve("libcublas.so.13").toString());
        String nccl = NativeLibraries.nccl().library().path();
        if (!nccl.startsWith(built.toString())) {
            throw new AssertionError(nccl + " is not the fake: this JVM used NCCL before");
        }
        reset();
    }

    /** JVM flags by which a child process finds the fakes. */
    public static List<String> flags() {
        return FakeBuild.jvmFlags();
    }

    /** Adds rules of what goes wrong: {@code function[@rank]:which:action}, see src/test/c. */
    public static void inject(String rules) {
        if (command("inject:" + rules) < 1) {
            throw new AssertionError("the fake does not understand the rules " + rules);
        }
    }

    /** Removes all rules, and ends hangs and sticky errors. */
    public static void reset() {
        command("clear:");
        command("release:");
        command("sticky:0");
        command("mismatch_hangs:0");
        command("capability:90");
        command("threads_reversed:0");
    }

    /** From now on kernels run their blocks and threads in reverse order. */
    public static void threadsReversed() {
        command("threads_reversed:1");
    }

    /** The compute capability of all devices from now on, times 10; {@link #reset} makes it 90. */
    public static void capability(int tenfold) {
        command("capability:" + tenfold);
    }

    /** Of which devices this process has a context: bit d for device d. */
    public static int contexts() {
        return command("contexts");
    }

    /** From now on ranks that disagree hang, as they do with the real NCCL. */
    public static void mismatchHangs() {
        command("mismatch_hangs:1");
    }

    /** From now on every call of CUDA returns an error. */
    public static void sticky(int error) {
        command("sticky:" + error);
    }

    /** How many objects of a kind there are, such as {@code streams}, or {@code all}. */
    public static long live(String kind) {
        return command("live:" + kind);
    }

    /** How often a function was called. */
    public static long calls(String function) {
        return command("calls:" + function);
    }

    private static int command(String text) {
        CudaApi cuda = NativeLibraries.cuda();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment answer = arena.allocate(ValueLayout.JAVA_INT);
            MemorySegment command = arena.allocateFrom("jccl_fake:" + text);
            if (cuda.cudaDeviceGetByPCIBusId(answer, command) != 0) {
                throw new AssertionError(cuda + " is not the fake: " + text);
            }
            return answer.get(ValueLayout.JAVA_INT, 0);
        }
    }
}
