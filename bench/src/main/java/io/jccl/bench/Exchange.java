package io.jccl.bench;

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
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;

/**
 * What the ranks of a benchmark tell each other, through the communicator itself: where they run,
 * and numbers. What arrives is checked, because ranks that disagree about a time stop at different
 * operations and wait for each other.
 *
 * <p><b>Threads:</b> one, that of the rank.
 */
final class Exchange implements AutoCloseable {
    private static final int CARD_BYTES = 2048;
    private static final int CARD_LINES = 7;
    private static final int HEAD_BYTES = 2 * Integer.BYTES;

    private final Communicator comm;
    private final Stream stream;
    private final Buffer numbers;

    /**
     * Allocates.
     *
     * @param comm all ranks
     * @param most how many numbers are combined at once
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
     * @throws JcclException if the result cannot follow from what this rank gave
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
     * Makes one time of those of all ranks. All ranks call it.
     *
     * @param which whose counts
     * @param mine this rank's times
     * @return the times that count
     */
    double[] average(Average which, double... mine) {
        return switch (which) {
            // Zeros of the others leave it as it is.
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
        // Rounding of a mean.
        boolean possible = all >= least * (1 - 1e-9) && all <= most;
        if (!possible) {
            throw wrong(
                    "allReduce ("
                            + op
                            + ") of the ranks' numbers gave "
                            + all
                            + ", which cannot be, as this rank gave "
                            + mine);
        }
    }

    /**
     * Tells every rank where all run. All ranks call it.
     *
     * @param group this rank's group
     * @return one entry for each rank
     * @throws JcclException if what arrived is not what a rank sent
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
                                shortened(hostName()),
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
                    "allGather of where the ranks run gave rank "
                            + comm.rank()
                            + " something else for rank "
                            + rank
                            + " than that rank sent");
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
                "rank "
                        + rank
                        + " sent "
                        + got
                        + " where rank "
                        + comm.rank()
                        + " expected "
                        + expected
                        + ": the two run different versions of JCCL; run jccl version on both hosts");
    }

    private JcclException wrong(String what) {
        return new JcclException(
                what
                        + ": engine "
                        + comm.engine()
                        + " moves wrong data, so nothing can be measured; run jccl selftest with"
                        + " the same --engine to see which operations are wrong");
    }

    private static int checksum(byte[] text) {
        CRC32 crc = new CRC32();
        crc.update(text);
        return (int) crc.getValue();
    }

    /** On one line, and so short that a card holds it in any encoding. */
    private static String shortened(String text) {
        String line = text.replace('\n', ' ');
        return line.length() <= 100 ? line : line.substring(0, 100);
    }

    /** Not through InetAddress, which may wait for a name server. */
    private static String hostName() {
        String name = "";
        try {
            name = Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
        } catch (IOException e) {
            // Not Linux.
        }
        return name.isBlank() ? System.getenv().getOrDefault("HOSTNAME", "localhost") : name;
    }

    /** Those of the calling thread; empty if unknown, or scattered beyond what a card holds. */
    private static String allowedCpus() {
        String list = Cpus.text(Cpus.ofThread());
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
