package io.jccl;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.device.Buffer;
import io.jccl.device.DataType;
import io.jccl.device.Stream;
import io.jccl.testfake.TestFake;
import io.jccl.testfake.UsesFakes;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranks that disagree hang in NCCL: the watchdog's report finds out who asked for what. */
@UsesFakes
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class NcclDisagreementTest {
    private static final CommunicatorOptions SHORT = NcclRanks.SHORT;

    @BeforeAll
    static void useDouble() {
        TestFake.use();
    }

    @BeforeEach
    void hang() {
        TestFake.mismatchHangs();
    }

    @AfterEach
    void reset() {
        NcclRanks.reset();
    }

    private static void finish(Communicator c) {
        c.device().defaultStream().synchronize(NcclRanks.PATIENCE);
    }

    private static void allReduce(Communicator c, long count) {
        c.allReduce(
                c.device().allocate(DataType.INT32, count),
                ReduceOp.SUM,
                c.device().defaultStream());
    }

    /** All ranks get to know the same; only who found out may be told differently. */
    private static String mismatch(List<@Nullable Throwable> errors) {
        for (Throwable t : errors) {
            assertInstanceOf(CollectiveMismatchException.class, t, errors::toString);
            assertEquals(who(NcclRanks.text(errors.getFirst())), who(NcclRanks.text(t)));
        }
        return NcclRanks.text(errors.getFirst());
    }

    private static String who(String message) {
        return message.substring(0, message.indexOf(". All ranks must call"));
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @ValueSource(
            strings = {
                "barrier",
                "count-of-zero",
                "type",
                "reduction",
                "root-of-reduce",
                "count-of-gather",
                "count-of-scatter",
            })
    void allRanksGetToKnowOfOtherDifferences(String name) {
        allRanksGetToKnowWhoAskedForWhat(name);
    }

    @ParameterizedTest
    @ValueSource(strings = {"collective", "count", "root"})
    void allRanksGetToKnowWhoAskedForWhat(String name) {
        Disagreements.Row row = Disagreements.ofName(name);
        List<Communicator> ranks = NcclRanks.open(3, SHORT);
        NcclRanks.checkUsable(ranks);
        String text =
                mismatch(
                        NcclRanks.errors(
                                ranks,
                                c -> {
                                    Disagreements.run(row, c);
                                    finish(c);
                                }));
        DisagreementTest.checkMessage(row, 3, text);
        assertTrue(text.contains("disagree on collective #2: rank 0 calls "), text);
        assertTrue(text.contains(NcclRanks.SOON.toString()), text);
    }

    /** The ranks are at different operations then: what counts is where they went apart. */
    @Test
    void firstOfManyDifferencesIsNamed() {
        List<Communicator> ranks = NcclRanks.open(3, SHORT);
        String text =
                mismatch(
                        NcclRanks.errors(
                                ranks,
                                c -> {
                                    allReduce(c, 4);
                                    if (c.rank() == 1) {
                                        c.barrier(c.device().defaultStream());
                                    }
                                    for (int i = 5; i < 20; i++) {
                                        allReduce(c, i);
                                    }
                                    finish(c);
                                }));
        assertTrue(
                text.contains(
                        "collective #2: rank 0 calls allReduce(int32, count 5, sum); rank 1 calls"
                                + " barrier; rank 2 calls allReduce(int32, count 5, sum)."),
                text);
    }

    @Test
    void rankThatHasNotComeYetIsSaidToBeBehind() {
        List<Communicator> ranks = NcclRanks.open(3, SHORT);
        NcclRanks.checkUsable(ranks);
        String text =
                mismatch(
                        NcclRanks.errors(
                                ranks,
                                c -> {
                                    if (c.rank() < 2) {
                                        allReduce(c, 4 + c.rank());
                                        finish(c);
                                    }
                                    while (c.rank() == 2) {
                                        finish(c);
                                        Thread.sleep(10);
                                    }
                                }));
        assertTrue(text.contains("rank 2 has not reached it"), text);
    }

    @Tag("exhaustive")
    @Test
    void threadThatWaitsForNcclToEnqueueGetsToKnow() {
        List<Communicator> ranks = NcclRanks.open(2, SHORT);
        NcclRanks.checkUsable(ranks);
        TestFake.inject("ncclAllReduce@0:1:late=" + (4_000 + NcclRanks.SOON.toMillis()));
        String text =
                mismatch(
                        NcclRanks.errors(
                                ranks,
                                c -> {
                                    if (c.rank() == 0) {
                                        allReduce(c, 4);
                                    } else {
                                        c.barrier(c.device().defaultStream());
                                    }
                                    finish(c);
                                }));
        assertTrue(text.contains("rank 1 calls barrier"), text);
    }

    // ---- what is none

    private static void isTimeout(List<@Nullable Throwable> errors) {
        boolean found = false;
        for (Throwable t : errors) {
            assertFalse(t instanceof CollectiveMismatchException, errors::toString);
            found |= t instanceof CollectiveTimeoutException;
        }
        assertTrue(found, errors::toString);
    }

    @Test
    void absentRankIsATimeout() {
        List<Communicator> ranks = NcclRanks.open(3, SHORT);
        NcclRanks.checkUsable(ranks);
        isTimeout(
                NcclRanks.errors(
                        ranks,
                        c -> {
                            if (c.rank() != 2) {
                                allReduce(c, 5);
                                finish(c);
                            }
                        }));
    }

    @Test
    void slowOperationIsATimeout() {
        List<Communicator> ranks = NcclRanks.open(3, SHORT);
        TestFake.inject("ncclAllReduce@1:3:stall");
        isTimeout(
                NcclRanks.errors(
                        ranks,
                        c -> {
                            for (int i = 1; i < 100; i++) {
                                allReduce(c, i);
                            }
                            finish(c);
                        }));
    }

    /** Messages count for those who send and receive them only. */
    @Test
    void messagesBetweenSomeAreNoDisagreement() {
        List<Communicator> ranks = NcclRanks.open(3, SHORT);
        isTimeout(
                NcclRanks.errors(
                        ranks,
                        c -> {
                            Stream s = c.device().defaultStream();
                            Buffer b = c.device().allocate(DataType.INT32, 3);
                            if (c.rank() == 0) {
                                c.send(b, 1, s);
                            } else if (c.rank() == 1) {
                                c.recv(b, 0, s);
                            }
                            c.barrier(s);
                            allReduce(c, 7);
                            if (c.rank() != 1) {
                                allReduce(c, 8);
                                finish(c);
                            }
                        }));
    }
}
