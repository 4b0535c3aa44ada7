package io.jccl.parallel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.parallel.PipelineStep.Action;
import io.jccl.parallel.PipelineStep.Kind;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Schedules alone, played with sends that wait for their recv. */
@Timeout(120)
class PipelineScheduleTest {
    private static final int STAGES = 16;
    private static final int MICRO_BATCHES = 64;

    /** Plays all ranks; time counts computations, messages take none. */
    private static final class Play {
        final PipelineSchedule schedule;
        final int stages;
        final int microBatches;
        final List<List<PipelineStep>> steps = new ArrayList<>();
        final int[] at;
        final int[] clock;
        final int[] inFlight;
        final int[] most;
        final List<Set<Action>> done = new ArrayList<>();
        final List<List<Action>> computed = new ArrayList<>();

        Play(PipelineSchedule schedule, int stages, int microBatches) {
            this.schedule = schedule;
            this.stages = stages;
            this.microBatches = microBatches;
            at = new int[stages];
            clock = new int[stages];
            inFlight = new int[stages];
            most = new int[stages];
            for (int r = 0; r < stages; r++) {
                steps.add(schedule.steps(stages, r, microBatches));
                done.add(new HashSet<>());
                computed.add(new ArrayList<>());
            }
        }

        @Override
        public String toString() {
            return schedule + " " + stages + " stages x " + microBatches;
        }

        int run() {
            boolean moved = true;
            while (moved) {
                moved = false;
                for (int r = 0; r < stages; r++) {
                    moved |= advance(r);
                }
            }
            for (int r = 0; r < stages; r++) {
                assertEquals(steps.get(r).size(), at[r], () -> "stuck: " + this);
            }
            int end = 0;
            for (int c : clock) {
                end = Math.max(end, c);
            }
            return end;
        }

        private boolean advance(int r) {
            if (at[r] == steps.get(r).size()) {
                return false;
            }
            List<Action> actions = steps.get(r).get(at[r]).actions();
            Action first = actions.getFirst();
            if (first.kind().isCompute()) {
                assertEquals(1, actions.size());
                compute(r, first);
                at[r]++;
                return true;
            }
            int peer = peer(r, first.kind());
            List<Action> theirs =
                    at[peer] < steps.get(peer).size()
                            ? steps.get(peer).get(at[peer]).actions()
                            : List.of();
            if (theirs.size() != actions.size()) {
                return false;
            }
            for (Action a : actions) {
                assertEquals(peer, peer(r, a.kind()), "one group, two neighbours");
                if (!theirs.contains(new Action(opposite(a.kind()), a.microBatch()))) {
                    return false;
                }
            }
            int now = Math.max(clock[r], clock[peer]);
            clock[r] = now;
            clock[peer] = now;
            for (Action a : actions) {
                message(r, a);
                message(peer, new Action(opposite(a.kind()), a.microBatch()));
            }
            at[r]++;
            at[peer]++;
            return true;
        }

        private void message(int r, Action a) {
            if (a.kind() == Kind.SEND_OUTPUT) {
                needs(r, Kind.FORWARD, a.microBatch());
            } else if (a.kind() == Kind.SEND_GRADIENT) {
                needs(r, Kind.BACKWARD, a.microBatch());
            }
            assertTrue(done.get(r).add(a), () -> "twice: " + a + ", " + this);
        }

        private void compute(int r, Action a) {
            int i = a.microBatch();
            if (a.kind() == Kind.FORWARD) {
                if (r > 0) {
                    needs(r, Kind.RECV_INPUT, i);
                }
                inFlight[r]++;
                most[r] = Math.max(most[r], inFlight[r]);
            } else {
                needs(r, Kind.FORWARD, i);
                if (r < stages - 1) {
                    needs(r, Kind.RECV_GRADIENT, i);
                }
                inFlight[r]--;
            }
            assertTrue(done.get(r).add(a), () -> "twice: " + a + ", " + this);
            computed.get(r).add(a);
            clock[r]++;
        }

        private void needs(int r, Kind kind, int i) {
            assertTrue(
                    done.get(r).contains(new Action(kind, i)),
                    () -> "rank " + r + " lacks " + kind + " " + i + ", " + this);
        }

        private int peer(int r, Kind kind) {
            boolean next = kind == Kind.SEND_OUTPUT || kind == Kind.RECV_GRADIENT;
            return next ? r + 1 : r - 1;
        }

        private static Kind opposite(Kind kind) {
            return switch (kind) {
                case SEND_OUTPUT -> Kind.RECV_INPUT;
                case RECV_INPUT -> Kind.SEND_OUTPUT;
                case SEND_GRADIENT -> Kind.RECV_GRADIENT;
                case RECV_GRADIENT -> Kind.SEND_GRADIENT;
                case FORWARD, BACKWARD -> throw new AssertionError(kind);
            };
        }
    }

    @ParameterizedTest
    @EnumSource
    void everyShapeRunsToItsEndWithinMemory(PipelineSchedule schedule) {
        everyShapeRunsToItsEndWithinMemory(schedule, STAGES / 2, MICRO_BATCHES / 2);
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @EnumSource
    void everyLargerShapeRunsToItsEndWithinMemory(PipelineSchedule schedule) {
        everyShapeRunsToItsEndWithinMemory(schedule, STAGES, MICRO_BATCHES);
    }

    private static void everyShapeRunsToItsEndWithinMemory(
            PipelineSchedule schedule, int stages, int microBatches) {
        for (int p = 1; p <= stages; p++) {
            for (int m = 1; m <= microBatches; m++) {
                Play play = new Play(schedule, p, m);
                int end = play.run();
                for (int r = 0; r < p; r++) {
                    String what = play + " rank " + r;
                    assertEquals(2 * m, play.computed.get(r).size(), what);
                    assertEquals(schedule.inFlight(p, r, m), play.most[r], what);
                    assertEquals(0, play.inFlight[r], what);
                    inOrder(play.computed.get(r), Kind.FORWARD, what);
                    inOrder(play.computed.get(r), Kind.BACKWARD, what);
                }
                // Forward and backward of a unit of time each: the formula holds exactly.
                assertEquals(2 * (m + p - 1), end, play::toString);
                assertEquals(
                        PipelineSchedule.bubble(p, m), 1 - 2.0 * m / end, 1e-12, play::toString);
            }
        }
    }

    private static void inOrder(List<Action> computed, Kind kind, String what) {
        int next = 0;
        for (Action a : computed) {
            if (a.kind() == kind) {
                assertEquals(next++, a.microBatch(), what);
            }
        }
    }

    @Test
    void oneForwardOneBackwardKeepsNoMoreThanStages() {
        for (int r = 0; r < 8; r++) {
            assertEquals(8 - r, PipelineSchedule.ONE_F_ONE_B.inFlight(8, r, 64));
            assertEquals(64, PipelineSchedule.GPIPE.inFlight(8, r, 64));
        }
        assertEquals(2, PipelineSchedule.ONE_F_ONE_B.inFlight(8, 0, 2));
    }

    @Test
    void faultyNumbersAreRefused() {
        PipelineSchedule s = PipelineSchedule.GPIPE;
        assertThrows(IllegalArgumentException.class, () -> s.steps(0, 0, 1));
        assertThrows(IllegalArgumentException.class, () -> s.steps(2, 2, 1));
        assertThrows(IllegalArgumentException.class, () -> s.steps(2, 0, 0));
        assertThrows(IllegalArgumentException.class, () -> PipelineSchedule.bubble(2, 0));
    }
}
