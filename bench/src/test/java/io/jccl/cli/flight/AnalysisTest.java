package io.jccl.cli.flight;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.cli.flight.Findings.Lateness;
import io.jccl.cli.flight.Findings.Link;
import java.io.IOException;
import java.lang.reflect.RecordComponent;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What is found, against runs that are made up, so that the truth is known. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class AnalysisTest {
    private static final Signature SUM = new Signature("allReduce", "float", "sum", -1);
    private static final Signature BARRIER = new Signature("barrier", "int8", "", -1);

    private Random random = new Random();

    @BeforeEach
    void seed() {
        long seed = Long.getLong("jccl.seed", System.nanoTime());
        System.out.println("AnalysisTest seed " + seed);
        random = new Random(seed);
    }

    /** Clocks that are off by hours and drift; ranks that come late by known times. */
    @Test
    void clocksAreSetAndLatenessIsExactThen() {
        for (int round = 0; round < 20; round++) {
            int ranks = 2 + random.nextInt(7);
            int n = 500 + random.nextInt(3000);
            long[] off = new long[ranks];
            double[] drift = new double[ranks];
            for (int r = 1; r < ranks; r++) {
                off[r] = random.nextLong(-4_000_000_000_000L, 4_000_000_000_000L);
                // parts per million, as quartz has
                drift[r] = random.nextInt(-100, 100) / 1e6;
            }
            World w = new World("w", "made up", ranks);
            long[][] late = new long[ranks][n];
            long now = 1_000_000_000_000L;
            for (int i = 0; i < n; i++) {
                long first = Long.MAX_VALUE;
                long last = 0;
                long[] at = new long[ranks];
                for (int r = 0; r < ranks; r++) {
                    at[r] = now + random.nextInt(r == 0 ? 1000 : 100_000);
                    first = Math.min(first, at[r]);
                    last = Math.max(last, at[r]);
                }
                long end = last + 5000;
                for (int r = 0; r < ranks; r++) {
                    late[r][i] = at[r] - first;
                    w.track(r)
                            .add(
                                    i + 1,
                                    i + 1,
                                    w.index(SUM),
                                    64,
                                    256,
                                    at[r] + off[r] + (long) (at[r] * drift[r]),
                                    end + off[r] + (long) (end * drift[r]),
                                    Track.COMPLETED);
                }
                now = end + random.nextInt(200_000);
            }
            w.tracks.values().forEach(Track::sort);
            Findings f = Analysis.of(w, true);
            assertNull(f.divergence());
            assertTrue(f.aligned());
            for (int r = 0; r < ranks; r++) {
                Arrays.sort(late[r]);
                Lateness l = assertNotNullLateness(f, r);
                assertEquals(n, l.collectives());
                // A window's median is off by what drifts within half of it.
                near(late[r][(n * 50 + 99) / 100 - 1], l.p50());
                near(late[r][(n * 99 + 99) / 100 - 1], l.p99());
            }
        }
    }

    private static Lateness assertNotNullLateness(Findings f, int r) {
        Lateness l = f.ranks().get(r).lateness();
        assertNotNull(l);
        return l;
    }

    private static void near(long nanos, double micros) {
        assertEquals(nanos / 1000.0, micros, 2.0);
    }

    private World world(int ranks, int n) {
        World w = new World("w", "made up", ranks);
        for (int r = 0; r < ranks; r++) {
            for (int i = 1; i <= n; i++) {
                add(w, r, i, i % 7 == 0 ? BARRIER : SUM, 64);
            }
        }
        return w;
    }

    private static void add(World w, int rank, int i, Signature s, long count) {
        w.track(rank)
                .add(
                        i,
                        i,
                        w.index(s),
                        count,
                        count * 4,
                        i * 1000L,
                        i * 1000L + 500,
                        Track.COMPLETED);
    }

    @Test
    void firstDifferenceIsFoundWhateverItIs() {
        for (int round = 0; round < 200; round++) {
            int ranks = 3 + random.nextInt(6);
            int n = 20 + random.nextInt(300);
            int at = 1 + random.nextInt(n);
            int victim = random.nextInt(ranks);
            World w = world(ranks, n);
            Track t = w.track(victim);
            boolean missing = random.nextBoolean();
            if (missing) {
                t.size = at - 1;
            } else if (at % 7 != 0 && random.nextBoolean()) {
                // not a barrier, which has no count
                t.count[at - 1]++;
            } else {
                t.signature[at - 1] = w.index(new Signature("allReduce", "float", "max", -1));
            }
            w.tracks.values().forEach(Track::sort);
            Findings.Divergence d = Analysis.of(w, true).divergence();
            assertNotNull(d);
            assertEquals(at, d.sequence());
            assertEquals(missing ? "missing" : "different", d.kind());
            assertEquals(List.of(victim), d.behind());
        }
    }

    @Test
    void eventsThatWereLostAreNoDivergence() {
        World w = world(3, 100);
        Track t = w.track(1);
        // The flight recorder dropped #50: later ones are there.
        t.sequence[49] = 0;
        w.tracks.values().forEach(Track::sort);
        Findings f = Analysis.of(w, true);
        assertNull(f.divergence());
        assertTrue(f.notes().stream().anyMatch(s -> s.contains("lost events")), f::toString);
    }

    @Test
    void ringsThatForgotTheBeginningAreComparedWhereAllRemember() {
        World w = world(2, 100);
        World later = new World("w", "made up", 2);
        for (int i = 90; i <= 120; i++) {
            add(later, 1, i, i % 7 == 0 ? BARRIER : SUM, i == 95 ? 65 : 64);
        }
        w.tracks.remove(1);
        w.merge(later);
        w.tracks.values().forEach(Track::sort);
        Findings f = Analysis.of(w, true);
        assertEquals(95, Objects.requireNonNull(f.divergence()).sequence());
        assertTrue(f.notes().stream().anyMatch(s -> s.contains("begin at #90")), f::toString);
        assertEquals(89, f.ranks().get(1).forgotten());
    }

    @Test
    void slowestLinkComesFirstAndWaitingIsNotItsDoing() {
        World w = new World("w", "made up", 3);
        Signature to1 = new Signature("send", "int8", "", 1);
        Signature to2 = new Signature("send", "int8", "", 2);
        Signature from0 = new Signature("recv", "int8", "", 0);
        for (int i = 0; i < 10; i++) {
            long t = i * 1_000_000L;
            // 1 MB in 100 us to rank 1, which waited for it since long before; in 400 us to 2.
            w.track(0).add(2 * i + 1, 0, w.index(to1), 1 << 20, 1 << 20, t, t + 100_000, (byte) 1);
            w.track(1)
                    .add(
                            i + 1,
                            0,
                            w.index(from0),
                            1 << 20,
                            1 << 20,
                            t - 900_000,
                            t + 100_000,
                            (byte) 1);
            w.track(0)
                    .add(
                            2 * i + 2,
                            0,
                            w.index(to2),
                            1 << 20,
                            1 << 20,
                            t + 100_000,
                            t + 500_000,
                            (byte) 1);
            w.track(2).add(i + 1, 0, w.index(from0), 1 << 20, 1 << 20, t, t + 500_000, (byte) 1);
        }
        w.tracks.values().forEach(Track::sort);
        List<Link> links = Analysis.of(w, true).slowest();
        assertEquals(List.of(2, 1), links.stream().map(Link::to).toList());
        assertEquals((1 << 20) / 400_000.0, links.get(0).gbPerSecond(), 1e-9);
        assertEquals((1 << 20) / 100_000.0, links.get(1).gbPerSecond(), 1e-9);
        assertEquals(10, links.get(0).messages());
    }

    /** Those that {@code --json} writes are the components of the records. */
    @Test
    void everyFieldOfJsonIsDocumented() throws IOException {
        String page = Files.readString(Path.of("..", "docs", "flight-recorder.md"));
        List<String> missing =
                Stream.concat(
                                Stream.of(Findings.class),
                                Arrays.stream(Findings.class.getDeclaredClasses()))
                        .flatMap(type -> Arrays.stream(type.getRecordComponents()))
                        .map(RecordComponent::getName)
                        .filter(name -> !page.contains("`" + name + "`"))
                        .toList();
        assertEquals(List.of(), missing);
    }
}
