import io.jccl.Communicator;
import io.jccl.CommunicatorOptions;
import io.jccl.RankFailedException;
import io.jccl.ReduceOp;
import io.jccl.bindings.NcclException;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclTimeoutException;
import io.jccl.rendezvous.LaunchEnvironment;
import io.jccl.rendezvous.Store;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.function.Consumer;

/**
 * A trainer that goes on with fewer ranks when some fail, and from its checkpoint when all are
 * started again:
 *
 * <pre>
 * jccl run -n 4 --min-ranks 3 --max-restarts 2 -- docs/examples/ElasticTrainer.java FOLDER STEPS
 * </pre>
 *
 * A third argument is a pause in each step, in milliseconds, in which to kill a rank. A fourth one,
 * {@code cuda}, makes the ranks those of NCCL, each with the GPU of its number on the machine.
 */
public class ElasticTrainer {
    private static final int FEATURES = 8;
    private static final int BATCH = 12; // of all ranks: what 4, 3, 2 and 1 divide
    private static final double RATE = 0.05;
    private static final Duration GRACE = Duration.ofSeconds(5);
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int MOST_FAILURES = 4; // without a step between them

    private final Path folder;
    private final Store store;
    private final int identity; // the rank at the start, which names this process in the store
    private final Buffer shared; // what the ranks exchange, in the memory of their device
    private int step;

    private ElasticTrainer(Path folder, Store store, int identity, Buffer shared) {
        this.folder = folder;
        this.store = store;
        this.identity = identity;
        this.shared = shared;
    }

    public static void main(String[] args) throws Exception {
        Path folder = Files.createDirectories(Path.of(args[0]));
        int steps = Integer.parseInt(args[1]);
        int pause = args.length > 2 ? Integer.parseInt(args[2]) : 0;
        Device device =
                args.length > 3 && args[3].equals("cuda")
                        ? Cuda.device(LaunchEnvironment.current().localRank())
                        : Device.host();
        Communicator comm = Communicator.fromEnvironment(device, CommunicatorOptions.DEFAULT);
        try (Store store = Store.fromEnvironment(PATIENCE);
                Buffer weights = Device.host().allocate(DataType.FLOAT64, FEATURES);
                Buffer gradient = Device.host().allocate(DataType.FLOAT64, FEATURES);
                Buffer shared = device.allocate(DataType.FLOAT64, FEATURES)) {
            ElasticTrainer trainer = new ElasticTrainer(folder, store, comm.rank(), shared);
            trainer.load(weights);
            // The ranks of this communicator by their identities.
            List<Integer> ranks = new ArrayList<>();
            for (int r = 0; r < comm.size(); r++) {
                ranks.add(r);
            }
            System.out.println("process " + ProcessHandle.current().pid());
            boolean failed = false;
            int failures = 0; // since the last step
            for (int round = 0; trainer.step < steps; ) {
                try {
                    if (failed) {
                        List<Integer> left = trainer.survivors(round, ranks.size());
                        List<Integer> excluded = new ArrayList<>();
                        for (int r = 0; r < ranks.size(); r++) {
                            if (!left.contains(ranks.get(r))) {
                                excluded.add(r);
                            }
                        }
                        Communicator less = comm.shrink(excluded, true);
                        comm.close();
                        comm = less;
                        ranks = left;
                        trainer.agree(comm, weights, gradient);
                        failed = false;
                        if (comm.rank() == 0) {
                            trainer.save(weights, "checkpoint-regrouped");
                            trainer.save(weights, "checkpoint");
                            System.out.println(
                                    comm.size() + " ranks go on after step " + trainer.step);
                        }
                    }
                    trainer.train(comm, weights, gradient);
                    failures = 0;
                    Thread.sleep(pause);
                } catch (RankFailedException | JcclTimeoutException | NcclException e) {
                    // Another one may fail while they regroup: then they do so once more, but not for
                    // ever with one that fails each time.
                    failed = true;
                    round++;
                    if (++failures > MOST_FAILURES) {
                        throw e;
                    }
                }
            }
            if (comm.rank() == 0) {
                trainer.save(weights, "checkpoint");
                System.out.println("loss " + Double.toHexString(loss(weights)));
            }
        } finally {
            comm.close();
        }
    }

