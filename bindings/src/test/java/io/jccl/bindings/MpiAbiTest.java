package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** The table of binary interfaces against what a C compiler makes of each {@code mpi.h}. */
@Timeout(value = 3, unit = TimeUnit.MINUTES)
class MpiAbiTest {
    @TempDir Path folder;

    @Test
    void openMpi() {
        check(MpiAbi.OPEN_MPI, flagsOf("mpicc.openmpi", "openmpi", Need.MPI));
    }

    @Test
    void mpich() {
        check(MpiAbi.MPICH, flagsOf("mpicc.mpich", "mpich", Need.MPICH));
    }

    /** There is no package with the standard's header yet; the variable names its folder. */
    @Test
    void standard() {
        String include = System.getenv("MPI_ABI_INCLUDE");
        Assumptions.assumeTrue(
                include != null, "MPI_ABI_INCLUDE names no folder with the standard ABI's mpi.h");
        check(MpiAbi.STANDARD, List.of("-I" + include));
    }

    @Test
    void unknownNamesAreRefused() {
        assertThrows(IllegalArgumentException.class, () -> MpiAbi.MPICH.constant("MPI_NONE"));
        assertThrows(
                IllegalArgumentException.class, () -> MpiAbi.OPEN_MPI.constant("MPI_COMM_WORLD"));
    }

    private static List<String> flagsOf(String wrapper, String kind, Need need) {
        CCompiler.find();
        if (CCompiler.onPath(wrapper).isEmpty()) {
            throw need.absent("no " + wrapper + " on the PATH");
        }
        boolean open = kind.equals("openmpi");
        String ask = open ? "-showme:compile" : "-compile_info";
        String text = CCompiler.start(List.of(wrapper, ask)).output();
        return List.of(text.split("\\s+", -1)).stream()
                .filter(word -> word.startsWith("-I"))
                .toList();
    }

    private void check(MpiAbi abi, List<String> flags) {
        Map<String, String> expected = new TreeMap<>();
        StringBuilder program =
                new StringBuilder("#include <mpi.h>\n#include <stdint.h>\n#include <stdio.h>\n")
                        .append("#include <stddef.h>\nint main(void) {\n");
        for (String name : MpiAbi.names()) {
            if (!abi.isSymbol(name)) {
                expected.put(name, Long.toString(abi.constant(name)));
                program.append(
                        "printf(\"%s %%lld\\n\", (long long) (intptr_t) (%s));\n"
                                .formatted(name, name));
            }
        }
        expected.put("width", Integer.toString(abi.handleBytes()));
        program.append("printf(\"width %d\\n\", (int) sizeof(MPI_Comm));\nreturn 0;\n}\n");
        Map<String, String> printed = new TreeMap<>();
        for (String line :
                new CCompiler(folder).run(abi + "_constants", program.toString(), flags)) {
            int space = line.lastIndexOf(' ');
            printed.put(line.substring(0, space), line.substring(space + 1));
        }
        assertEquals(printed, expected);
    }
}
