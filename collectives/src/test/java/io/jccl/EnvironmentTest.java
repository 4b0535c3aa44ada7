package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.engine.host.HostEngine;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What launchers' variables say, and when they say nothing that makes sense. */
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class EnvironmentTest {
    /** Variables, and what the message has to name. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "RANK=0 | RANK WORLD_SIZE",
                "WORLD_SIZE=2 | RANK WORLD_SIZE",
                "RANK=2 WORLD_SIZE=2 | RANK WORLD_SIZE 2",
                "RANK=7 WORLD_SIZE=2 | RANK WORLD_SIZE 7 2",
                "RANK=-1 WORLD_SIZE=2 | RANK -1",
                "RANK=0 WORLD_SIZE=0 | WORLD_SIZE 0",
                "RANK=0 WORLD_SIZE=-3 | WORLD_SIZE -3",
                "RANK=one WORLD_SIZE=2 | RANK one",
                "RANK=0 WORLD_SIZE=2.0 | WORLD_SIZE 2.0",
                "RANK=0 WORLD_SIZE=99999999999 | WORLD_SIZE 99999999999",
                "RANK=0 WORLD_SIZE=257 JCCL_JOB_ID=x | WORLD_SIZE 257 256",
                "RANK=0 WORLD_SIZE=2 | JCCL_JOB_ID",
                "RANK=0 WORLD_SIZE=2 JCCL_JOB_ID=a/b | a/b",
                "OMPI_COMM_WORLD_RANK=0 | OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=3 | OMPI_COMM_WORLD_RANK 3",
                "PMI_RANK=x PMI_SIZE=3 | PMI_RANK x",
                "SLURM_PROCID=4 SLURM_NTASKS=2 | SLURM_PROCID SLURM_NTASKS 4 2"
            })
    void contradictionsAreNamed(String variables, String named) {
        IllegalArgumentException error =
                assertThrows(
                        IllegalArgumentException.class,
                        () ->
                                HostEngine.fromEnvironment(
                                        map(variables), CommunicatorOptions.DEFAULT));
        String message = String.valueOf(error.getMessage());
        for (String word : named.split(" ", -1)) {
            assertTrue(message.contains(word), () -> "no '" + word + "' in: " + message);
        }
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "HOME=/nowhere | 0 of 1",
                "RANK=0 WORLD_SIZE=1 | 0 of 1",
                "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=h | 0 of 1",
                "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 | 0 of 1",
                "PMI_RANK=0 PMI_SIZE=1 | 0 of 1",
                "SLURM_PROCID=0 SLURM_NTASKS=1 | 0 of 1",
                "RANK=0 WORLD_SIZE=1 SLURM_PROCID=4 SLURM_NTASKS=9 | 0 of 1"
            })
    void oneRankNeedsNoOthers(String variables, String place) {
        try (Communicator comm =
                HostEngine.fromEnvironment(map(variables), CommunicatorOptions.DEFAULT)) {
            assertEquals(place, comm.rank() + " of " + comm.size());
            comm.barrier(comm.device().defaultStream());
        }
    }

    private static Map<String, String> map(String variables) {
        Map<String, String> map = new TreeMap<>();
        Arrays.stream(variables.split(" ", -1))
                .map(pair -> pair.split("=", 2))
                .forEach(pair -> map.put(pair[0], pair[1]));
        return map;
    }
}
