package io.jccl;

import io.jccl.contract.Case;
import io.jccl.contract.RankLoop.Failure;
import io.jccl.testkit.MpiLauncher;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;

/** The contract on a library with MPI's standard binary interface: a layer of ours over MPICH. */
@Tag("exhaustive")
class StandardAbiEngineTest extends MpiEngineTest {
    private String library = "";

    @Override
    protected MpiLauncher launcher() {
        return MpiLauncher.MPICH;
    }

    @Override
    protected List<Failure> run(int ranks, List<Case> cases) throws IOException {
        launcher().assume();
        Path file = folder.resolve("libmpi_abi.so.1");
        if (!Files.exists(file)) {
            compile(file);
        }
        library = file.toString();
        return super.run(ranks, cases);
    }

    private void compile(Path file) throws IOException {
        Path here = Path.of("").toAbsolutePath();
        Path module = here.endsWith("collectives") ? here : here.resolve("collectives");
        Path source = module.resolve("src/test/c/mpi_abi_layer.c");
        Process compiler =
                new ProcessBuilder(
                                launcher().compiler(),
                                "-shared",
                                "-fPIC",
                                "-Wno-int-to-pointer-cast",
                                "-Wno-pointer-to-int-cast",
                                "-Wl,-soname,libmpi_abi.so.1",
                                "-o",
                                file.toString(),
                                source.toString())
                        .redirectErrorStream(true)
                        .redirectOutput(folder.resolve("compiler.txt").toFile())
                        .start();
        try {
            if (!compiler.waitFor(2, TimeUnit.MINUTES) || compiler.exitValue() != 0) {
                throw new AssertionError(Files.readString(folder.resolve("compiler.txt")));
            }
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    protected List<String> jvmFlags() {
        return List.of("-Djccl.mpi=" + library);
    }

    @Override
    protected int[] worldSizes() {
        return new int[] {2, 3};
    }

    @Override
    protected int thinness(int ranks) {
        return 12;
    }

    @Override
    protected int[] coveredSizes() {
        return new int[] {2};
    }

    @Override
    protected boolean fewTypes() {
        return true;
    }
}
