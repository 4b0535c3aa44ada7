package io.jccl.cli.launch;

import io.jccl.cli.shell.Count;
import io.jccl.cli.shell.Subcommand;
import io.jccl.rendezvous.StoreSecret;
import io.jccl.rendezvous.StoreServer;
import java.util.concurrent.CountDownLatch;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** Serves a store until a signal ends it, for runs whose rank 0 should not serve it. */
@Command(
        footer = {
            "",
            "  JCCL_STORE_SECRET_FILE=secret jccl store --port 29500",
            "  # and for all ranks: JCCL_STORE=tcp://host:29500 JCCL_STORE_SECRET_FILE=secret",
            "",
            "One store serves one run: a new run needs a new store. It ends by SIGTERM or Ctrl-C.",
        })
public final class StoreCommand extends Subcommand {
    private static final int LARGEST_PORT = 65_535;

    @Option(
            names = "--port",
            paramLabel = "<port>",
            converter = Count.class,
            description = "Where to listen; 0 for any free port, which is printed (default: 0).")
    private int port;

    @Option(
            names = "--host",
            paramLabel = "<address>",
            description = "The address of this machine to listen on (default: all).")
    private @Nullable String host;

    @Override
    public Integer call() throws InterruptedException {
        require(
                port >= 0 && port <= LARGEST_PORT,
                "--port is " + port + ", expected 0 to " + LARGEST_PORT);
        require(
                StoreSecret.isIn(System.getenv()),
                "no secret: set JCCL_STORE_SECRET or JCCL_STORE_SECRET_FILE here and for all"
                        + " ranks, to what openssl rand -hex 32 prints");
        StoreSecret secret = StoreSecret.fromEnvironment(System.getenv(), "");
        try (StoreServer server = StoreServer.open(host, port, secret)) {
            var out = out();
            out.println("jccl store: listening on port " + server.port());
            out.flush();
            // Until a signal ends the process.
            new CountDownLatch(1).await();
        }
        return 0;
    }
}
