package io.jccl.spark;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.RankFailedException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import scala.Option;

/** In a task without a cluster; LocalClusterTest has real ones. */
@Tag("exhaustive")
@Timeout(value = 60, unit = TimeUnit.SECONDS, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TaskGuardTest {
    /** A communicator that has ended can still be shrunk. */
    @Test
    void whatAKilledTaskMakesIsAbortedToo() {
        Communicator.runLocal(
                1,
                comm -> {
                    TaskContextImpl task = TaskContext$.MODULE$.empty();
                    SparkCommunicator.tie(task, comm);
                    task.markInterrupted("not needed");
                    awaitAbort(comm);
                    awaitAbort(comm.shrink(List.of(), true));
                    task.markTaskCompleted(Option.empty());
                });
    }

    private static void awaitAbort(Communicator comm) throws InterruptedException {
        try {
            while (true) {
                comm.barrier(comm.device().defaultStream());
                Thread.sleep(1);
            }
        } catch (RankFailedException e) {
            assertTrue(String.valueOf(e.getMessage()).contains("not needed"), e::getMessage);
        }
    }
}
