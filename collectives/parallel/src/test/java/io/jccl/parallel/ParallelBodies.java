package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.Communicator;
import io.jccl.RankFailedException;
import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.parallel.GradientReducer.Parameter;
import io.jccl.testkit.Messages;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/** What ranks of any engine run. Every rank has the same seed and so the same plan. */
final class ParallelBodies {
    private ParallelBodies() {}

    /** Groups of random meshes hold exactly the ranks that they should, and can communicate. */
    static void mesh(Communicator world, long seed) {
        Random random = new Random(seed);
        for (int round = 0; round < 3; round++) {
            List<Mesh.Axis> axes = axes(world.size(), random);
            try (Mesh mesh = Mesh.create(world, axes)) {
                assertEquals(axes, mesh.axes());
                for (int i = 0; i < axes.size(); i++) {
                    String name = axes.get(i).name();
                    Communicator group = mesh.group(name);
                    assertEquals(members(world, axes, 1 << i), ranksOf(world, group), mesh + name);
                    assertEquals(axes.get(i).size(), group.size());
                    assertEquals(mesh.coordinate(name), group.rank());
                    assertEquals(axes.get(i).size(), mesh.size(name));
                }
                int set = random.nextInt(1 << axes.size());
                List<String> some = new ArrayList<>();
                for (int i = 0; i < axes.size(); i++) {
                    if ((set >> i & 1) != 0) {
                        some.add(axes.get(i).name());
                    }
                }
                Communicator group = mesh.group(some);
                assertEquals(members(world, axes, set), ranksOf(world, group), mesh + "" + some);
                assertTrue(group == mesh.group(some.reversed()), "made once");
            }
        }
    }

    /** A random factorization of the number of ranks, ones included. */
    private static List<Mesh.Axis> axes(int ranks, Random random) {
        List<Mesh.Axis> axes = new ArrayList<>();
        int rest = ranks;
        int count = 1 + random.nextInt(4);
        for (int i = 0; i < count - 1; i++) {
            List<Integer> divisors = new ArrayList<>();
            for (int d = 1; d <= rest; d++) {
                if (rest % d == 0) {
                    divisors.add(d);
                }
            }
            int size = divisors.get(random.nextInt(divisors.size()));
            axes.add(new Mesh.Axis("axis" + i, size));
            rest /= size;
        }
        axes.add(new Mesh.Axis("last", rest));
        return axes;
    }

    /** By the definition: all ranks whose coordinates on the other axes are this rank's. */
    private static List<Long> members(Communicator world, List<Mesh.Axis> axes, int set) {
        List<Long> all = new ArrayList<>();
        for (int r = 0; r < world.size(); r++) {
            boolean same = true;
            for (int i = 0; i < axes.size(); i++) {
                if ((set >> i & 1) == 0) {
                    same &= coordinates(r, axes)[i] == coordinates(world.rank(), axes)[i];
                }
            }
            if (same) {
                all.add((long) r);
            }
        }
        return all;
    }

    /** Counts up to the rank, the last axis first, like the digits of a meter. */
    private static int[] coordinates(int rank, List<Mesh.Axis> axes) {
        int[] at = new int[axes.size()];
        for (int r = 0; r < rank; r++) {
            for (int i = axes.size() - 1; i >= 0; i--) {
                at[i] = (at[i] + 1) % axes.get(i).size();
                if (at[i] != 0) {
                    break;
                }
            }
        }
        return at;
    }

    private static List<Long> ranksOf(Communicator world, Communicator group) {
        List<Long> ranks = new ArrayList<>();
        for (long r : ConsistencyCheck.gather(group, world.rank())) {
            ranks.add(r);
        }
        return ranks;
    }

