package io.jccl.device.cuda;

import io.jccl.bindings.CudaDriverApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.generated.cuda.cuda_h;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.error.JcclException;
import java.util.List;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * A kernel of an image that this library contains (collectives/src/main/cuda).
 *
 * <p>An image is a set of files: cubins for some compute capabilities, and PTX for all others,
 * which the driver translates for the device. That happens when a kernel is requested rather than
 * at its first launch, which may be captured. The system property {@code jccl.kernels}, or the
 * variable {@code JCCL_KERNELS}, with the value {@code ptx} leaves the cubins out.
 *
 * <p><b>Threads:</b> any.
 */
public final class CudaKernel {
    /** Block size of every kernel, as in kernel.h. */
    public static final int BLOCK = 256;

    /** An image. */
    public enum Image {
        /** For any device. */
        KERNELS("kernels", 70),
        /** For those with tensor cores for bfloat16. */
        TENSOR("tensor", 80);

        private final String title;

        /** Ten times the compute capability that the PTX requires. */
        private final int oldest;

        private final KernelImage ptx;
        private final List<KernelImage> cubins;

        Image(String title, int oldest) {
            this.title = title;
            this.oldest = oldest;
            this.ptx = KernelImage.ptx(title);
            // Those that regenerate.sh generates.
            this.cubins =
                    Stream.of(80, 90, 100)
                            .map(architecture -> KernelImage.cubin(title, architecture))
                            .toList();
        }

        /** Whether a device is new enough for it. */
        public boolean runsOn(CudaDevice device) {
            return device.computeCapability() >= oldest;
        }

        /** The file for a device. */
        private KernelImage file(CudaDevice device) {
            int capability = device.computeCapability();
            for (KernelImage cubin : cubins) {
                if (cubin.runsOn(capability) && !isPtxWanted()) {
                    return cubin;
                }
            }
            return ptx;
        }

        private static boolean isPtxWanted() {
            String wanted = System.getProperty("jccl.kernels", System.getenv("JCCL_KERNELS"));
            if (wanted == null || wanted.isBlank() || wanted.equals("ptx")) {
                return Objects.equals(wanted, "ptx");
            }
            throw new JcclException(
                    "jccl.kernels or JCCL_KERNELS is '" + wanted + "', expected ptx or nothing");
        }
    }

    private final String name;
    private final String file;
    private final long handle;

    /** Devices on which it is loaded. */
    private final Set<Integer> ready = ConcurrentHashMap.newKeySet();

    CudaKernel(String name, String file, long handle) {
        this.name = name;
        this.file = file;
        this.handle = handle;
    }

    /**
     * A kernel, loaded on a device.
     *
     * @throws JcclException if the device is too old
     * @throws io.jccl.bindings.CudaException if CUDA rejects the image
     * @throws UnsupportedOperationException if there is no driver of CUDA 12.0 or newer
     */
    public static CudaKernel of(Image image, String name, CudaDevice device) {
        if (!image.runsOn(device)) {
            int has = device.computeCapability();
            throw new JcclException(
                    ("%s is of compute capability %s.%s, and JCCL's kernels in %s.ptx need %s.%s"
                                    + " or newer; compute on the host instead")
                            .formatted(
                                    device,
                                    has / 10,
                                    has % 10,
                                    image.title,
                                    image.oldest / 10,
                                    image.oldest % 10));
        }
        CudaKernel known = image.file(device).loaded(name, device);
        return known != null ? known : device.current(() -> load(image, name, device));
    }

    private static CudaKernel load(Image image, String name, CudaDevice device) {
        // The runtime leaves a thread without a context until it needs one; the driver needs it.
        device.bind();
        // Another library may be capturing the stream in a mode that forbids this.
        int mode = CudaRuntime.exchangeCaptureMode(cudart_h.cudaStreamCaptureModeRelaxed());
        try {
            @Nullable CudaKernel loaded;
            do {
                // If the driver refuses a cubin, the next file is another one.
                loaded = image.file(device).load(name, device);
            } while (loaded == null);
            return loaded;
        } finally {
            CudaRuntime.exchangeCaptureMode(mode);
        }
    }

    boolean isReady(CudaDevice device) {
        return ready.contains(device.index());
    }

    /** Whether it is loaded on a device. */
    boolean isUsed() {
        return !ready.isEmpty();
    }

    /** Loads it in the current context, that of a device. */
    void load(CudaDevice device) {
        if (isReady(device)) {
            return;
        }
        CudaDriverApi driver = NativeLibraries.cudaDriver();
        CudaRuntime.check(
                driver.cuKernelGetFunction(CudaRuntime.slot(), handle),
                "cuKernelGetFunction(" + this + " on " + device + ")");
        long function = CudaRuntime.readLong(CudaRuntime.slot());
        CudaRuntime.check(
                driver.cuFuncGetAttribute(
                        CudaRuntime.slot(),
                        cuda_h.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK(),
                        function),
                "cuFuncGetAttribute(" + this + " on " + device + ")");
        int most = CudaRuntime.readInt(CudaRuntime.slot());
        if (most < BLOCK) {
            throw new JcclException(
                    "kernel %s runs with blocks of at most %s threads on %s, expected %s"
                            .formatted(this, most, device, BLOCK));
        }
        ready.add(device.index());
    }

    /** Starts a launch from the calling thread; put the arguments in order, then run. */
    public KernelLaunch launch() {
        return KernelLaunch.begin(this);
    }

    /** A {@code CUkernel}, valid on every device on which it is loaded. */
    long handle() {
        return handle;
    }

    /** The name in the source. */
    String name() {
        return name;
    }

    @Override
    public String toString() {
        return name + " of " + file;
    }
}
