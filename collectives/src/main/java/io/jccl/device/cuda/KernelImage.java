package io.jccl.device.cuda;

import io.jccl.bindings.CudaDriverApi;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.generated.cuda.cuda_h;
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
import org.jspecify.annotations.Nullable;

/**
 * A file of compiled kernels: PTX, which the driver translates for a device, or a cubin, which runs
 * on devices of one major compute capability. Loaded once per process and never unloaded, unless
 * the driver refuses it.
 *
 * <p><b>Threads:</b> any; {@link #load} is synchronized.
 */
final class KernelImage {
    private static final System.Logger LOG = System.getLogger("io.jccl");

    /** What the driver returns for code that it cannot use; see cuda.h. */
    private static final Set<Integer> REFUSALS =
            Set.of(
                    cuda_h.CUDA_ERROR_INVALID_IMAGE(),
                    cuda_h.CUDA_ERROR_NO_BINARY_FOR_GPU(),
                    cuda_h.CUDA_ERROR_INVALID_PTX(),
                    cuda_h.CUDA_ERROR_UNSUPPORTED_PTX_VERSION(),
                    cuda_h.CUDA_ERROR_INVALID_SOURCE());

    private final String file;

    /** Ten times the compute capability that it is compiled for; 0 for PTX. */
    private final int architecture;

    private final Map<String, CudaKernel> kernels = new ConcurrentHashMap<>();

    /** The library's handle, 0 until it is loaded. */
    private long library;

    private volatile boolean refused;

    private KernelImage(String file, int architecture) {
        this.file = file;
        this.architecture = architecture;
    }

    static KernelImage ptx(String name) {
        return new KernelImage(name + ".ptx", 0);
    }

    static KernelImage cubin(String name, int architecture) {
        return new KernelImage(name + ".sm_" + architecture + ".cubin", architecture);
    }

    /**
     * Whether a device runs it: a cubin runs within its major compute capability, on its minor one
     * and higher ones (CUDA C++ Programming Guide, "Binary Compatibility").
     */
    boolean runsOn(int capability) {
        return architecture == 0
                || (!refused && architecture / 10 == capability / 10 && architecture <= capability);
    }

    /** A kernel that is loaded on a device, or null. */
    @Nullable CudaKernel loaded(String name, CudaDevice device) {
        CudaKernel known = kernels.get(name);
        return known != null && known.isReady(device) ? known : null;
    }

    /**
     * Loads a kernel on the current device, unless it is loaded.
     *
     * @return null if the driver refuses this cubin; it is then not used again
     */
    synchronized @Nullable CudaKernel load(String name, CudaDevice device) {
        try {
            CudaKernel kernel = find(name);
            kernel.load(device);
            return kernel;
        } catch (CudaException e) {
            if (architecture == 0 || !REFUSALS.contains(e.error())) {
                throw e;
            }
            refused = true;
            LOG.log(
                    System.Logger.Level.INFO,
                    () ->
                            ("the driver translates JCCL's kernels for %s from PTX, which takes"
                                            + " some time at their first use: %s")
                                    .formatted(device, e.getMessage()));
            // Kernels that are in use stay valid.
            if (library != 0 && kernels.values().stream().noneMatch(CudaKernel::isUsed)) {
                NativeLibraries.cudaDriver().cuLibraryUnload(library);
                kernels.clear();
                library = 0;
            }
            return null;
        }
    }

    private CudaKernel find(String name) {
        CudaKernel known = kernels.get(name);
        if (known == null) {
            CudaDriverApi driver = NativeLibraries.cudaDriver();
            try (Arena arena = Arena.ofConfined()) {
                MemorySegment slot = CudaRuntime.slot();
                if (library == 0) {
                    // CUDA keeps a copy.
                    CudaRuntime.check(
                            driver.cuLibraryLoadData(slot, read(arena), 0, 0, 0, 0, 0, 0),
                            "cuLibraryLoadData(" + file + ")");
                    library = CudaRuntime.readLong(slot);
                }
                CudaRuntime.check(
                        driver.cuLibraryGetKernel(slot, library, arena.allocateFrom(name)),
                        "cuLibraryGetKernel(" + name + " in " + file + ")");
                known = new CudaKernel(name, file, CudaRuntime.readLong(slot));
                kernels.put(name, known);
            }
        }
        return known;
    }

    /** The file, terminated by a zero byte, which PTX needs. */
    private MemorySegment read(Arena arena) {
        try (InputStream in = KernelImage.class.getResourceAsStream(file)) {
            byte[] code =
                    Objects.requireNonNull(in, file + " is missing from the jar").readAllBytes();
            MemorySegment to = arena.allocate(code.length + 1L, Long.BYTES);
            MemorySegment.copy(code, 0, to, ValueLayout.JAVA_BYTE, 0, code.length);
            return to;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
