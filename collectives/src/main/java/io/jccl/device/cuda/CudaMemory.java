package io.jccl.device.cuda;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.NativeLibraries;
import io.jccl.bindings.NcclApi;
import io.jccl.bindings.NcclException;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.host.HostBuffer;
import io.jccl.device.host.HostDevice;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;

/** Memory of kinds other than {@code cudaMalloc}'s; see {@link io.jccl.device.Cuda}. */
public final class CudaMemory {
    private CudaMemory() {}

    /** Larger than {@code cudaDeviceProp} of any version; the name is its first field in all. */
    private static final int PROPERTIES_BYTES = 8192;

    /** See {@link io.jccl.device.Cuda#info}. */
    public static Cuda.DeviceInfo info(CudaDevice device) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment properties = arena.allocate(PROPERTIES_BYTES, 8);
            CudaRuntime.check(
                    CudaRuntime.api().cudaGetDeviceProperties(properties, device.index()),
                    "cudaGetDeviceProperties");
            return new Cuda.DeviceInfo(
                    properties.getString(0),
                    device.pciBusId(),
                    device.attribute(cudart_h.cudaDevAttrComputeCapabilityMajor()),
                    device.attribute(cudart_h.cudaDevAttrComputeCapabilityMinor()),
                    device.totalMemory(),
                    device.attribute(cudart_h.cudaDevAttrL2CacheSize()));
        }
    }

    /** See {@link io.jccl.device.Cuda#allocateForNccl}. */
    public static Buffer allocateForNccl(CudaDevice device, DataType type, long count) {
        long bytes = Math.max(HostDevice.bytes(type, count), 1);
        NcclApi nccl = NativeLibraries.nccl();
        long address =
                device.current(() -> {
                    MemorySegment slot = CudaRuntime.slot();
                    int result = nccl.ncclMemAlloc(slot, bytes);
                    if (result != nccl_h.ncclSuccess()) {
                        throw new NcclException(
                                result,
                                "ncclMemAlloc",
                                "%s; it was asked for %s bytes on %s, %s"
                                        .formatted(
                                                NcclException.of(nccl, result, "ncclMemAlloc", 0)
                                                        .getMessage(),
                                                bytes,
                                                device,
                                                device.memory()));
                    }
                    return CudaRuntime.readLong(slot);
                });
        return CudaBuffer.owned(
                device,
                address,
                type,
                count,
                at ->
                        DeferredFree.call(
                                device.index(),
                                () -> nccl.check(nccl.ncclMemFree(at), "ncclMemFree", 0)));
    }

    /** See {@link io.jccl.device.Cuda#pinned}. */
    public static Buffer pinned(DataType type, long count) {
        long bytes = HostDevice.bytes(type, count);
        MemorySegment memory = CudaDevice.allocatePinned(bytes);
        int current = DeferredFree.currentDevice();
        return HostBuffer.owning(
                        memory,
                        type,
                        count,
                        () ->
                                DeferredFree.call(
                                        current,
                                        () ->
                                                CudaRuntime.check(
                                                        CudaRuntime.api()
                                                                .cudaFreeHost(memory.address()),
                                                        "cudaFreeHost")))
                .zero();
    }

    /** See {@link io.jccl.device.Cuda#isPinned}. */
    public static boolean isPinned(Buffer host) {
        if (Objects.requireNonNull(host, "host").device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(host + " is device memory, expected host memory");
        }
        MemorySegment memory = host.asSegment();
        if (!memory.isNative() || memory.byteSize() == 0) {
            return false;
        }
        // A registration may cover only a part.
        return isHost(memory.address()) && isHost(memory.address() + memory.byteSize() - 1);
    }

    private static boolean isHost(long address) {
        int type = Memory.at(address).type();
        return type == cudart_h.cudaMemoryTypeHost() || type == cudart_h.cudaMemoryTypeManaged();
    }

    /** See {@link io.jccl.device.Cuda#pin}. */
    public static Cuda.Pin pin(Buffer host) {
        if (Objects.requireNonNull(host, "host").device().kind() != Device.Kind.HOST
                || !host.asSegment().isNative()) {
            throw new IllegalArgumentException(
                    host + " cannot be pinned: expected host memory outside the Java heap");
        }
        if (host.count() == 0) {
            return () -> {};
        }
        CudaApi api = CudaRuntime.api();
        long address = host.address();
        CudaRuntime.check(
                api.cudaHostRegister(address, host.byteSize(), cudart_h.cudaHostRegisterPortable()),
                "cudaHostRegister(" + host.byteSize() + " bytes)");
        AtomicBoolean pinned = new AtomicBoolean(true);
        return () -> {
            if (pinned.compareAndSet(true, false)) {
                // Waits for the device, not as DeferredFree does: the owner may free the memory
                // next.
                CudaRuntime.check(api.cudaHostUnregister(address), "cudaHostUnregister");
            }
        };
    }
}
