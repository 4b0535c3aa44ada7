package io.jccl.bench.jmh;

import io.jccl.cli.Main;
import io.jccl.cli.launch.ParentWatch;
import java.io.PrintWriter;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Supplier;

/**
 * Measurements that {@code bench/peers} and the documentation start, such as {@code jccl
 * peer-loop}.
 */
public final class Loops {
    /** The factory of each, by the name that the launcher uses. */
    static final Map<String, Supplier<Object>> ALL =
            new TreeMap<>(
                    Map.of(
                            "adam-loop", AdamLoop::new,
                            "ddp-loop", DdpLoop::new,
                            "enqueue-loop", EnqueueLoop::new,
                            "expert-loop", ExpertLoop::new,
                            "matmul-loop", MatmulLoop::new,
                            "nvme-loop", NvmeLoop::new,
                            "peer-loop", PeerLoop::new,
                            "store-loop", StoreLoop::new));

    private Loops() {}

    /**
     * Runs one and ends the process with its status.
     *
     * @param args its name and its arguments
     */
    public static void main(String[] args) {
        ParentWatch.start(System.getenv());
        System.exit(
                execute(
                        args,
                        new PrintWriter(System.out, true, System.out.charset()),
                        new PrintWriter(System.err, true, System.err.charset())));
    }

    static int execute(String[] args, PrintWriter out, PrintWriter err) {
        String name = args.length == 0 ? "" : args[0];
        Supplier<Object> loop = ALL.get(name);
        if (loop == null) {
            err.println("jccl: loop '" + name + "' is unknown, expected one of " + ALL.keySet());
            err.flush();
            return 2;
        }
        return Main.execute(name, loop.get(), Arrays.copyOfRange(args, 1, args.length), out, err);
    }
}
