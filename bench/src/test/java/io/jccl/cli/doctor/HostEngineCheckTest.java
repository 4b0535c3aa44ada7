package io.jccl.cli.doctor;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class HostEngineCheckTest {
    /** No job starts there, though a small file can be made. */
    @Test
    void aFileSystemTooSmallForAJobFails(@TempDir Path folder) throws Exception {
        List<String> mount =
                List.of("mount", "-t", "tmpfs", "-o", "size=64k", "jccl-test", folder.toString());
        assumeTrue(status(mount) == 0, "mounting a tmpfs is not permitted here");
        try {
            assertThrows(IOException.class, () -> HostEngineCheck.processes(Reading.known(folder)));
        } finally {
            status(List.of("umount", folder.toString()));
        }
    }

    private static int status(List<String> command) throws Exception {
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        process.inputReader().readAllAsString();
        return process.waitFor();
    }
}
