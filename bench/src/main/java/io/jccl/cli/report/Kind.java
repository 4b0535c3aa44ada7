package io.jccl.cli.report;

import com.fasterxml.jackson.databind.JsonNode;
import io.jccl.bench.report.Page;
import java.util.List;
import java.util.Locale;
import java.util.function.BiConsumer;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/** Kinds of JSON documents that reports are made from. */
enum Kind {
    /** A collective. */
    COLLECTIVE(
            d -> d.path("config").path("collective").isTextual() && d.path("results").isArray(),
            Sweeps::add),
    /** Of {@code topo}: what it predicts is drawn with the collectives. */
    TOPOLOGY(d -> d.path("gpus").isArray() && d.path("plan").has("predictions"), Sweeps::add),
    /** Of {@code bandwidth}. */
    BANDWIDTH(d -> d.path("jccl_bandwidth").path("testcases").isArray(), Bars::bandwidth),
    /** Of {@code offload}. */
    OFFLOAD(d -> d.path("jccl_offload").isObject(), Bars::offload),
    /** Of {@code matmul}. */
    MATMUL(d -> d.path("gigaflops").isNumber() && d.path("plan").isObject(), Bars::matmul),
    /** Of {@code bench/peers/run}. */
    PEERS(d -> d.path("rounds").isNumber() && d.at("/results/0/micros").isObject(), Peers::add);

    private final Predicate<JsonNode> test;
    private final BiConsumer<Page, List<Run>> add;

    Kind(Predicate<JsonNode> test, BiConsumer<Page, List<Run>> add) {
        this.test = test;
        this.add = add;
    }

    /** The command that writes such documents; for collectives one of several. */
    String command() {
        return this == TOPOLOGY ? "topo" : name().toLowerCase(Locale.ROOT);
    }

    static @Nullable Kind of(JsonNode document) {
        for (Kind k : values()) {
            if (k.test.test(document)) {
                return k;
            }
        }
        return null;
    }

    /** Adds the figures and tables of runs of this kind. */
    void add(Page page, List<Run> runs) {
        add.accept(page, runs);
    }
}
