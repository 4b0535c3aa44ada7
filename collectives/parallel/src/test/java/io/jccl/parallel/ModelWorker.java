package io.jccl.parallel;

import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/** A rank as a process that uses split layers and pipelines. */
final class ModelWorker {
    private ModelWorker() {}

    /**
     * Runs one rank.
     *
     * @param args what to do, the timeout in seconds, a seed
     */
    public static void main(String[] args) {
        CommunicatorOptions options =
                CommunicatorOptions.DEFAULT.withTimeout(
                        Duration.ofSeconds(Long.parseLong(args[1])));
        long seed = Long.parseLong(args[2]);
        try (Communicator comm =
                args[0].startsWith("mpi")
                        ? Communicator.mpi(options)
                        : Communicator.fromEnvironment(device(args[0]), options)) {
            if (args[0].equals("endless")) {
                endless(comm);
            }
            LinearRanks.check(comm, seed, 10);
            for (PipelineSchedule schedule : PipelineSchedule.values()) {
                PipelineReport report = PipelineRanks.check(comm, schedule, 5, seed);
                if (report.stages().size() != comm.size()) {
                    throw new AssertionError(report);
                }
            }
            System.out.println("OK " + comm.rank() + " of " + comm.size() + " " + comm.engine());
        } catch (RuntimeException e) {
            System.out.println(
                    "ERROR "
                            + e.getClass().getSimpleName()
                            + " "
                            + String.valueOf(e.getMessage()).replace('\n', ' '));
        }
    }

    private static Device device(String what) {
        return what.equals("cuda")
                ? Cuda.device(Integer.parseInt(System.getenv("LOCAL_RANK")))
                : Device.host();
    }

    /** A pipeline that runs until somebody ends it. */
    private static void endless(Communicator comm) {
        PipelineStage stage =
                new PipelineStage() {
                    @Override
                    public void forward(
                            int i, @Nullable Buffer in, @Nullable Buffer out, Stream stream) {
                        if (out != null) {
                            out.set(0, i);
                        }
                    }

                    @Override
                    public void backward(
                            int i, @Nullable Buffer dy, @Nullable Buffer dx, Stream stream) {
                        if (dx != null) {
                            dx.set(0, i);
                        }
                    }
                };
        var options = PipelineOptions.of(4, DataType.FLOAT32, 50_000);
        try (Pipeline pipeline = Pipeline.create(comm, stage, options)) {
            for (int i = 0; ; i++) {
                pipeline.run();
                if (i == 20) {
                    System.out.println("RUNNING");
                }
            }
        }
    }
}