    /** Values that add up exactly in any order: small integers. */
    static float value(long seed, int rank, int step, int parameter, long element) {
        long h = seed * 31 + rank;
        h = (h * 0x9E3779B97F4A7C15L + step) * 0xBF58476D1CE4E5B9L + parameter;
        h = (h ^ h >>> 29) * 0x94D049BB133111EBL + element * 0x2545F4914F6CDD1DL;
        return (h >>> 33) % 17 - 8;
    }

    /** Parameters of random shapes and types. */
    static List<Parameter> parameters(Random random, DataType... types) {
        List<Parameter> all = new ArrayList<>();
        int count = 1 + random.nextInt(12);
        for (int i = 0; i < count; i++) {
            long rows = 1L + random.nextInt(40);
            long columns = 1L + random.nextInt(60);
            all.add(new Parameter("p" + i, rows, columns, types[random.nextInt(types.length)]));
        }
        return all;
    }

    private static final BucketTuning TUNING = new BucketTuning(List.of(700L, 30_000L), 1);

    /**
     * The mean of exact values is right on every rank, bit for bit, whatever the shapes, buckets,
     * order of gradients and passes without communication.
     */
    static void reducer(Communicator c, long seed) {
        Random random = new Random(seed);
        boolean host = c.device().kind() == Device.Kind.HOST;
        DataType[] types = {
            DataType.FLOAT32, DataType.FLOAT64, DataType.BFLOAT16, DataType.FLOAT16
        };
        for (int round = 0; round < 4; round++) {
            List<Parameter> parameters = parameters(random, types);
            ReducerOptions options =
                    ReducerOptions.DEFAULT
                            .withBuckets(1 + random.nextInt(20_000), 1 + random.nextInt(40_000))
                            .withFindUnused(random.nextBoolean());
            // The last round changes buckets between its steps: twice two trials of two steps.
            boolean tuned = round == 3;
            options = tuned ? options.withTuning(TUNING) : options;
            int steps = tuned ? Math.toIntExact(TUNING.trialSteps()) + 2 : 3;
            Random own = new Random(seed + c.rank());
            try (GradientReducer reducer = GradientReducer.create(c, parameters, options);
                    Stream compute = c.device().newStream()) {
                for (int step = 0; step < steps; step++) {
                    assertEquals(tuned && step > TUNING.trialSteps(), reducer.tuned().isPresent());
                    int passes = 1 + random.nextInt(3);
                    for (int pass = 0; pass < passes; pass++) {
                        boolean last = pass == passes - 1;
                        pass(
                                reducer,
                                parameters,
                                c,
                                seed,
                                step * 8 + pass,
                                pass > 0,
                                last,
                                own,
                                random.nextBoolean() ? compute : c.device().defaultStream(),
                                host);
                    }
                    check(reducer, parameters, c.size(), seed, step * 8, passes);
                }
                if (tuned) {
                    agreed(c, reducer.tuned().orElseThrow());
                }
            }
        }
    }

    /** All ranks have the same times, and the size with the shortest. */
    private static void agreed(Communicator c, BucketTuning.Result result) {
        for (int i = 0; i < result.seconds().size(); i++) {
            long bits = Double.doubleToRawLongBits(result.seconds().get(i));
            for (long other : ConsistencyCheck.gather(c, bits)) {
                assertEquals(bits, other);
            }
            assertTrue(result.seconds().get(i) >= result.seconds().get(result.chosen()));
        }
    }

    private static void pass(
            GradientReducer reducer,
            List<Parameter> parameters,
            Communicator c,
            long seed,
            int step,
            boolean add,
            boolean communicate,
            Random random,
            Stream stream,
            boolean host) {
        reducer.begin(communicate);
        List<Integer> order = new ArrayList<>();
        for (int p = 0; p < parameters.size(); p++) {
            order.add(random.nextInt(order.size() + 1), p);
        }
        for (int p : order) {
            Buffer gradient = reducer.gradient(p);
            if (host) {
                stream.launchHostFunction(() -> write(gradient, seed, c.rank(), step, p, add));
            } else {
                write(gradient, seed, c.rank(), step, p, add);
            }
            reducer.ready(p, stream);
        }
        reducer.finish();
        if (!communicate) {
            stream.synchronize();
        }
    }

