package io.jccl.cli.doctor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.CudaApi;
import io.jccl.bindings.LoadedLibrary;
import io.jccl.bindings.NativeLibrary;
import io.jccl.bindings.NativeLibraryUnavailableException;
import io.jccl.bindings.Version;
import io.jccl.bindings.generated.cudart.cudart_h;
import io.jccl.cli.doctor.Facts.Cuda;
import io.jccl.cli.doctor.Facts.CudaDevice;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.List;
import org.junit.jupiter.api.Test;

class DoctorCudaTest {
    /** A CUDA runtime that answers the few questions that the doctor asks. */
    private static CudaApi cuda(int driver, int countResult, int devices) {
        InvocationHandler script =
                (proxy, method, args) ->
                        switch (method.getName()) {
                            case "cudaDriverGetVersion" -> set(args[0], driver, 0);
                            case "cudaGetDeviceCount" -> set(args[0], devices, countResult);
                            case "cudaGetDeviceProperties" -> {
                                ((MemorySegment) args[0]).setString(0, "GPU " + args[1]);
                                yield 0;
                            }
                            case "cudaDeviceGetPCIBusId" -> {
                                ((MemorySegment) args[0])
                                        .setString(0, "0000:0" + args[2] + ":00.0");
                                yield 0;
                            }
                            case "cudaGetErrorName" -> "cudaErrorFoo";
                            case "cudaGetErrorString" -> "foo went wrong";
                            case "library" ->
                                    new LoadedLibrary(
                                            NativeLibrary.CUDART, Version.of("13.0"), "/x", "y");
                            default -> InvocationHandler.invokeDefault(proxy, method, args);
                        };
        return (CudaApi)
                Proxy.newProxyInstance(
                        CudaApi.class.getClassLoader(), new Class<?>[] {CudaApi.class}, script);
    }

    private static int set(Object out, int value, int result) {
        ((MemorySegment) out).set(ValueLayout.JAVA_INT, 0, value);
        return result;
    }

    private static String reason(CudaApi cuda) {
        return assertInstanceOf(Reading.Unknown.class, new CudaGpuProbe(() -> cuda).ask()).reason();
    }

    @Test
    void listsDevices() {
        assertEquals(
                Reading.known(
                        new Cuda(
                                Version.of("12.4"),
                                List.of(
                                        new CudaDevice(0, "GPU 0", "0000:00:00.0"),
                                        new CudaDevice(1, "GPU 1", "0000:01:00.0")))),
                new CudaGpuProbe(() -> cuda(12040, 0, 2)).ask());
    }

    @Test
    void aDriverWithoutDevices() {
        assertEquals(
                Reading.known(new Cuda(Version.of("13.0"), List.of())),
                new CudaGpuProbe(() -> cuda(13000, cudart_h.cudaErrorNoDevice(), 0)).ask());
    }

    @Test
    void errorsAreExplained() {
        assertEquals("no CUDA driver is installed", reason(cuda(0, 0, 0)));
        String said = reason(cuda(11040, cudart_h.cudaErrorInsufficientDriver(), 0));
        assertTrue(said.contains("cudaErrorFoo"), said);
        assertTrue(said.endsWith("; the driver serves CUDA 11.4"), said);
    }

    @Test
    void theMissingRuntimeIsToldElsewhere() {
        GpuProbe probe =
                new CudaGpuProbe(() -> {
                    throw new NativeLibraryUnavailableException("a long\nlist of places");
                });
        assertEquals(
                "the CUDA runtime is not usable, see Libraries",
                assertInstanceOf(Reading.Unknown.class, probe.ask()).reason());
    }
}
