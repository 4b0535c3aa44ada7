/** The {@code jccl} command line, its benchmarks and reports. */
module io.jccl.bench {
    requires com.fasterxml.jackson.core;
    requires com.fasterxml.jackson.databind;
    requires info.picocli;
    requires io.jccl.collectives;
    requires io.jccl.offload;
    requires io.jccl.parallel;
    requires io.jccl.topology;
    requires java.management;
    requires jdk.jfr;
    requires jtokkit; // train --tokenizer
    requires static jdk.incubator.vector; // the launcher adds it
    requires static java.xml; // tests read what was written
    requires static jdk.management; // tests read how much a thread allocates
    requires static org.jspecify;

    opens io.jccl.bench.probe to
            com.fasterxml.jackson.databind;
    opens io.jccl.cli to
            info.picocli;
    opens io.jccl.cli.check to
            info.picocli;
    opens io.jccl.cli.doctor to
            com.fasterxml.jackson.databind,
            info.picocli;
    opens io.jccl.cli.flight to
            com.fasterxml.jackson.databind,
            info.picocli;
    opens io.jccl.cli.launch to
            info.picocli;
    opens io.jccl.cli.perf to
            com.fasterxml.jackson.databind,
            info.picocli;
    opens io.jccl.cli.plan to
            com.fasterxml.jackson.databind,
            info.picocli;
    opens io.jccl.cli.probe to
            info.picocli;
    opens io.jccl.cli.report to
            info.picocli;
    opens io.jccl.cli.shell to
            info.picocli;
    opens io.jccl.cli.topo to
            info.picocli;
    opens io.jccl.cli.train to
            com.fasterxml.jackson.databind,
            info.picocli;
}