    private static void write(
            Buffer gradient, long seed, int rank, int step, int parameter, boolean add) {
        Buffer host = onHost(gradient);
        for (long i = 0; i < gradient.count(); i++) {
            float before = add ? (float) host.get(i) : 0;
            host.set(i, before + value(seed, rank, step, parameter, i));
        }
        if (host != gradient) {
            gradient.copyFrom(host.asSegment());
            host.close();
        }
    }

    /** The buffer itself, or a copy of it on the host. */
    static Buffer onHost(Buffer buffer) {
        if (buffer.device().kind() == Device.Kind.HOST) {
            return buffer;
        }
        Buffer copy = Device.host().allocate(buffer.dataType(), buffer.count());
        MemorySegment to = copy.asSegment();
        buffer.copyTo(to);
        return copy;
    }

    private static void check(
            GradientReducer reducer,
            List<Parameter> parameters,
            int ranks,
            long seed,
            int step,
            int passes) {
        for (int p = 0; p < parameters.size(); p++) {
            Buffer mean = onHost(reducer.gradient(p));
            DataType type = parameters.get(p).type();
            try (Buffer expected = Device.host().allocate(type, 1)) {
                for (long i = 0; i < mean.count(); i++) {
                    double sum = 0;
                    for (int r = 0; r < ranks; r++) {
                        for (int k = 0; k < passes; k++) {
                            sum += value(seed, r, step + k, p, i);
                        }
                    }
                    // The sum is exact; dividing it rounds once, in float32 or wider.
                    expected.set(0, type == DataType.FLOAT64 ? sum / ranks : (float) sum / ranks);
                    assertEquals(expected.get(0), mean.get(i), parameters.get(p) + "[" + i + "]");
                }
            }
            assertTrue(reducer.isUsed(p), "used");
        }
    }

    /** Random tensors, made equal and then changed in one place. */
    static void sync(Communicator c, long seed) {
        Random random = new Random(seed);
        DataType[] types = DataType.values();
        List<ParameterSync.Tensor> tensors = new ArrayList<>();
        for (int t = 0; t < 6; t++) {
            DataType type = types[random.nextInt(types.length)];
            Buffer values = c.device().allocate(type, 1 + random.nextInt(5000));
            Buffer host = onHost(values);
            for (long i = 0; i < values.count(); i++) {
                host.set(i, value(seed, c.rank(), t, 0, i));
            }
            if (host != values) {
                values.copyFrom(host.asSegment());
            }
            tensors.add(new ParameterSync.Tensor("t" + t, values));
        }
        ParameterSync.broadcast(c, tensors, random.nextInt(c.size()));
        ParameterSync.requireEqual(c, tensors);
        if (c.size() > 1) {
            int odd = random.nextInt(c.size());
            int which = random.nextInt(tensors.size());
            Buffer values = tensors.get(which).values();
            long at = random.nextLong(values.count());
            if (c.rank() == odd) {
                Buffer one = values.slice(at, 1);
                byte[] bytes = new byte[(int) one.byteSize()];
                one.copyTo(MemorySegment.ofArray(bytes));
                bytes[bytes.length - 1] ^= 1;
                one.copyFrom(MemorySegment.ofArray(bytes));
            }
            ParameterSync.Difference d = ParameterSync.compare(c, tensors).orElseThrow();
            assertEquals(which, d.index());
            assertEquals(at, d.element());
            // Of two ranks the lower one counts as right.
            assertEquals(List.of(c.size() == 2 ? 1 : odd), d.ranks());
        }
        tensors.forEach(t -> t.values().close());
    }

