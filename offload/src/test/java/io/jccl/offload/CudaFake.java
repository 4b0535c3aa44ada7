package io.jccl.offload;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.testfake.FakeBuild;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;

/**
 * The fakes of libcudart and libnccl from the collectives' tests, as the CUDA runtime and the NCCL
 * of this JVM.
 */
public final class CudaFake {
    private static boolean used;

    private CudaFake() {}

    /** Builds them and makes JCCL find them, once; before the first use of CUDA. */
    public static synchronized void use() {
        if (!used) {
            Path built = FakeBuild.folder();
            System.setProperty("jccl.cudart", built.resolve("libcudart.so.13").toString());
            System.setProperty("jccl.nccl", built.resolve("libnccl.so.2").toString());
            used = true;
        }
        reset();
    }

    /** Removes all rules, and ends hangs. */
    public static void reset() {
        command("clear:");
        command("release:");
        command("sticky:0");
    }

    /** Adds rules of what goes wrong: {@code function[@device]:which:action}. */
    public static void inject(String rules) {
        if (command("inject:" + rules) < 1) {
            throw new AssertionError("the fake does not understand the rules " + rules);
        }
    }

    /** How many objects of a kind there are. */
    public static long live(String kind) {
        return command("live:" + kind);
    }

    /** How often a function was called. */
    public static long calls(String function) {
        return command("calls:" + function);
    }

    private static long command(String text) {
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
