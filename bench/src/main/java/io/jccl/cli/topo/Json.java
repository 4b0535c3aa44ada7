package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.lower;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.MinimalPrettyPrinter;
import io.jccl.topology.cost.AlgorithmBound;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** The findings as JSON, see docs/topo.schema.json. */
public final class Json {
    /** One device, pair, channel or prediction per line. */
    private static final class Lines extends MinimalPrettyPrinter {
        private static final long serialVersionUID = 1;
        private static final int OBJECTS = 2;
        private static final int ARRAYS = 3;

        private int depth;

        @Override
        public void writeStartObject(JsonGenerator g) throws IOException {
            depth++;
            g.writeRaw('{');
        }

        @Override
        public void beforeObjectEntries(JsonGenerator g) throws IOException {
            line(g, OBJECTS);
        }

        @Override
        public void writeObjectFieldValueSeparator(JsonGenerator g) throws IOException {
            g.writeRaw(": ");
        }

        @Override
        public void writeObjectEntrySeparator(JsonGenerator g) throws IOException {
            g.writeRaw(depth <= OBJECTS ? "," : ", ");
            line(g, OBJECTS);
        }

        @Override
        public void writeEndObject(JsonGenerator g, int entries) throws IOException {
            depth--;
            if (entries > 0) {
                line(g, OBJECTS - 1);
            }
            g.writeRaw('}');
        }

        @Override
        public void writeStartArray(JsonGenerator g) throws IOException {
            depth++;
            g.writeRaw('[');
        }

        @Override
        public void beforeArrayValues(JsonGenerator g) throws IOException {
            line(g, ARRAYS);
        }

        @Override
        public void writeArrayValueSeparator(JsonGenerator g) throws IOException {
            g.writeRaw(depth <= ARRAYS ? "," : ", ");
            line(g, ARRAYS);
        }

        @Override
        public void writeEndArray(JsonGenerator g, int values) throws IOException {
            depth--;
            if (values > 0) {
                line(g, ARRAYS - 1);
            }
            g.writeRaw(']');
        }

        private void line(JsonGenerator g, int most) throws IOException {
            if (depth <= most) {
                g.writeRaw('\n');
                g.writeRaw("  ".repeat(depth));
            }
        }
    }

    private final Findings f;
    private final JsonGenerator g;

    private Json(Findings f, JsonGenerator g) {
        this.f = f;
        this.g = g;
    }

    /**
     * Writes a document.
     *
     * @param findings the findings
     * @return JSON, with a line feed at its end
     */
    public static String of(Findings findings) {
        StringWriter out = new StringWriter();
        try (JsonGenerator g = new JsonFactory().createGenerator(out)) {
            g.setPrettyPrinter(new Lines());
            new Json(findings, g).document();
        } catch (IOException e) {
            throw new UncheckedIOException(e); // a StringWriter does not throw
        }
        return out.append('\n').toString();
    }

    private void document() throws IOException {
        g.writeStartObject();
        field("schema", 1);
        field("name", f.name());
        objects(
                "gpus",
                f.gpus(),
                gpu -> {
                    field("index", gpu.index());
                    field("name", gpu.name());
                    field("cpuAffinity", gpu.cpuAffinity());
                    field("numaAffinity", gpu.numaAffinity());
                    field("gpuNumaId", gpu.gpuNumaId());
                    field("model", gpu.model());
                    field("computeCapability", gpu.computeCapability());
                    field("busId", gpu.busId());
                    field("nvlinks", gpu.nvlinks());
                    field("nvlinkGbps", gpu.nvlinkGbps());
                });
        objects(
                "nics",
                f.nics(),
                nic -> {
                    field("name", nic.name());
                    field("device", nic.device());
                    field("gbps", nic.gbps());
                });
        objects(
                "links",
                f.links(),
                p -> {
                    field("a", p.a());
                    field("b", p.b());
                    field("code", p.code());
                    field("kind", p.kind());
                    field("count", p.count());
                    field("gbps", p.gbps());
                });
        array("warnings", f.warnings(), g::writeString);
        plan();
        answers();
        g.writeEndObject();
    }