    /** In step: what one rank makes of all gradients, bit for bit, since all values are exact. */
    static void serverInStep(Communicator c, long seed) {
        Random random = new Random(seed);
        int servers = 1 + random.nextInt(c.size() - 1);
        int workers = c.size() - servers;
        int count = 1 + random.nextInt(5000);
        int steps = 5;
        DataType type = random.nextBoolean() ? DataType.FLOAT32 : DataType.FLOAT64;
        ServerOptions options = ServerOptions.synchronous(0.5f).withServers(servers);
        try (Buffer parameters = c.device().allocate(type, count);
                Buffer gradients = c.device().allocate(type, count)) {
            for (int i = 0; i < count; i++) {
                parameters.set(i, c.rank() == 0 ? i : -1);
            }
            try (ParameterServer server =
                    ParameterServer.create(c, parameters, gradients, options)) {
                assertEquals(c.rank() >= workers, server.isServer());
                assertEquals(workers, server.workers());
                if (server.isServer()) {
                    server.serve();
                    return;
                }
                double[] expected = new double[count];
                for (int i = 0; i < count; i++) {
                    expected[i] = i;
                }
                for (int step = 0; step < steps; step++) {
                    server.pull();
                    for (int i = 0; i < count; i++) {
                        assertEquals(expected[i], parameters.get(i), "step " + step);
                        double sum = 0;
                        for (int r = 0; r < workers; r++) {
                            sum += value(seed, r, step, 0, i);
                        }
                        expected[i] -=
                                0.5
                                        * (type == DataType.FLOAT32
                                                ? (float) sum / workers
                                                : sum / workers);
                        expected[i] = type == DataType.FLOAT32 ? (float) expected[i] : expected[i];
                        gradients.set(i, value(seed, c.rank(), step, 0, i));
                    }
                    server.push();
                }
            }
        }
    }

    /** With a bound: all gradients count once, whatever their order. */
    static void serverBounded(Communicator c, long seed) {
        Random random = new Random(seed);
        int servers = 1 + random.nextInt(c.size() - 1);
        int workers = c.size() - servers;
        int count = 1 + random.nextInt(5000);
        int bound = random.nextInt(4);
        int steps = 8;
        ServerOptions options =
                ServerOptions.synchronous(1)
                        .withServers(servers)
                        .withConsistency(new ServerOptions.Consistency.BoundedStaleness(bound));
        try (Buffer parameters = c.device().allocate(DataType.FLOAT32, count);
                Buffer gradients = c.device().allocate(DataType.FLOAT32, count)) {
            double[] expected = new double[count];
            try (ParameterServer server =
                    ParameterServer.create(c, parameters, gradients, options)) {
                for (int i = 0; i < count; i++) {
                    for (int r = 0; r < workers; r++) {
                        for (int step = 0; step < steps; step++) {
                            expected[i] -= value(seed, r, step, 0, i);
                        }
                    }
                }
                if (server.isServer()) {
                    server.serve();
                    int own = c.rank() - workers;
                    long each = (((long) count + servers - 1) / servers + 15) / 16 * 16;
                    for (long i = 0; i < server.part().count(); i++) {
                        assertEquals(
                                expected[(int) (Math.min(count, own * each) + i)],
                                server.part().get(i));
                    }
                    return;
                }
                for (int step = 0; step < steps; step++) {
                    for (int i = 0; i < count; i++) {
                        gradients.set(i, value(seed, c.rank(), step, 0, i));
                    }
                    server.push();
                    server.pull();
                }
            }
        }
    }

