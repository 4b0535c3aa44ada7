package io.jccl.provider;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.DeviceProvider;
import io.jccl.device.Graph;
import io.jccl.device.Stream;
import io.jccl.device.cuda.CudaBuffer;
import io.jccl.device.cuda.CudaDevice;
import io.jccl.device.cuda.CudaGraph;
import io.jccl.device.cuda.CudaMemory;
import io.jccl.device.cuda.CudaStream;
import io.jccl.device.host.HostBuffer;
import io.jccl.device.host.HostDevice;
import java.lang.foreign.MemorySegment;

/** The available kinds of device. CUDA is loaded only when it is first requested. */
public final class Devices implements DeviceProvider {
    @Override
    public Device host() {
        return HostDevice.local();
    }

    @Override
    public Buffer wrap(MemorySegment memory, DataType type) {
        return HostBuffer.wrap(memory, type);
    }

    @Override
    public Buffer wrapAddress(long address, DataType type, long count) {
        return HostBuffer.wrapAddress(address, type, count);
    }

    @Override
    public Graph capture(Stream stream, Runnable body) {
        return CudaGraph.capture(stream, body);
    }

    @Override
    public CudaProvider cuda() {
        return new CudaDevices();
    }

    private static final class CudaDevices implements CudaProvider {
        @Override
        public int deviceCount() {
            return CudaDevice.count();
        }

        @Override
        public Device device(int index) {
            return CudaDevice.of(index);
        }

        @Override
        public Device view(int index) {
            return CudaDevice.view(index);
        }

        @Override
        public Cuda.DeviceInfo info(Device device) {
            return CudaMemory.info(CudaDevice.of(device));
        }

        @Override
        public long freeMemory(Device device) {
            return CudaDevice.of(device).freeMemory();
        }

        @Override
        public Buffer allocateAsync(Stream stream, DataType type, long count) {
            return CudaBuffer.allocateAsync(stream(stream), type, count);
        }

        @Override
        public Buffer allocateForNccl(Device device, DataType type, long count) {
            return CudaMemory.allocateForNccl(CudaDevice.of(device), type, count);
        }

        @Override
        public Buffer pinned(DataType type, long count) {
            return CudaMemory.pinned(type, count);
        }

        @Override
        public Cuda.Pin pin(Buffer host) {
            return CudaMemory.pin(host);
        }

        @Override
        public boolean isPinned(Buffer host) {
            return CudaMemory.isPinned(host);
        }

        @Override
        public boolean canAccessPeer(Device device, Device peer) {
            return CudaDevice.of(device).canAccess(CudaDevice.of(peer));
        }

        @Override
        public void enablePeerAccess(Device device, Device peer) {
            CudaDevice.of(device).enablePeerAccess(CudaDevice.of(peer));
        }

        @Override
        public Buffer wrapAddress(Device device, long address, DataType type, long count) {
            return CudaBuffer.wrapAddress(CudaDevice.of(device), address, type, count);
        }

        @Override
        public Stream wrapStream(Device device, long handle) {
            return CudaStream.wrap(CudaDevice.of(device), handle);
        }

        @Override
        public long streamHandle(Stream stream) {
            return stream(stream).handle();
        }

        private static CudaStream stream(Stream stream) {
            return CudaStream.of(stream, CudaDevice.of(stream.device()));
        }
    }
}
