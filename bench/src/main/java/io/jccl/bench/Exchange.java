package io.jccl.bench;

import static io.jccl.cli.shell.Text.format;

import io.jccl.Communicator;
import io.jccl.ReduceOp;
import io.jccl.bench.PerfConfig.Average;
import io.jccl.device.Buffer;
import io.jccl.device.Cuda;
import io.jccl.device.DataType;
import io.jccl.device.Device;
import io.jccl.device.Stream;
import io.jccl.error.JcclException;
import io.jccl.internal.Cpus;
import io.jccl.internal.HostName;
import io.jccl.topology.CpuList;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;

/**
 * Exchanges data among the ranks of a benchmark through the communicator itself: their location and
 * numbers. Received data is checked, because ranks that disagree about a time would stop at
 * different operations and deadlock.
 *
 * <p><b>Threads:</b> the thread of the rank.
 */
final class Exchange implements AutoCloseable {
    private static final int CARD_BYTES = 2048;
    private static final int CARD_LINES = 7;
    private static final int HEAD_BYTES = 2 * Integer.BYTES;

    private final Communicator comm;
    private final Stream stream;
    private final Buffer numbers;

    /**
     * Allocates buffers.
     *
     * @param comm communicator of all ranks
     * @param most maximum number of values combined at once
     */
    Exchange(Communicator comm, int most) {
        this.comm = comm;
        this.stream = comm.device().defaultStream();
        this.numbers = comm.device().allocate(DataType.FLOAT64, most);
    }

    /**
     * Combines numbers over ranks. All ranks call it.
     *
     * @param op sum, avg, min or max
     * @param mine this rank's numbers, none negative
     * @return the same on all ranks for min and max
     * @throws JcclException if the result is inconsistent with this rank's numbers
     */
    double[] combine(ReduceOp op, double... mine) {
        double[] all = new double[mine.length];
        Buffer part = numbers.slice(0, mine.length);
        for (int i = 0; i < mine.length; i++) {
            part.set(i, mine[i]);
        }
        comm.allReduce(part, op, stream);
        stream.synchronize();
        for (int i = 0; i < mine.length; i++) {
            all[i] = part.get(i);
            check(op, mine[i], all[i]);
        }
        return all;
    }

    /**
     * Combines the times of all ranks. All ranks call it.
     *
     * @param which how to combine
     * @param mine this rank's times
     * @return the combined times
     */
    double[] average(Average which, double... mine) {
        return switch (which) {
            // The others contribute zeros, which do not change it.
            case RANK_0 -> combine(ReduceOp.MAX, comm.rank() == 0 ? mine : new double[mine.length]);
            case MEAN -> combine(ReduceOp.AVG, mine);
            case MIN -> combine(ReduceOp.MIN, mine);
            case MAX -> combine(ReduceOp.MAX, mine);
        };
    }

    private void check(ReduceOp op, double mine, double all) {
        double least =
                switch (op.kind()) {
                    case AVG -> mine / comm.size();
                    case MIN -> 0;
                    default -> mine;
                };
        double most = op.kind() == ReduceOp.Kind.MIN ? mine : Double.MAX_VALUE;
        // Allows for rounding of a mean.
        boolean possible = all >= least * (1 - 1e-9) && all <= most;
        if (!possible) {
            throw wrong(
                    format(
                            "allReduce (%s) of the ranks' numbers gave %s, which cannot be, as"
                                    + " this rank gave %s",
                            op, all, mine));
        }
    }

    /**
     * Gathers the location of all ranks on every rank. All ranks call it.
     *
     * @param group this rank's group
     * @return one entry per rank
     * @throws JcclException if a rank's entry was received incorrectly
     */
    List<Report.RankInfo> gather(int group) {
        int ranks = comm.size();
        byte[] text =
                String.join(
                                "\n",
                                Long.toString(ProcessHandle.current().pid()),
                                Integer.toString(group),
                                Integer.toString(comm.device().index()),
                                Integer.toString(Runtime.getRuntime().availableProcessors()),
                                shortened(HostName.OWN),
                                allowedCpus(),
                                shortened(processor()))
                        .getBytes(StandardCharsets.UTF_8);
        ByteBuffer card = ByteBuffer.allocate(CARD_BYTES);
        card.putInt(text.length).putInt(checksum(text)).put(text);
        try (Buffer all = comm.device().allocate(DataType.UINT8, (long) CARD_BYTES * ranks)) {
            all.slice((long) comm.rank() * CARD_BYTES, CARD_BYTES)
                    .copyFrom(MemorySegment.ofArray(card.array()));
            comm.allGather(all, stream);
            stream.synchronize();
            byte[] cards = new byte[CARD_BYTES * ranks];
            all.copyTo(MemorySegment.ofArray(cards));
            List<Report.RankInfo> infos = new ArrayList<>();
            for (int r = 0; r < ranks; r++) {
                infos.add(info(r, ByteBuffer.wrap(cards, r * CARD_BYTES, CARD_BYTES)));
            }
            return infos;
        }
    }

    private Report.RankInfo info(int rank, ByteBuffer card) {
        int length = card.getInt();
        int sum = card.getInt();
        byte[] text = new byte[Math.clamp(length, 0, CARD_BYTES - HEAD_BYTES)];
        card.get(text);
        if (text.length != length || length == 0 || checksum(text) != sum) {
            throw wrong(
                    format(
                            "allGather of where the ranks run gave rank %s something else for"
                                    + " rank %s than that rank sent",
                            comm.rank(), rank));
        }
        String[] parts = new String(text, StandardCharsets.UTF_8).split("\n", -1);
        if (parts.length != CARD_LINES) {
            throw otherVersion(rank, parts.length + " lines", CARD_LINES + " lines");
        }
        return new Report.RankInfo(
                rank,
                (int) number(rank, "group", parts[1]),
                number(rank, "process id", parts[0]),
                parts[4],
                comm.engine(),
                (int) number(rank, "device index", parts[2]),
                parts[6],
                parts[5],
                (int) number(rank, "count of processors", parts[3]));
    }

    private long number(int rank, String name, String text) {
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException e) {
            throw otherVersion(rank, "\"" + text + "\"", "a number, its " + name);
        }
    }

    private JcclException otherVersion(int rank, String got, String expected) {
        return new JcclException(
                format(
                        "rank %s sent %s where rank %s expected %s: the two run different"
                                + " versions of JCCL; run jccl version on both hosts",
                        rank, got, comm.rank(), expected));
    }

    private JcclException wrong(String what) {
        return new JcclException(
                format(
                        "%s: engine %s moves wrong data, so nothing can be measured; run jccl"
                                + " selftest with the same --engine to see which operations are"
                                + " wrong",
                        what, comm.engine()));
    }

    private static int checksum(byte[] text) {
        CRC32 crc = new CRC32();
        crc.update(text);
        return (int) crc.getValue();
    }

    /** On one line, and short enough for an entry in any encoding. */
    private static String shortened(String text) {
        String line = text.replace('\n', ' ');
        return line.length() <= 100 ? line : line.substring(0, 100);
    }

    /** CPUs of the calling thread; empty if unknown or too long for an entry. */
    private static String allowedCpus() {
        String list = CpuList.text(Cpus.ofThread());
        return list.length() <= 1000 ? list : "";
    }

    private String processor() {
        Device device = comm.device();
        if (device.kind() == Device.Kind.CUDA) {
            Cuda.DeviceInfo info = Cuda.info(device);
            return info.pciBusId() + " " + info.model();
        }
        return Cpus.model();
    }

    @Override
    public void close() {
        numbers.close();
    }
}