    /**
     * Every form of compression: a linear regression of all ranks comes to its solution, and ranks
     * stay equal bit by bit on the way.
     */
    static void compressed(Communicator c, long seed) {
        int rows = 12;
        int columns = 10;
        List<Parameter> parameters =
                List.of(
                        new Parameter("w", rows, columns, DataType.FLOAT32),
                        new Parameter("b", rows, DataType.FLOAT32));
        List<Compression> forms =
                List.of(
                        Compression.NONE,
                        new Compression.Cast(DataType.BFLOAT16),
                        new Compression.Cast(DataType.FLOAT16),
                        new Compression.TopK(0.2),
                        new Compression.PowerSgd(2, seed));
        for (Compression form : forms) {
            ReducerOptions options =
                    ReducerOptions.DEFAULT.withBuckets(16, 1 << 20).withCompression(form);
            List<ParameterSync.Tensor> weights = new ArrayList<>();
            for (Parameter p : parameters) {
                weights.add(
                        new ParameterSync.Tensor(
                                p.name(), c.device().allocate(DataType.FLOAT32, p.count())));
            }
            double first = 0;
            double last = 0;
            try (GradientReducer reducer = GradientReducer.create(c, parameters, options)) {
                for (int step = 0; step < 80; step++) {
                    // Ranks' gradients do not vanish at the solution, so what is sent late keeps
                    // moving the weights, the less the smaller the rate.
                    double rate = step < 40 ? 0.15 : 0.03;
                    reducer.begin(true);
                    double loss = 0;
                    for (int p = 1; p >= 0; p--) {
                        Buffer w = weights.get(p).values();
                        Buffer g = reducer.gradient(p);
                        for (long i = 0; i < w.count(); i++) {
                            // Each rank has a target of its own; the mean of them is the solution.
                            double d = w.get(i) - value(seed, c.rank(), 0, p, i);
                            g.set(i, d);
                            double m = w.get(i) - mean(seed, c.size(), p, i);
                            loss += m * m;
                        }
                        reducer.ready(p);
                    }
                    reducer.finish();
                    for (int p = 0; p < 2; p++) {
                        Buffer w = weights.get(p).values();
                        for (long i = 0; i < w.count(); i++) {
                            w.set(i, w.get(i) - rate * reducer.gradient(p).get(i));
                        }
                    }
                    first = step == 0 ? loss : first;
                    last = loss;
                }
            }
            ParameterSync.requireEqual(c, weights);
            assertTrue(last < first / 50, form + ": loss from " + first + " to " + last);
            weights.forEach(t -> t.values().close());
        }
    }

    private static double mean(long seed, int ranks, int parameter, long element) {
        double sum = 0;
        for (int r = 0; r < ranks; r++) {
            sum += value(seed, r, 0, parameter, element);
        }
        return sum / ranks;
    }

    /** Rank 1 leaves a parameter out that it had to use: all ranks are told which. */
    static void unused(Communicator c) {
        List<Parameter> parameters = new ArrayList<>();
        for (int p = 0; p < 3; p++) {
            parameters.add(new Parameter("w" + p, 1000L * (1 + p), DataType.FLOAT32));
        }
        ReducerOptions options = ReducerOptions.DEFAULT.withBuckets(4000, 4000);
        GradientReducer r = GradientReducer.create(c, parameters, options);
        r.begin(true);
        r.ready(2);
        r.ready(0);
        // Or rank 1 may give up while others still start the first bucket, outside the check below.
        ConsistencyCheck.gather(c, 0);
        if (c.rank() == 1) {
            String m = Messages.of(IllegalStateException.class, r::finish);
            assertTrue(m.contains("'w1'") && m.contains("rank 1"), m);
        } else {
            String m =
                    Messages.of(
                            RankFailedException.class,
                            () -> {
                                r.ready(1);
                                r.finish();
                            });
            assertTrue(m.contains("'w1'") && m.contains("rank 1"), m);
        }
        String later = Messages.of(JcclException.class, () -> r.begin(true));
        assertTrue(later.contains("unusable") && later.contains("'w1'"), later);
        r.close();
        r.close();
        assertThrows(IllegalStateException.class, () -> r.begin(true));
        // Only the reducer's own communicator has failed.
        assertEquals(c.size(), ConsistencyCheck.gather(c, 1).length);
    }
}
