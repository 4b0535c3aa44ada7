package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.generated.cudart.cudaFuncAttributes;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.error.JcclException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A kernel of an image that this library contains (collectives/src/main/cuda).
 *
 * <p>An image is loaded once per process and never unloaded. It is PTX, which the driver compiles
 * for each device on which a kernel is requested. That happens here rather than at the first
 * launch, which may be captured.
 *
 * <p><b>Threads:</b> any.
 */
public final class CudaKernel {
    /** Block size of every kernel, as in kernel.h. */
    public static final int BLOCK = 256;

    /** An image, with what its first lines declare. */
    public enum Image {
        /** For any device. */
        KERNELS("kernels.ptx", "6.0", 70),
        /** For those with tensor cores for bfloat16. */
        TENSOR("tensor.ptx", "7.0", 80);

        private final String file;
        private final String isa;

        /** Ten times the compute capability that it requires. */
        private final int oldest;

        /** The library's handle, 0 until it is loaded; guarded by the class of kernels. */
        private long library;

        Image(String file, String isa, int oldest) {
            this.file = file;
            this.isa = isa;
            this.oldest = oldest;
        }

        /** Whether a device is new enough for it. */
        public boolean runsOn(CudaDevice device) {
            return device.computeCapability() >= oldest;
        }
    }

    private static final Map<String, CudaKernel> KNOWN = new ConcurrentHashMap<>();

    private final String name;
    private final long handle;

    /** Devices on which it is loaded. */
    private final Set<Integer> ready = ConcurrentHashMap.newKeySet();

    private CudaKernel(String name, long handle) {
        this.name = name;
        this.handle = handle;
    }

    /**
     * A kernel, loaded on a device.
     *
     * @throws JcclException if the device is too old
     * @throws io.jccl.bindings.CudaException if CUDA rejects the image
     * @throws UnsupportedOperationException if the CUDA runtime is older than 12.8
     */
    public static CudaKernel of(Image image, String name, CudaDevice device) {
        CudaKernel known = KNOWN.get(name);
        if (known != null && known.ready.contains(device.index())) {
            return known;
        }
        if (!image.runsOn(device)) {
            int has = device.computeCapability();
            throw new JcclException(
                    device
                            + " is of compute capability "
                            + has / 10
                            + "."
                            + has % 10
                            + ", and JCCL's kernels in "
                            + image.file
                            + " need "
                            + image.oldest / 10
                            + "."
                            + image.oldest % 10
                            + " or newer; compute on the host instead");
        }
        return device.current(() -> {
            int mode = CudaBuffer.exchangeCaptureMode(cudart_h.cudaStreamCaptureModeRelaxed());
            try {
                CudaKernel k = find(image, name);
                k.load(device);
                return k;
            } finally {
                CudaBuffer.exchangeCaptureMode(mode);
            }
        });
    }

    private static synchronized CudaKernel find(Image image, String name) {
        CudaKernel known = KNOWN.get(name);
        if (known == null) {
            CudaApi api = CudaRuntime.api();
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment slot = CudaRuntime.slot();
                if (image.library == 0) {
                    // CUDA keeps a copy.
                    MemorySegment code = read(image, arena);
                    CudaRuntime.check(
                            api.cudaLibraryLoadData(slot, code, 0, 0, 0, 0, 0, 0),
                            "cudaLibraryLoadData("
                                    + image.file
                                    + ", PTX ISA "
                                    + image.isa
                                    + " for sm_"
                                    + image.oldest
                                    + ")");
                    image.library = CudaRuntime.readLong(slot);
                }
                CudaRuntime.check(
                        api.cudaLibraryGetKernel(slot, image.library, arena.allocateFrom(name)),
                        "cudaLibraryGetKernel(" + name + ")");
                known = new CudaKernel(name, CudaRuntime.readLong(slot));
                KNOWN.put(name, known);
            }
        }
        return known;
    }

    /** An image, terminated by a zero byte. */
    private static MemorySegment read(Image image, Arena arena) {
        try (InputStream in = CudaKernel.class.getResourceAsStream(image.file)) {
            byte[] code =
                    Objects.requireNonNull(in, image.file + " is missing from the jar")
                            .readAllBytes();
            MemorySegment to = arena.allocate(code.length + 1L);
            MemorySegment.copy(code, 0, to, ValueLayout.JAVA_BYTE, 0, code.length);
            return to;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Makes the driver compile it for the current device, by querying an attribute. */
    private void load(CudaDevice device) {
        if (ready.contains(device.index())) {
            return;
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment attributes = arena.allocate(cudaFuncAttributes.layout());
            CudaRuntime.check(
                    CudaRuntime.api().cudaFuncGetAttributes(attributes, handle),
                    "cudaFuncGetAttributes(" + name + " on " + device + ")");
            int most = cudaFuncAttributes.maxThreadsPerBlock(attributes);
            if (most < BLOCK) {
                throw new JcclException(
                        "kernel "
                                + name
                                + " runs with blocks of at most "
                                + most
                                + " threads on "
                                + device
                                + ", expected "
                                + BLOCK);
            }
            ready.add(device.index());
        }
    }

    /** Starts a launch from the calling thread; put the arguments in order, then run. */
    public KernelLaunch launch() {
        return KernelLaunch.begin(this);
    }

    long handle() {
        return handle;
    }

    @Override
    public String toString() {
        return name;
    }
}
