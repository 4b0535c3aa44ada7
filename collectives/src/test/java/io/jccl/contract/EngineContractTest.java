package io.jccl.contract;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.fail;

import io.jccl.contract.RankLoop.Failure;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.IntFunction;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * What every engine has to do. An engine's own test extends this class and says how to run ranks.
 * The default run takes {@link Covering} cases on few ranks; the exhaustive one takes all.
 *
 * <p>{@code -Djccl.seed=} repeats a run, {@code -Djccl.ranks=2,3} runs these world sizes only, and
 * {@code -Djccl.case="<text of a case>"} that case only.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Timeout(value = 10, unit = TimeUnit.MINUTES)
public abstract class EngineContractTest {
    private static final int MOST_RESTARTS = 8;
    private static final int MOST_SHOWN = 10;

    private final long seed = Long.getLong("jccl.seed", System.nanoTime() & 0xFFFFFFF);
    private final Map<Integer, World> covered = new TreeMap<>();
    private final Map<Integer, World> full = new TreeMap<>();

    /**
     * Runs cases in order on a fresh world. It ends early when a rank's communicator breaks.
     *
     * @param ranks number of ranks
     * @param cases what every rank runs, as {@link RankLoop} does
     * @return what went wrong on any rank
     * @throws Exception if the ranks could not be run at all
     */
    protected abstract List<Failure> run(int ranks, List<Case> cases) throws Exception;

    /**
     * World sizes of the exhaustive run.
     *
     * @return numbers of ranks
     */
    protected int[] worldSizes() {
        return new int[] {1, 2, 3, 4, 5, 8};
    }

    /**
     * World sizes of the default run.
     *
     * @return numbers of ranks
     */
    protected int[] coveredSizes() {
        return new int[] {2, 3};
    }

    /**
     * Whether the default run takes each element type with few operations only, since another test
     * has the same loops over elements.
     *
     * @return whether fewer cases are enough
     */
    protected boolean fewTypes() {
        return false;
    }

    /**
     * Which part of the pairs of values is to occur in the exhaustive run.
     *
     * @param ranks number of ranks
     * @return 1 for all, k for about one of k
     */
    protected int thinness(int ranks) {
        return 1;
    }

    /**
     * What this engine makes of the cases.
     *
     * @param cases all cases of a world
     * @return those to run
     */
    protected List<Case> adapt(List<Case> cases) {
        return cases;
    }

    private record World(List<Case> cases, Map<Integer, List<Failure>> failures, String incident) {}

    final Stream<Arguments> coveredWorlds() {
        return worldsAndCollectives(coveredSizes());
    }

    final Stream<Arguments> fullWorlds() {
        return worldsAndCollectives(worldSizes());
    }

    private static Stream<Arguments> worldsAndCollectives(int[] worldSizes) {
        List<Arguments> all = new ArrayList<>();
        String only = System.getProperty("jccl.case");
        if (only != null) {
            Case c = Case.parse(only);
            return Stream.of(Arguments.of(c.ranks(), c.collective()));
        }
        String sizes = System.getProperty("jccl.ranks");
        int[] wanted =
                sizes == null
                        ? worldSizes
                        : Arrays.stream(sizes.split(",", -1)).mapToInt(Integer::parseInt).toArray();
        for (int ranks : wanted) {
            for (Collective collective : Collective.values()) {
                all.add(Arguments.of(ranks, collective));
            }
        }
        return all.stream();
    }

    @ParameterizedTest(name = "{1} on {0} ranks")
    @MethodSource("coveredWorlds")
    final void collective(int ranks, Collective collective) throws Exception {
        check(world(ranks, covered, this::usual), collective, ranks);
    }

    @Tag("exhaustive")
    @ParameterizedTest(name = "{1} on {0} ranks, all cases")
    @MethodSource("fullWorlds")
    final void allCases(int ranks, Collective collective) throws Exception {
        check(world(ranks, full, this::all), collective, ranks);
    }

