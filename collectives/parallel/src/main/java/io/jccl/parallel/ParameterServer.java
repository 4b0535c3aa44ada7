package io.jccl.parallel;

import io.jccl.CollectiveTimeoutException;
import io.jccl.Communicator;
import io.jccl.RankFailedException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Closing;
import io.jccl.parallel.ServerOptions.Consistency;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Parameters kept by server ranks: workers push gradients and pull parameters, instead of averaging
 * gradients among themselves (Li et al., <a
 * href="https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu">OSDI
 * 2014</a>).
 *
 * <p>The last {@link ServerOptions#servers} ranks are servers, the others workers. With <i>s</i>
 * servers, each stores one of <i>s</i> ranges of the parameters. Every rank runs this:
 *
 * {@snippet class="snippets.Parallel" region="server"}
 *
 * <p>{@link #serve} returns once all workers have closed their object. Every pair of a worker and a
 * server has its own communicator, used by its own thread on the server.
 *
 * <p>If a worker closes its object, the others continue without it. If a rank dies, hangs or fails,
 * all others throw a {@link JcclException} that names it, within the communicator's timeout.
 *
 * <p><b>Devices:</b> requests go through host memory, over the host engine or MPI. A worker's
 * parameters and gradients may be on a GPU: {@link #push} waits for the GPU's default stream and
 * copies gradients to pinned memory, {@link #pull} copies parameters back. Servers compute on the
 * host or, with {@link ServerOptions#withDevice}, on a GPU.
 *
 * <p><b>Threads:</b> one thread at a time.
 */
public final class ParameterServer implements AutoCloseable {
    // Requests of a worker.
    static final long PUSH = 1;
    static final long PULL = 2;
    static final long LEAVE = 3;

    /**
     * Ranges start at multiples of this many elements, so that no two servers write to the same
     * cache line.
     */
    private static final long GRAIN = 16;

    private final Communicator world;
    private final ServerOptions options;

    /** On a worker, one per server; on a server, one per worker. */
    private final List<Communicator> pairs = new ArrayList<>();

    /** On a worker, the ranges of its parameters and gradients, and its request. */
    private final List<Buffer> parameterParts = new ArrayList<>();

    private final List<Buffer> gradientParts = new ArrayList<>();

    /** Copies of a worker's buffers on a GPU. */
    private final List<StagedParts> staged = new ArrayList<>();

    private final @Nullable Buffer request;
    private final @Nullable ServerShard shard;
    private @Nullable Throwable failure;
    private boolean closed;

    private ParameterServer(
            Communicator world,
            @Nullable Buffer parameters,
            @Nullable Buffer gradients,
            long count,
            DataType type,
            ServerOptions options) {
        this.world = world;
        this.options = options;
        int workers = world.size() - options.servers();
        boolean server = world.rank() >= workers;
        Buffer asked = server ? null : world.device().allocate(DataType.INT64, 1);
        request = asked;
        try {
            pair(workers);
            if (server) {
                int own = world.rank() - workers;
                long first = start(count, own, options.servers());
                long n = start(count, own + 1, options.servers()) - first;
                shard = new ServerShard(world.device(), pairs, first, n, type, options);
            } else {
                shard = null;
                staged.add(new StagedParts(Objects.requireNonNull(parameters)));
                staged.add(new StagedParts(Objects.requireNonNull(gradients)));
                for (int j = 0; j < options.servers(); j++) {
                    long first = start(count, j, options.servers());
                    long n = start(count, j + 1, options.servers()) - first;
                    parameterParts.add(staged.getFirst().host().slice(first, n));
                    gradientParts.add(staged.getLast().host().slice(first, n));
                }
            }
        } catch (RuntimeException e) {
            List<AutoCloseable> made = new ArrayList<>(pairs.reversed());
            made.addAll(staged);
            if (asked != null) {
                made.add(asked);
            }
            try {
                Closing.all(made);
            } catch (RuntimeException suppressed) {
                e.addSuppressed(suppressed);
            }
            throw e;
        }
    }

    /** First element of a server's range. */
    private static long start(long count, int server, int servers) {
        long each = (count + servers - 1) / servers;
        return Math.min(count, (each + GRAIN - 1) / GRAIN * GRAIN * server);
    }

    /**
     * Creates a communicator for each pair. One split creates as many as possible from distinct
     * ranks: in round k worker i is paired with server (i + k) mod the larger of both numbers.
     */
    private void pair(int workers) {
        int servers = options.servers();
        int rounds = Math.max(workers, servers);
        boolean server = world.rank() >= workers;
        int own = server ? world.rank() - workers : world.rank();
        Communicator[] made = new Communicator[server ? workers : servers];
        for (int k = 0; k < rounds; k++) {
            int peer = Math.floorMod(server ? own - k : own + k, rounds);
            boolean there = peer < made.length;
            int worker = server ? peer : own;
            int colour = there ? worker * servers + (server ? own : peer) : -1;
            Communicator c = world.split(colour, world.rank());
            if (there) {
                made[peer] = Objects.requireNonNull(c, "a split with a colour");
                pairs.add(made[peer]);
            }
        }
        pairs.clear();
        pairs.addAll(List.of(made));
    }

    /**
     * Creates this rank's worker or server. All ranks call it; it waits for them. Afterwards all
     * workers and the servers have the parameters of rank 0.
     *
     * @param world workers and servers; must outlive the parameter server, which does not close it
     * @param parameters on a worker, its copy of all parameters, float32 or float64, in memory of
     *     the host or a GPU; ignored and may be null on a server
     * @param gradients on a worker, as many elements of the same type, on the host or a GPU;
     *     ignored and may be null on a server
     * @param options settings, the same on all ranks
     * @return this rank's worker or server
     * @throws IllegalArgumentException if there are no workers, the buffers do not match, or the
     *     communicator is NCCL's; on all ranks, if all pass the same values
     * @throws io.jccl.CollectiveMismatchException if the ranks disagree
     */
    public static ParameterServer create(
            Communicator world,
            @Nullable Buffer parameters,
            @Nullable Buffer gradients,
            ServerOptions options) {
        Objects.requireNonNull(options, "options");
        if (world.device().kind() != Device.Kind.HOST) {
            throw new IllegalArgumentException(
                    "the communicator is of "
                            + world.device()
                            + ", but requests to a parameter server travel through host memory: in"
                            + " NCCL each would hold a GPU's kernel until it comes; use a"
                            + " communicator of the host engine or MPI, whose buffers here may be"
                            + " on a GPU, or a GradientReducer");
        }
        // Checked first, so that no rank throws while others wait for it.
        ConsistencyCheck.check(
                world,
                "the settings of a parameter server",
                List.of(options.servers() + " servers, " + options.consistency()));
        int workers = world.size() - options.servers();
        if (workers < 1) {
            throw new IllegalArgumentException(
                    "%s servers leave no worker among %s ranks, expected at most %s"
                            .formatted(options.servers(), world.size(), world.size() - 1));
        }
        boolean worker = world.rank() < workers;
        IllegalArgumentException wrong = worker ? wrong(parameters, gradients) : null;
        // Servers contribute nothing and learn the workers' count and type.
        long[] said =
                worker && parameters != null && wrong == null
                        ? ConsistencyCheck.gather(
                                world, parameters.count(), parameters.dataType().code())
                        : ConsistencyCheck.gather(world, -1, -1);
        if (wrong != null) {
            throw wrong;
        }
        for (int r = 0; r < workers; r++) {
            if (said[2 * r] != said[0] || said[2 * r + 1] != said[1] || said[0] < 0) {
                throw new IllegalArgumentException(
                        "the workers' parameters differ: %s, %s"
                                .formatted(elements(said, 0), elements(said, said[0] < 0 ? 0 : r)));
            }
        }
        DataType type = DataType.ofCode((int) said[1]);
        ParameterServer made =
                new ParameterServer(world, parameters, gradients, said[0], type, options);
        try {
            made.distribute();
        } catch (RuntimeException e) {
            made.failure = e;
            made.close();
            throw e;
        }
        return made;
    }

    private static String elements(long[] said, int rank) {
        String has =
                said[2 * rank] < 0
                        ? "buffers that it may not have"
                        : said[2 * rank]
                                + " elements of "
                                + DataType.ofCode((int) said[2 * rank + 1]).label();
        return "rank " + rank + " has " + has;
    }

    /** The error for a worker's buffers; null if they are valid. */
    private static @Nullable IllegalArgumentException wrong(
            @Nullable Buffer parameters, @Nullable Buffer gradients) {
        if (parameters == null || gradients == null) {
            return new IllegalArgumentException(
                    "a worker needs parameters and gradients, but "
                            + (parameters == null ? "parameters" : "gradients")
                            + " is null");
        }
        DataType type = parameters.dataType();
        if (type != DataType.FLOAT32 && type != DataType.FLOAT64) {
            return new IllegalArgumentException(
                    "parameters hold " + type.label() + ", expected float or double");
        }
        if (gradients.dataType() != type || gradients.count() != parameters.count()) {
            return new IllegalArgumentException(
                    "parameters are %s, gradients %s; both need the same type and count"
                            .formatted(parameters, gradients));
        }
        return null;
    }

    /** Distributes rank 0's parameters to all. */
    private void distribute() {
        Stream stream = world.device().defaultStream();
        if (shard != null) {
            shard.take(stream);
            return;
        }
        StagedParts parameters = staged.getFirst();
        boolean source = world.rank() == 0;
        if (source) {
            parameters.toHost();
        }
        for (int j = 0; j < pairs.size(); j++) {
            if (source) {
                pairs.get(j).send(parameterParts.get(j), 1, stream);
            } else {
                pairs.get(j).recv(parameterParts.get(j), 1, stream);
            }
        }
        if (!source) {
            parameters.toDevice();
        }
    }

    /**
     * Whether this rank is a server.
     *
     * @return true for the last ranks
     */
    public boolean isServer() {
        return shard != null;
    }

    /**
     * Number of ranks that are workers.
     *
     * @return 1 or more
     */
    public int workers() {
        return world.size() - options.servers();
    }

    /**
     * Sends this worker's gradients to the servers; they may be overwritten on return. On a GPU,
     * they are those computed by work on the default stream. With {@link Consistency.Synchronous}
     * it blocks while an earlier push of this worker still waits for those of the others.
     *
     * @throws IllegalStateException on a server
     * @throws JcclException if a rank has failed
     */
    public void push() {
        ask(PUSH, gradientParts, List.of());
    }

    /**
     * Receives the parameters from the servers as soon as {@link ServerOptions#consistency} allows
     * it.
     *
     * @throws IllegalStateException on a server
     * @throws JcclException if a rank has failed
     */
    public void pull() {
        ask(PULL, List.of(), parameterParts);
    }

    private void ask(long what, List<Buffer> sent, List<Buffer> received) {
        checkUsable();
        Buffer q = request;
        if (q == null) {
            throw new IllegalStateException(
                    "rank " + world.rank() + " is a server; it calls serve, workers push and pull");
        }
        Stream stream = world.device().defaultStream();
        q.setLong(0, what);
        int server = 0;
        try {
            if (!sent.isEmpty()) {
                staged.getLast().toHost();
            }
            for (int j = 0; j < pairs.size(); j++) {
                server = j;
                pairs.get(j).send(q, 1, stream);
                if (!sent.isEmpty()) {
                    pairs.get(j).send(sent.get(j), 1, stream);
                }
            }
            for (int j = 0; j < received.size(); j++) {
                server = j;
                pairs.get(j).recv(received.get(j), 1, stream);
            }
            if (!received.isEmpty()) {
                staged.getFirst().toDevice();
            }
        } catch (RuntimeException e) {
            RuntimeException named = named(server, e);
            failure = named;
            abort("worker rank " + world.rank() + " failed: " + e.getMessage());
            throw named;
        }
    }

    /** The error of a pair, whose ranks are 0 and 1, with the ranks of the world. */
    private RuntimeException named(int server, RuntimeException e) {
        String what =
                ("worker rank %s, in an exchange with server rank %s (ranks 0 and 1 of this pair):"
                                + " %s")
                        .formatted(world.rank(), workers() + server, e.getMessage());
        RuntimeException named =
                switch (e) {
                    case RankFailedException f -> new RankFailedException(what);
                    case CollectiveTimeoutException t -> new CollectiveTimeoutException(what);
                    default -> e;
                };
        if (named != e) {
            named.initCause(e);
        }
        return named;
    }

    /**
     * Serves the workers until all have closed their object.
     *
     * @throws IllegalStateException on a worker
     * @throws JcclException if a rank has failed, or the update threw; the cause is the first error
     */
    public void serve() {
        checkUsable();
        if (shard == null) {
            throw new IllegalStateException(
                    "rank " + world.rank() + " is a worker; it pushes and pulls, servers serve");
        }
        try {
            shard.serve();
        } catch (RuntimeException e) {
            failure = e;
            throw e;
        }
    }

    /**
     * The parameters that this server stores.
     *
     * @return its range, on the servers' device; closed with this object
     * @throws IllegalStateException on a worker
     */
    public Buffer part() {
        if (shard == null) {
            throw new IllegalStateException("rank " + world.rank() + " is a worker, it keeps none");
        }
        return shard.parameters();
    }

    private void abort(String reason) {
        for (Communicator c : pairs) {
            c.abort(reason);
        }
    }

    private void checkUsable() {
        if (closed) {
            throw new IllegalStateException("the parameter server is closed");
        }
        Throwable f = failure;
        if (f != null) {
            throw new JcclException(
                    "the parameter server is unusable since it failed: " + f.getMessage(), f);
        }
    }

    /**
     * Leaves. A worker notifies the servers; workers of a server that closes early get errors.
     * Closing twice has no effect.
     */
    @Override
    public void close() {
        if (closed) {
            return;
        }
        RuntimeException error = null;
        if (shard == null && failure == null) {
            try {
                ask(LEAVE, List.of(), List.of());
            } catch (RuntimeException e) {
                // It has ended anyway, but the caller should know the reason.
                error = e;
            }
        }
        closed = true;
        List<AutoCloseable> all = new ArrayList<>(pairs.reversed());
        all.addAll(staged);
        if (shard != null) {
            all.add(shard);
        }
        if (request != null) {
            all.add(request);
        }
        try {
            Closing.all(all);
        } catch (RuntimeException e) {
            if (error != null) {
                e.addSuppressed(error);
            }
            throw e;
        }
        if (error != null) {
            throw error;
        }
    }
}
