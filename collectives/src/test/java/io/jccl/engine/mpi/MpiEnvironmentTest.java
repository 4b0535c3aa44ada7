package io.jccl.engine.mpi;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.error.JcclException;
import io.jccl.testkit.Messages;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** When a process may be the only one of MPI. */
class MpiEnvironmentTest {
    private static Map<String, String> map(String variables) {
        return Arrays.stream(variables.split(" ", -1))
                .map(pair -> pair.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
    }

    @ParameterizedTest
    @CsvSource({
        "OMPI_COMM_WORLD_SIZE=2, OMPI_COMM_WORLD_SIZE, MPI_HOME",
        "PMI_RANK=0 PMI_SIZE=3, PMI_SIZE, MPI_HOME",
        "RANK=0 WORLD_SIZE=2, WORLD_SIZE, another engine",
        "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0, SLURM_NTASKS, srun --mpi=pmix",
        "SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2,"
                + " SLURM_STEP_NUM_TASKS, srun --mpi=pmix",
    })
    void oneOfSeveralIsRefused(String variables, String named, String remedy) {
        String message =
                Messages.of(
                        JcclException.class,
                        () -> MpiEnvironment.checkLauncher(map(variables), "this MPI", 1));
        for (String word : new String[] {"(" + named + ")", "this MPI sees only", remedy}) {
            assertTrue(message.contains(word), message);
        }
    }

    @ParameterizedTest
    @ValueSource(
            strings = {
                "HOME=/",
                "RANK=0 WORLD_SIZE=1",
                "WORLD_SIZE=8",
                // a batch script, the same with mpirun in it, and a step of one task
                "SLURM_PROCID=0 SLURM_NTASKS=4",
                "SLURM_PROCID=0 SLURM_NTASKS=4 OMPI_COMM_WORLD_SIZE=1",
                "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=1",
                "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0 PMI_SIZE=1",
            })
    void oneAloneMayStart(String variables) {
        MpiEnvironment.checkLauncher(map(variables), "this MPI", 1);
    }

    /** Variables of a launcher further out do not matter. */
    @ParameterizedTest
    @ValueSource(strings = {"RANK=0 WORLD_SIZE=3", "PMI_SIZE=4"})
    void severalMayStart(String variables) {
        MpiEnvironment.checkLauncher(map(variables), "this MPI", 2);
    }
}
