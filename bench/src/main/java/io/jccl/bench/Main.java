package io.jccl.bench;

import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Parameters;

/** The {@code jccl} command. */
@Command(name = "jccl", mixinStandardHelpOptions = true, version = "jccl 0.1.0-SNAPSHOT")
public final class Main implements Callable<Integer> {
    @Parameters private List<String> arguments = List.of();

    private Main() {}

    /**
     * Runs the command line.
     *
     * @param args the arguments
     */
    public static void main(String[] args) {
        System.exit(new CommandLine(new Main()).execute(args));
    }

    @Override
    public Integer call() {
        arguments.forEach(System.out::println);
        return 0;
    }
}
