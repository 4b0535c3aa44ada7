package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import java.util.List;

/**
 * A JVM whose only rank is on device 2, of compute capability 8.0, and whose NCCL has neither
 * windows nor registered memory.
 */
public final class NcclMachineWorker {
    private static final int DEVICE = 2;

    private NcclMachineWorker() {}

    /**
     * Prints {@code MACHINE ok}, or what is wrong.
     *
     * @param args none
     */
    public static void main(String[] args) {
        try {
            Device device = Cuda.device(DEVICE);
            Communicator c = Communicator.local(List.of(device), NcclRanks.OPTIONS).getFirst();
            try (Buffer eighths = device.allocate(DataType.FLOAT8E4M3, 4096)) {
                refusals(c, eighths);
            }
            everyThread(c);
            c.close();
            if (TestFake.contexts() != 1 << DEVICE) {
                throw new AssertionError("contexts: " + Long.toBinaryString(TestFake.contexts()));
            }
            System.out.println("MACHINE ok");
        } catch (Throwable t) {
            t.printStackTrace(System.out);
            System.out.println("MACHINE " + t);
        }
    }

    private interface Call {
        void make();
    }

    /** Each leaves the communicator usable. */
    private static void refusals(Communicator c, Buffer eighths) {
        Stream stream = c.device().defaultStream();
        refused(c, () -> c.allReduce(eighths, ReduceOp.SUM, stream), "8.0", "9.0", "bfloat16");
        refused(
                c,
                () -> Group.run(c, () -> c.allReduce(eighths, ReduceOp.SUM, stream)),
                "8.0",
                "9.0");
        c.broadcast(eighths, 0, stream);
        stream.synchronize(NcclRanks.PATIENCE);
        NcclCommunicator nccl = NcclRanks.nccl(c);
        refused(c, () -> nccl.register(eighths), "NCCL_LOCAL_REGISTER=0");
        Buffer aligned = Cuda.allocateForNccl(c.device(), DataType.UINT8, 8192);
        refused(c, () -> nccl.window(aligned, true), "NCCL_CUMEM_ENABLE=0", "symmetric");
        aligned.close();
    }

    private static void refused(Communicator c, Call call, String... words) {
        try {
            call.make();
        } catch (UnsupportedOperationException e) {
            for (String word : words) {
                if (!String.valueOf(e.getMessage()).contains(word)) {
                    throw new AssertionError("'" + e.getMessage() + "' lacks " + word, e);
                }
            }
            if (NcclRanks.sum(c, 7) != 7) {
                throw new AssertionError("unusable after " + e);
            }
            return;
        }
        throw new AssertionError("not refused, expected " + String.join(", ", words));
    }

    /** Threads that never chose a device. */
    private static void everyThread(Communicator c) {
        NcclRanks.each(
                List.of(0, 1),
                i -> {
                    Stream stream = c.device().defaultStream();
                    if (i == 0) {
                        stream.query();
                        stream.synchronize(NcclRanks.PATIENCE);
                    } else {
                        try (var event = c.device().newEvent()) {
                            event.query();
                        }
                    }
                });
    }
}
