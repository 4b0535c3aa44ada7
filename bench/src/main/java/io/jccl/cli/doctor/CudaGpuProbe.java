package io.jccl.cli.doctor;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.CudaException;
import io.jccl.bindings.NativeLibraryUnavailableException;
import io.jccl.bindings.Version;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.cli.doctor.Facts.Cuda;
import io.jccl.cli.doctor.Facts.CudaDevice;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;

/** Queries the CUDA runtime. */
final class CudaGpuProbe implements GpuProbe {
    /** Larger than the structure of any version, which begins with the device's name. */
    private static final int PROPERTIES_BYTES = 16 << 10;

    private static final int NAME_BYTES = 256;
    private static final int PCI_BYTES = 32;

    private final Supplier<CudaApi> cuda;

    CudaGpuProbe(Supplier<CudaApi> cuda) {
        this.cuda = cuda;
    }

    @Override
    public Reading<Cuda> ask() {
        CudaApi api;
        try {
            api = cuda.get();
        } catch (NativeLibraryUnavailableException e) {
            return Reading.unknown("the CUDA runtime is not usable, see Libraries");
        }
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment number = arena.allocate(ValueLayout.JAVA_INT);
            api.check(api.cudaDriverGetVersion(number), "cudaDriverGetVersion");
            int driver = number.get(ValueLayout.JAVA_INT, 0);
            // Without a driver this does not fail but returns version 0.
            if (driver == 0) {
                return Reading.unknown("no CUDA driver is installed");
            }
            Version version = Version.ofCuda(driver);
            int result = api.cudaGetDeviceCount(number);
            if (result == cudart_h.cudaErrorNoDevice()) {
                return Reading.known(new Cuda(version, List.of()));
            }
            if (result != cudart_h.cudaSuccess()) {
                return Reading.unknown(
                        Bounded.reason(CudaException.of(api, result, "cudaGetDeviceCount"))
                                + "; the driver serves CUDA "
                                + version);
            }
            List<CudaDevice> devices = new ArrayList<>();
            for (int d = 0, n = number.get(ValueLayout.JAVA_INT, 0); d < n; d++) {
                devices.add(device(api, arena, d));
            }
            return Reading.known(new Cuda(version, List.copyOf(devices)));
        }
    }

    private static CudaDevice device(CudaApi api, Arena arena, int device) {
        MemorySegment properties = arena.allocate(PROPERTIES_BYTES, Long.BYTES);
        api.check(api.cudaGetDeviceProperties(properties, device), "cudaGetDeviceProperties");
        MemorySegment pci = arena.allocate(PCI_BYTES);
        api.check(api.cudaDeviceGetPCIBusId(pci, PCI_BYTES, device), "cudaDeviceGetPCIBusId");
        return new CudaDevice(device, text(properties, NAME_BYTES), text(pci, PCI_BYTES));
    }

    /** The text up to the terminating zero, if there is one. */
    private static String text(MemorySegment from, int longest) {
        byte[] bytes = from.asSlice(0, longest).toArray(ValueLayout.JAVA_BYTE);
        int end = 0;
        while (end < bytes.length && bytes[end] != 0) {
            end++;
        }
        return new String(bytes, 0, end, StandardCharsets.UTF_8);
    }
}