    /** One step: a gradient of this rank's samples, summed over all ranks. */
    private void train(Communicator comm, Buffer weights, Buffer gradient) throws IOException {
        double[] sum = new double[FEATURES];
        for (int i = comm.rank(); i < BATCH; i += comm.size()) {
            double[] x = sample((long) step * BATCH + i);
            double error = output(weights, x) - x[FEATURES];
            for (int f = 0; f < FEATURES; f++) {
                sum[f] += error * x[f];
            }
        }
        for (int f = 0; f < FEATURES; f++) {
            gradient.set(f, sum[f]);
        }
        exchange(gradient, stream -> comm.allReduce(shared, ReduceOp.SUM, stream));
        // Only now, so that a step that fails has changed nothing.
        for (int f = 0; f < FEATURES; f++) {
            weights.set(f, weights.get(f) - RATE / BATCH * gradient.get(f));
        }
        step++;
        if (comm.rank() == 0 && step % 50 == 0) {
            save(weights, "checkpoint");
            System.out.println("step " + step);
        }
    }

    /**
     * Who is left. Each signs in; the first one to do so waits until only one is missing, or the
     * grace is over, and then closes the list, which counts for all.
     */
    private List<Integer> survivors(int round, int before) throws InterruptedException {
        String key = "survivors/" + round + "/";
        store.set(key + identity, new byte[] {1});
        long place = store.add(key + "count", 1);
        if (place == 1) {
            long end = System.nanoTime() + GRACE.toNanos();
            while (store.add(key + "count", 0) < before - 1 && System.nanoTime() < end) {
                Thread.sleep(20);
            }
            ByteBuffer list = ByteBuffer.allocate(256);
            for (int id = 0; id < list.capacity(); id++) {
                list.put(id, store.get(key + id) == null ? (byte) 0 : 1);
            }
            store.set(key + "list", list.array());
        }
        byte[] list = store.await(key + "list", PATIENCE);
        List<Integer> left = new ArrayList<>();
        for (int id = 0; id < list.length; id++) {
            if (list[id] != 0) {
                left.add(id);
            }
        }
        if (!left.contains(identity)) {
            throw new IllegalStateException("the others went on without rank " + identity);
        }
        return left;
    }

    /** Some may have ended the step that failed on others: all take over the newest weights. */
    private void agree(Communicator comm, Buffer weights, Buffer scratch) {
        scratch.set(0, (double) step * comm.size() + comm.rank());
        exchange(scratch, stream -> comm.allReduce(shared, ReduceOp.MAX, stream));
        long newest = (long) scratch.get(0);
        int root = (int) (newest % comm.size());
        exchange(weights, stream -> comm.broadcast(shared, root, stream));
        step = (int) (newest / comm.size());
    }

    /** Runs an operation on host values that travel to the device and back. */
    private void exchange(Buffer values, Consumer<Stream> operation) {
        Stream stream = shared.device().defaultStream();
        stream.copy(values, shared);
        operation.accept(stream);
        stream.copy(shared, values);
        stream.synchronize(); // errors surface here
    }

    private void save(Buffer weights, String name) throws IOException {
        ByteBuffer bytes = ByteBuffer.allocate(Integer.BYTES + FEATURES * Double.BYTES);
        bytes.putInt(step);
        for (int f = 0; f < FEATURES; f++) {
            bytes.putDouble(weights.get(f));
        }
        // Whole or not at all.
        Path part = Files.write(folder.resolve(name + ".part"), bytes.array());
        Files.move(part, folder.resolve(name), StandardCopyOption.ATOMIC_MOVE);
    }

    private void load(Buffer weights) throws IOException {
        for (int f = 0; f < FEATURES; f++) {
            weights.set(f, 0);
        }
        Path checkpoint = folder.resolve("checkpoint");
        if (Files.exists(checkpoint)) {
            ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(checkpoint));
            step = bytes.getInt();
            for (int f = 0; f < FEATURES; f++) {
                weights.set(f, bytes.getDouble());
            }
            System.out.println("from step " + step);
        }
    }

    /** Inputs, and behind them what the output should be. */
    private static double[] sample(long number) {
        SplittableRandom random = new SplittableRandom(number);
        double[] x = new double[FEATURES + 1];
        double target = 0;
        for (int f = 0; f < FEATURES; f++) {
            x[f] = random.nextDouble(-1, 1);
            target += x[f] * (f - 3.5);
        }
        x[FEATURES] = Math.tanh(target);
        return x;
    }

    private static double output(Buffer weights, double[] x) {
        double sum = 0;
        for (int f = 0; f < FEATURES; f++) {
            sum += weights.get(f) * x[f];
        }
        return Math.tanh(sum);
    }

    private static double loss(Buffer weights) {
        double sum = 0;
        for (int i = 0; i < 60; i++) {
            double[] x = sample(-1 - i);
            double error = output(weights, x) - x[FEATURES];
            sum += error * error / 60;
        }
        return sum;
    }
}
