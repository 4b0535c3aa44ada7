package io.jccl.testfake;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.device.Cuda;
import io.jccl.device.Device;
import java.lang.annotation.Annotation;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Assumptions;

/**
 * The fakes of libcudart, libnccl and libcublas in this JVM: how tests put them in place, steer
 * them and ask them. Tests call no native code themselves, so commands go through a function that
 * JCCL binds.
 *
 * <p>With the system property {@code jccl.test.gpu} tests run on the libraries and GPUs of this
 * machine instead. What steers or asks the fakes ends such a test as skipped.
 */
public final class TestFake {
    private static final boolean GPU = Boolean.getBoolean("jccl.test.gpu");

    /** Views of the machine's GPUs, as the devices that it lacks. */
    private static final Map<Integer, Device> VIEWS = new ConcurrentHashMap<>();

    /** Whether the fakes were steered since the last {@link #reset}. */
    private static volatile boolean steered;

    private TestFake() {}

    /**
     * A CUDA device, of which tests may take eight; the same object for every call. On a machine
     * with fewer GPUs several are views of the same.
     */
    public static Device device(int index) {
        return GPU && index >= Cuda.deviceCount()
                ? VIEWS.computeIfAbsent(index, i -> Cuda.view(i % Cuda.deviceCount()))
                : Cuda.device(index);
    }

    /** Devices for as many ranks of NCCL, which has one rank for each GPU unless it is told. */
    public static List<Device> ranks(int count) {
        if (!"1".equals(System.getenv("NCCL_MULTI_RANK_GPU_ENABLE"))) {
            needs(count);
        }
        return IntStream.range(0, count).mapToObj(TestFake::device).toList();
    }

    /** Ends a test as skipped where there are fewer GPUs; devices up to this one are GPUs each. */
    public static void needs(int gpus) {
        if (GPU && Cuda.deviceCount() < gpus) {
            Assumptions.abort("needs " + gpus + " GPUs");
        }
    }

    /** Ends a test as skipped on GPUs. */
    public static void needsFakes(String why) {
        if (GPU) {
            Assumptions.abort("needs the fakes: " + why);
        }
    }

    /**
     * Makes the fakes what this JVM finds as NCCL, CUDA and cuBLAS; before the first use of any.
     */
    public static synchronized void use() {
        if (GPU) {
            return;
        }
        if (!caller(SharesFakes.class) && !caller(UsesFakes.class)) {
            throw new AssertionError("the test lacks @UsesFakes: others may run beside it");
        }
        Path built = FakeBuild.folder();
        System.setProperty("jccl.nccl", built.resolve("libnccl.so.2").toString());
        System.setProperty("jccl.cudart", built.resolve("libcudart.so.13").toString());
        System.setProperty("jccl.cublas", built.resolve("libcublas.so.13").toString());
        String nccl = NativeLibraries.nccl().library().path();
        if (!nccl.startsWith(built.toString())) {
            throw new AssertionError(nccl + " is not the fake: this JVM used NCCL before");
        }
        if (steered || caller(UsesFakes.class)) {
            reset();
        }
    }

    /** Whether a method or class that called the caller has an annotation. */
    private static boolean caller(Class<? extends Annotation> annotation) {
        return StackWalker.getInstance(StackWalker.Option.RETAIN_CLASS_REFERENCE)
                .walk(frames -> frames.anyMatch(frame -> has(frame, annotation)));
    }

    private static boolean has(
            StackWalker.StackFrame frame, Class<? extends Annotation> annotation) {
        Class<?> type = frame.getDeclaringClass();
        return type.isAnnotationPresent(annotation)
                || Arrays.stream(type.getDeclaredMethods())
                        .anyMatch(m ->
                                m.getName().equals(frame.getMethodName())
                                        && m.isAnnotationPresent(annotation));
    }

    /** JVM flags by which a child process finds the fakes. */
    public static List<String> flags() {
        return FakeBuild.jvmFlags();
    }

    /** Adds rules of what goes wrong: {@code function[@rank]:which:action}, see src/test/c. */
    public static void inject(String rules) {
        if (steer("inject:" + rules) < 1) {
            throw new AssertionError("the fake does not understand the rules " + rules);
        }
    }

    /** Removes all rules, and ends hangs and sticky errors. */
    public static void reset() {
        if (GPU) {
            return;
        }
        command("clear:");
        command("release:");
        command("sticky:0");
        command("mismatch_hangs:0");
        command("capability:90");
        command("threads_reversed:0");
        steered = false;
    }

    /** From now on kernels on this device alone run their blocks and threads in reverse order. */
    public static void threadsReversed(int device) {
        command("threads_reversed:" + (1 << device));
    }

    /** The compute capability of all devices from now on, times 10; {@link #reset} makes it 90. */
    public static void capability(int tenfold) {
        steer("capability:" + tenfold);
    }

    /** Of which devices this process has a context: bit d for device d. */
    public static int contexts() {
        return command("contexts");
    }

    /** From now on ranks that disagree hang, as they do with the real NCCL. */
    public static void mismatchHangs() {
        steer("mismatch_hangs:1");
    }

    /** From now on every call of CUDA returns an error. */
    public static void sticky(int error) {
        steer("sticky:" + error);
    }

    /**
     * How many objects of a kind there are, such as {@code streams}, or {@code all}; on a GPU 0,
     * since nobody counts them there.
     */
    public static long live(String kind) {
        return GPU ? 0 : command("live:" + kind);
    }

    /** Checks that, except on a GPU. */
    public static void assertLive(long expected, String kind) {
        if (!GPU) {
            assertEquals(expected, live(kind), kind);
        }
    }

    /** The same, and waits for what is freed in the order of a stream or on another thread. */
    public static void awaitLive(long expected, String kind) throws InterruptedException {
        for (int i = 0; i < 2000 && live(kind) != expected; i++) {
            Thread.sleep(5);
        }
        assertEquals(expected, live(kind), kind);
    }

    /** How often a function was called. */
    public static long calls(String function) {
        return command("calls:" + function);
    }

    private static int steer(String text) {
        steered = true;
        return command(text);
    }

    private static int command(String text) {
        if (GPU) {
            // Only here, since processes that run commands have no JUnit.
            Assumptions.abort("on a GPU nobody answers " + text);
        }
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
