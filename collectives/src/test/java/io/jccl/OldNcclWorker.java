package io.jccl;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.ArrayList;
import java.util.List;

/** A JVM with an NCCL before 2.27, in which the newer functions are missing. */
public final class OldNcclWorker {
    private static final int RANKS = 3;

    private interface Newer {
        void on(NcclCommunicator c);
    }

    private OldNcclWorker() {}

    /**
     * Prints {@code OLD ok}, or what is wrong.
     *
     * @param args none
     */
    public static void main(String[] args) {
        try {
            List<Communicator> ranks =
                    Communicator.local(NcclRanks.devices(RANKS), NcclRanks.OPTIONS);
            NcclRanks.checkUsable(ranks);
            NcclRanks.each(ranks, OldNcclWorker::exchange);
            NcclRanks.each(ranks, OldNcclWorker::refusals);
            NcclRanks.checkUsable(ranks);
            NcclRanks.close(ranks);
            oneRank();
            System.out.println("OLD ok");
        } catch (Throwable t) {
            t.printStackTrace(System.out);
            System.out.println("OLD " + t);
        }
    }

    /** What NCCL has since 2.28 only. */
    private static void exchange(Communicator c) {
        int me = c.rank();
        Stream stream = c.device().defaultStream();
        try (Buffer all = c.device().allocate(DataType.INT32, RANKS);
                Buffer got = c.device().allocate(DataType.INT32, RANKS);
                Buffer one = c.device().allocate(DataType.INT32, 1)) {
            for (int i = 0; i < RANKS; i++) {
                all.setLong(i, 10 * me + i);
            }
            c.allToAll(all, got, stream);
            stream.synchronize(NcclRanks.PATIENCE);
            for (int i = 0; i < RANKS; i++) {
                expect(10 * i + me, got.getLong(i), "allToAll");
            }
            c.allToAll(got, stream);
            c.scatter(got, one, 1, stream);
            stream.synchronize(NcclRanks.PATIENCE);
            expect(10 + me, one.getLong(0), "scatter");
            c.gather(one, me == 2 ? got : null, 2, stream);
            stream.synchronize(NcclRanks.PATIENCE);
            for (int i = 0; i < RANKS && me == 2; i++) {
                expect(10 + i, got.getLong(i), "gather");
            }
        }
    }

    /**
     * NCCL before 2.29.7 loses a rest there, of averages too: src/device/onerank.cu:25 of 2.29.3.
     */
    private static void oneRank() {
        List<Communicator> alone = Communicator.local(NcclRanks.devices(1), NcclRanks.OPTIONS);
        Communicator c = alone.getFirst();
        Stream stream = c.device().defaultStream();
        for (int count : new int[] {0, 1, 2049, 87_382, 262_145}) {
            try (Buffer in = c.device().allocate(DataType.FLOAT64, count);
                    Buffer out = c.device().allocate(DataType.FLOAT64, count)) {
                double[] values = new double[count];
                for (int i = 0; i < count; i++) {
                    values[i] = 1 + i % 1000;
                }
                try (Buffer host = Device.host().allocate(DataType.FLOAT64, count)) {
                    for (int i = 0; i < count; i++) {
                        host.set(i, values[i]);
                    }
                    in.copyFrom(host.asSegment());
                    for (ReduceOp op : List.of(ReduceOp.AVG, ReduceOp.preMulSum(3))) {
                        out.zero();
                        c.allReduce(in, out, op, stream);
                        stream.synchronize(NcclRanks.PATIENCE);
                        out.copyTo(host.asSegment());
                        double factor = op.kind() == ReduceOp.Kind.AVG ? 1 : 3;
                        for (int i = 0; i < count; i++) {
                            if (host.get(i) != factor * values[i]) {
                                throw new AssertionError(
                                        op
                                                + ", element "
                                                + i
                                                + " of "
                                                + count
                                                + ": "
                                                + host.get(i));
                            }
                        }
                    }
                }
            }
        }
        NcclRanks.close(alone);
    }

    private static void expect(long expected, long actual, String what) {
        if (expected != actual) {
            throw new AssertionError(what + ": expected " + expected + ", got " + actual);
        }
    }

    private static void refusals(Communicator c) {
        NcclCommunicator n = NcclRanks.nccl(c);
        Stream stream = c.device().defaultStream();
        List<Newer> calls = new ArrayList<>();
        calls.add(x -> x.shrink(List.of((x.rank() + 1) % RANKS), false));
        calls.add(x -> x.grow("more", RANKS + 1));
        calls.add(NcclCommunicator::revoke);
        calls.add(NcclCommunicator::suspend);
        calls.add(NcclCommunicator::resume);
        calls.add(x -> x.memory(NcclCommunicator.MemoryStatistic.TOTAL));
        calls.add(x -> x.signal((x.rank() + 1) % RANKS, stream));
        calls.add(x -> x.waitSignal((x.rank() + 1) % RANKS, 1, stream));
        for (int i = 0; i < calls.size(); i++) {
            if (c.rank() != 0 && i == 1) {
                // Only rank 0 has anything to do before the others come.
                continue;
            }
            try {
                calls.get(i).on(n);
            } catch (UnsupportedOperationException e) {
                String text = String.valueOf(e.getMessage());
                if (text.contains("2.21.5") && text.matches("(?s).*2\\.2[789].*")) {
                    continue;
                }
                throw new AssertionError("call " + i + " does not name both versions: " + text, e);
            }
            throw new AssertionError("call " + i + " is not refused");
        }
    }
}
