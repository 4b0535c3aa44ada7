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
    /** Of {@code train}. */
    TRAIN(d -> d.path("jccl_train").path("runs").isArray(), Training::add),
    /** Of {@code fit-demo}. */
    FIT_DEMO(d -> d.path("jccl_fit_demo").path("sets").isArray(), Fits::add),
    /** Of {@code probe}. */
    PROBE(d -> d.path("roofline").isObject() && d.path("matmul").isArray(), Probes::add),
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
        return this == TOPOLOGY ? "topo" : name().toLowerCase(Locale.ROOT).replace('_', '-');
    }

    static @Nullable Kind of(JsonNode document) {
        for (Kind k : values()) {
            if (k.test.test(document)) {
                return k;
            }
        }
        return null;
    }

    /** What a document is from which no report is made. */
    static String without(JsonNode d) {
        if (d.has("host_engine")) {
            return "of jccl doctor, which has no charts";
        }
        if (d.has("micro_batch") && d.has("sources")) {
            return "of jccl plan, which has no charts";
        }
        if (d.path("communicators").isArray()) {
            return "of jccl flight, whose page jccl flight --html makes from the recordings";
        }
        if (d.path("gpus").isArray() && d.has("links")) {
            return "of jccl topo without predictions: its dump has no graph";
        }
        return "JSON of something else";
    }

    /** Adds the figures and tables of runs of this kind. */
    void add(Page page, List<Run> runs) {
        add.accept(page, runs);
    }
}