    private void plan() throws IOException {
        Plan plan = f.plan();
        ClusterPlan cluster = f.clusterPlan();
        if (plan == null && cluster == null) {
            g.writeNullField("plan");
            return;
        }
        g.writeObjectFieldStart("plan");
        field("op", f.operation().command());
        field("machines", f.machines());
        array("gpus", f.selected(), this::index);
        if (plan != null) {
            objects("channels", plan.channels(), this::channel);
            figures(plan.bandwidthGBps(), plan.boundGBps(), plan.bound());
            array("why", plan.why(), g::writeString);
        } else if (cluster != null) {
            objects("channels", cluster.channels(), this::rail);
            figures(cluster.bandwidthGBps(), cluster.boundGBps(), cluster.bound());
            array("why", cluster.why(), g::writeString);
        }
        objects(
                "predictions",
                f.predictions(),
                p -> {
                    field("op", p.op().command());
                    field("bytes", p.bytes());
                    field("algorithm", lower(p.algorithm()));
                    field("protocol", lower(p.protocol()));
                    field("timeUs", p.timeUs());
                    field("busbwGBps", p.busbwGBps());
                    g.writeNumberField("spread", p.spread());
                });
        Tuning tuning = f.tuning();
        List<AlgorithmBound> bounds = tuning == null ? List.of() : tuning.bounds();
        objects(
                "algorithms",
                bounds,
                b -> {
                    field("algorithm", lower(b.algorithm()));
                    field("busbwGBps", b.busbwGBps());
                    field("boundGBps", b.boundGBps());
                    field("bound", b.why());
                });
        List<String> assumptions = tuning == null ? List.of() : tuning.assumptions();
        array("assumptions", assumptions, g::writeString);
        g.writeEndObject();
    }

    /** Only what was asked. */
    private void answers() throws IOException {
        BestGpus best = f.answers().best();
        if (best != null) {
            g.writeObjectFieldStart("best");
            array(
                    "gpus",
                    best.ties(),
                    tie -> {
                        g.writeStartArray();
                        for (int gpu : tie) {
                            index(gpu);
                        }
                        g.writeEndArray();
                    });
            field("busbwGBps", best.gbps());
            field("subsets", best.tried());
            field("worstGBps", best.worstGbps());
            g.writeEndObject();
        }
        Verdict verdict = f.answers().verdict();
        if (verdict != null) {
            objects(
                    "measured",
                    verdict.sizes(),
                    s -> {
                        field("bytes", s.measured().bytes());
                        g.writeNumberField("busbwGBps", s.measured().busbwGBps());
                        field("predictedGBps", s.predicted().busbwGBps());
                        g.writeNumberField("spread", s.predicted().spread());
                        field("verdict", lower(s.is()));
                    });
            objects(
                    "causes",
                    verdict.causes(),
                    c -> {
                        field("cause", c.what());
                        field("check", c.check());
                    });
        }
        List<EnvAdvice> environment = f.answers().environment();
        if (environment != null) {
            objects(
                    "environment",
                    environment,
                    a -> {
                        field("line", a.line());
                        field("why", a.why());
                    });
        }
    }

    private void channel(Channel channel) throws IOException {
        switch (channel) {
            case Channel.Ring ring -> array("ring", ring.order(), this::index);
            case Channel.Tree tree -> {
                g.writeObjectFieldStart("tree");
                field("root", f.index(tree.root()));
                array("edges", tree.hops(), this::hop);
                g.writeEndObject();
            }
            case Channel.Exchange exchange -> array("exchange", exchange.hops(), this::hop);
        }
        field("gbps", channel.gbps());
    }

    private void rail(ClusterPlan.Rail rail) throws IOException {
        g.writeObjectFieldStart("rail");
        field("shape", lower(rail.shape()));
        List<Integer> gpus = new ArrayList<>(List.of(rail.entry()));
        rail.hops().forEach(hop -> gpus.add(hop.to()));
        array("gpus", gpus, this::index);
        field("nicIn", f.nics().get(rail.nicIn()).name());
        field("nicOut", f.nics().get(rail.nicOut()).name());
        g.writeEndObject();
        field("gbps", rail.gbps());
    }

    private void hop(Hop hop) throws IOException {
        g.writeStartArray();
        index(hop.from());
        index(hop.to());
        g.writeEndArray();
    }

    private void index(int place) throws IOException {
        g.writeNumber(f.index(place));
    }

    private void figures(double bandwidth, double bound, String what) throws IOException {
        field("bandwidthGBps", bandwidth);
        field("boundGBps", bound);
        field("ratio", bound == 0 ? 1.0 : Math.round(1e6 * bandwidth / bound) / 1e6);
        field("bound", what);
    }

    private interface Content<T> {
        void write(T of) throws IOException;
    }

    private <T> void array(String name, List<T> all, Content<T> each) throws IOException {
        g.writeArrayFieldStart(name);
        for (T one : all) {
            each.write(one);
        }
        g.writeEndArray();
    }

    private <T> void objects(String name, List<T> all, Content<T> fields) throws IOException {
        array(
                name,
                all,
                one -> {
                    g.writeStartObject();
                    fields.write(one);
                    g.writeEndObject();
                });
    }

    /** Fractions to a millionth: smaller digits are noise of binary ones. */
    private void field(String name, @Nullable Object value) throws IOException {
        switch (value) {
            case null -> g.writeNullField(name);
            case String s -> g.writeStringField(name, s);
            case Double d ->
                    g.writeNumberField(name, Math.abs(d) < 1e12 ? Math.round(d * 1e6) / 1e6 : d);
            default -> g.writeNumberField(name, ((Number) value).longValue());
        }
    }
}
