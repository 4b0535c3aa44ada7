package io.jccl.bindings;

import io.jccl.bindings.generated.cudart.cudart_h;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.util.Optional;

/**
 * The CUDA driver's functions, as returned by the CUDA runtime. The runtime opens the driver
 * itself, so nothing is searched for, and the process has one driver.
 *
 * <p><b>Threads:</b> any.
 */
final class DriverSymbols implements SymbolLookup {
    /** The runtime's answer. */
    private record Answer(int result, long address, int status) {}

    private final CudaApi runtime;

    DriverSymbols(CudaApi runtime) {
        this.runtime = runtime;
    }

    @Override
    public Optional<MemorySegment> find(String name) {
        Answer answer = ask(name);
        return answer.result == cudart_h.cudaSuccess() && answer.address != 0
                ? Optional.of(MemorySegment.ofAddress(answer.address))
                : Optional.empty();
    }

    /** Why {@link #find} has found nothing. */
    String whyNot(String name) {
        Answer answer = ask(name);
        if (answer.result != cudart_h.cudaSuccess()) {
            return name
                    + " is a function of the CUDA driver: "
                    + CudaException.of(runtime, answer.result, "cudaGetDriverEntryPoint")
                            .getMessage();
        }
        return name
                + (answer.status == cudart_h.cudaDriverEntryPointVersionNotSufficent()
                        ? " needs a newer CUDA runtime than "
                        : " is missing in the CUDA driver, which is older than 12.0; it was looked"
                                + " up by ")
                + runtime.library();
    }

    private Answer ask(String name) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment address = arena.allocate(ValueLayout.JAVA_LONG);
            MemorySegment status = arena.allocate(ValueLayout.JAVA_INT);
            // Per-thread default streams are never used.
            int result =
                    runtime.cudaGetDriverEntryPoint(
                            arena.allocateFrom(name),
                            address,
                            cudart_h.cudaEnableLegacyStream(),
                            status);
            if (result != cudart_h.cudaSuccess()) {
                runtime.cudaGetLastError();
            }
            return new Answer(
                    result,
                    address.get(ValueLayout.JAVA_LONG, 0),
                    status.get(ValueLayout.JAVA_INT, 0));
        }
    }
}
