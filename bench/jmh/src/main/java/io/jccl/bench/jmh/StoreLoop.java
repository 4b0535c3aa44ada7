package io.jccl.bench.jmh;

import io.jccl.internal.Statistics;
import io.jccl.rendezvous.Store;
import io.jccl.rendezvous.StoreSecret;
import io.jccl.rendezvous.StoreServer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Queue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

/**
 * Measures how long clients of a store on this machine take to join: connect, prove the secret, add
 * to a counter, and await the value that the last of them sets. Server and clients are one process.
 */
@Command(mixinStandardHelpOptions = true)
final class StoreLoop implements Callable<Integer> {
    private static final Duration PATIENCE = Duration.ofMinutes(1);
    private static final int ADDITIONS = 5_000;

    @Spec private @Nullable CommandSpec spec;

    @Option(names = "--clients", description = "How many.")
    private int clients = 1000;

    @Option(names = "--rounds", description = "How often, the first one cold.")
    private int rounds = 5;

    @Override
    public Integer call() throws InterruptedException {
        if (spec == null) {
            throw new IllegalStateException("not run by picocli");
        }
        var out = spec.commandLine().getOut();
        StoreSecret secret = StoreSecret.of("of the measurement");
        for (int round = 0; round < rounds; round++) {
            try (StoreServer server = StoreServer.open("127.0.0.1", 0, secret)) {
                String address = "tcp://127.0.0.1:" + server.port();
                out.printf(
                        Locale.ROOT,
                        "round %d: %d clients joined in %.0f ms%n",
                        round,
                        clients,
                        join(address, secret));
                if (round == rounds - 1) {
                    out.printf(Locale.ROOT, "add: median %.1f us%n", median(address, secret));
                }
                out.flush();
            }
        }
        return 0;
    }

    private double join(String address, StoreSecret secret) throws InterruptedException {
        Queue<Store> stores = new ConcurrentLinkedQueue<>();
        Queue<RuntimeException> errors = new ConcurrentLinkedQueue<>();
        List<Thread> threads = new ArrayList<>();
        long began = System.nanoTime();
        for (int i = 0; i < clients; i++) {
            threads.add(
                    Thread.ofVirtual()
                            .start(() -> {
                                try {
                                    Store store = Store.connect(address, secret, PATIENCE);
                                    stores.add(store);
                                    if (store.add("here", 1) == clients) {
                                        store.set("all", new byte[1]);
                                    }
                                    byte[] unused = store.await("all", PATIENCE);
                                } catch (RuntimeException e) {
                                    errors.add(e);
                                }
                            }));
        }
        for (Thread t : threads) {
            t.join();
        }
        double millis = (System.nanoTime() - began) / 1e6;
        List<Thread> closers =
                stores.stream().map(s -> Thread.ofVirtual().start(s::close)).toList();
        for (Thread t : closers) {
            t.join();
        }
        RuntimeException e = errors.peek();
        if (e != null) {
            throw e;
        }
        return millis;
    }

    private static double median(String address, StoreSecret secret) {
        double[] micros = new double[ADDITIONS];
        try (Store store = Store.connect(address, secret, PATIENCE)) {
            for (int i = 0; i < ADDITIONS; i++) {
                long began = System.nanoTime();
                long unused = store.add("counter", 1);
                micros[i] = (System.nanoTime() - began) / 1e3;
            }
        }
        return Statistics.median(micros);
    }
}