    private void check(World world, Collective collective, int ranks) {
        int total = 0;
        List<String> failed = new ArrayList<>();
        for (int i = 0; i < world.cases.size(); i++) {
            Case c = world.cases.get(i);
            if (c.collective() != collective) {
                continue;
            }
            total++;
            List<Failure> failures = world.failures.get(i);
            if (failures != null) {
                Failure first = failures.getFirst();
                failed.add(
                        "\n  case "
                                + c
                                + "\n    on "
                                + failures.size()
                                + " rank(s), rank "
                                + first.rank()
                                + ": "
                                + first.message());
            }
        }
        if (!failed.isEmpty()) {
            fail(
                    failed.size()
                            + " of "
                            + total
                            + " cases failed, -Djccl.seed="
                            + seed
                            + String.join(
                                    "", failed.subList(0, Math.min(MOST_SHOWN, failed.size())))
                            + world.incident);
        }
        if (total == 0) {
            fail("no cases for " + collective.label() + " on " + ranks + " ranks");
        }
    }

    private List<Case> usual(int ranks) {
        return fewTypes()
                ? Covering.ofOperations(adapt(Cases.all(ranks, seed, 1)))
                : covering(ranks);
    }

    /** Chosen among all, not among some of them, or some value would have no case. */
    private List<Case> covering(int ranks) {
        return Covering.of(adapt(Cases.all(ranks, seed, 1)));
    }

    /** On few ranks at least those that cover: the default run takes them on some sizes only. */
    private List<Case> all(int ranks) {
        Set<Case> all = new LinkedHashSet<>(adapt(Cases.all(ranks, seed, thinness(ranks))));
        if (ranks <= 3) {
            all.addAll(covering(ranks));
        }
        return all.stream().sorted(Comparator.comparing(Case::algorithm)).toList();
    }

    /** Runs all cases of a world size once, with a new world where one broke. */
    private World world(int ranks, Map<Integer, World> worlds, IntFunction<List<Case>> selection)
            throws Exception {
        World known = worlds.get(ranks);
        if (known != null) {
            return known;
        }
        String only = System.getProperty("jccl.case");
        List<Case> cases = only != null ? List.of(Case.parse(only)) : selection.apply(ranks);
        System.out.println(
                getClass().getSimpleName()
                        + ": "
                        + cases.size()
                        + " cases on "
                        + ranks
                        + " ranks, -Djccl.seed="
                        + seed);
        Map<Integer, List<Failure>> all = new TreeMap<>();
        String incident = "";
        int from = 0;
        int restarts = 0;
        while (from < cases.size()) {
            List<Failure> failures = run(ranks, cases.subList(from, cases.size()));
            int end =
                    failures.stream()
                            .filter(Failure::ends)
                            .mapToInt(Failure::index)
                            .min()
                            .orElse(cases.size() - from - 1);
            for (Failure f : failures) {
                if (f.index() <= end) {
                    List<Failure> ofCase =
                            all.computeIfAbsent(from + f.index(), i -> new ArrayList<>());
                    ofCase.add(f);
                    // a rank that broke for its own reason tells more than those it took along
                    ofCase.sort(Comparator.comparing(EngineContractTest::isConsequence));
                }
            }
            from += end + 1;
            if (from < cases.size() && ++restarts > MOST_RESTARTS) {
                incident = "\n  given up after " + restarts + " broken worlds";
                for (int i = from; i < cases.size(); i++) {
                    all.put(i, List.of(new Failure(i, 0, true, "not run")));
                }
                break;
            }
        }
        World world = new World(cases, all, incident);
        worlds.put(ranks, world);
        return world;
    }

    private static boolean isConsequence(Failure failure) {
        return failure.message().contains("RankFailedException")
                || failure.message().contains("CollectiveTimeoutException");
    }

    @Test
    final void caseTextIsComplete() {
        for (Case c : Cases.all(3, seed, 1)) {
            assertEquals(c, Case.parse(c.toString()));
        }
    }
}
