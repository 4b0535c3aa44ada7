package io.jccl.cli.topo;

import static io.jccl.cli.shell.Text.lower;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.MinimalPrettyPrinter;
import io.jccl.topology.cost.AlgorithmBound;
import io.jccl.topology.cost.Prediction;
import io.jccl.topology.cost.Tuning;
import io.jccl.topology.plan.Channel;
import io.jccl.topology.plan.ClusterPlan;
import io.jccl.topology.plan.Hop;
import io.jccl.topology.plan.Plan;
import java.io.IOException;
import java.io.StringWriter;
import java.io.UncheckedIOException;
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
        g.writeNumberField("schema", 1);
        g.writeStringField("name", f.name());
        g.writeArrayFieldStart("gpus");
        for (Findings.GpuRow gpu : f.gpus()) {
            g.writeStartObject();
            g.writeNumberField("index", gpu.index());
            g.writeStringField("name", gpu.name());
            text("cpuAffinity", gpu.cpuAffinity());
            text("numaAffinity", gpu.numaAffinity());
            text("gpuNumaId", gpu.gpuNumaId());
            text("model", gpu.model());
            text("computeCapability", gpu.computeCapability());
            text("busId", gpu.busId());
            number("nvlinks", gpu.nvlinks());
            number("nvlinkGbps", gpu.nvlinkGbps());
            g.writeEndObject();
        }
        g.writeEndArray();
        g.writeArrayFieldStart("nics");
        for (Findings.NicRow nic : f.nics()) {
            g.writeStartObject();
            g.writeStringField("name", nic.name());
            text("device", nic.device());
            number("gbps", nic.gbps());
            g.writeEndObject();
        }
        g.writeEndArray();
        g.writeArrayFieldStart("links");
        for (Findings.Pair p : f.links()) {
            g.writeStartObject();
            g.writeStringField("a", p.a());
            g.writeStringField("b", p.b());
            g.writeStringField("code", p.code());
            g.writeStringField("kind", p.kind());
            g.writeNumberField("count", p.count());
            number("gbps", p.gbps());
            g.writeEndObject();
        }
        g.writeEndArray();
        strings("warnings", f.warnings());
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
        g.writeStringField("op", f.operation().command());
        g.writeNumberField("machines", f.machines());
        g.writeArrayFieldStart("gpus");
        for (int place : f.selected()) {
            g.writeNumber(f.index(place));
        }
        g.writeEndArray();
        if (plan != null) {
            g.writeArrayFieldStart("channels");
            for (Channel channel : plan.channels()) {
                channel(channel);
            }
            g.writeEndArray();
            figures(plan.bandwidthGBps(), plan.boundGBps(), plan.bound());
            strings("why", plan.why());
        } else if (cluster != null) {
            g.writeArrayFieldStart("channels");
            for (ClusterPlan.Rail rail : cluster.channels()) {
                rail(rail);
            }
            g.writeEndArray();
            figures(cluster.bandwidthGBps(), cluster.boundGBps(), cluster.bound());
            strings("why", cluster.why());
        }
        g.writeArrayFieldStart("predictions");
        for (Prediction p : f.predictions()) {
            g.writeStartObject();
            g.writeStringField("op", p.op().command());
            g.writeNumberField("bytes", p.bytes());
            g.writeStringField("algorithm", lower(p.algorithm()));
            g.writeStringField("protocol", lower(p.protocol()));
            g.writeNumberField("timeUs", rounded(p.timeUs()));
            g.writeNumberField("busbwGBps", rounded(p.busbwGBps()));
            g.writeNumberField("spread", p.spread());
            g.writeEndObject();
        }
        g.writeEndArray();
        Tuning tuning = f.tuning();
        g.writeArrayFieldStart("algorithms");
        for (AlgorithmBound b : tuning == null ? List.<AlgorithmBound>of() : tuning.bounds()) {
            g.writeStartObject();
            g.writeStringField("algorithm", lower(b.algorithm()));
            g.writeNumberField("busbwGBps", rounded(b.busbwGBps()));
            g.writeNumberField("boundGBps", rounded(b.boundGBps()));
            g.writeStringField("bound", b.why());
            g.writeEndObject();
        }
        g.writeEndArray();
        strings("assumptions", tuning == null ? List.of() : tuning.assumptions());
        g.writeEndObject();
    }

    /** Only what was asked. */
    private void answers() throws IOException {
        BestGpus best = f.answers().best();
        if (best != null) {
            g.writeObjectFieldStart("best");
            g.writeArrayFieldStart("gpus");
            for (List<Integer> tie : best.ties()) {
                g.writeStartArray();
                for (int gpu : tie) {
                    g.writeNumber(f.index(gpu));
                }
                g.writeEndArray();
            }
            g.writeEndArray();
            g.writeNumberField("busbwGBps", rounded(best.gbps()));
            g.writeNumberField("subsets", best.tried());
            g.writeNumberField("worstGBps", rounded(best.worstGbps()));
            g.writeEndObject();
        }
        Verdict verdict = f.answers().verdict();
        if (verdict != null) {
            g.writeArrayFieldStart("measured");
            for (Verdict.Size s : verdict.sizes()) {
                g.writeStartObject();
                g.writeNumberField("bytes", s.measured().bytes());
                g.writeNumberField("busbwGBps", s.measured().busbwGBps());
                g.writeNumberField("predictedGBps", rounded(s.predicted().busbwGBps()));
                g.writeNumberField("spread", s.predicted().spread());
                g.writeStringField("verdict", lower(s.is()));
                g.writeEndObject();
            }
            g.writeEndArray();
            g.writeArrayFieldStart("causes");
            for (Verdict.Cause c : verdict.causes()) {
                g.writeStartObject();
                g.writeStringField("cause", c.what());
                g.writeStringField("check", c.check());
                g.writeEndObject();
            }
            g.writeEndArray();
        }
        List<EnvAdvice> environment = f.answers().environment();
        if (environment != null) {
            g.writeArrayFieldStart("environment");
            for (EnvAdvice a : environment) {
                g.writeStartObject();
                g.writeStringField("line", a.line());
                g.writeStringField("why", a.why());
                g.writeEndObject();
            }
            g.writeEndArray();
        }
    }

    private void channel(Channel channel) throws IOException {
        g.writeStartObject();
        switch (channel) {
            case Channel.Ring ring -> {
                g.writeArrayFieldStart("ring");
                for (int place : ring.order()) {
                    g.writeNumber(f.index(place));
                }
                g.writeEndArray();
            }
            case Channel.Tree tree -> {
                g.writeObjectFieldStart("tree");
                g.writeNumberField("root", f.index(tree.root()));
                hops("edges", tree.hops());
                g.writeEndObject();
            }
            case Channel.Exchange exchange -> hops("exchange", exchange.hops());
        }
        g.writeNumberField("gbps", rounded(channel.gbps()));
        g.writeEndObject();
    }

    private void rail(ClusterPlan.Rail rail) throws IOException {
        g.writeStartObject();
        g.writeObjectFieldStart("rail");
        g.writeStringField("shape", lower(rail.shape()));
        g.writeArrayFieldStart("gpus");
        g.writeNumber(f.index(rail.entry()));
        for (Hop hop : rail.hops()) {
            g.writeNumber(f.index(hop.to()));
        }
        g.writeEndArray();
        g.writeStringField("nicIn", f.nics().get(rail.nicIn()).name());
        g.writeStringField("nicOut", f.nics().get(rail.nicOut()).name());
        g.writeEndObject();
        g.writeNumberField("gbps", rounded(rail.gbps()));
        g.writeEndObject();
    }

    private void hops(String name, List<Hop> hops) throws IOException {
        g.writeArrayFieldStart(name);
        for (Hop hop : hops) {
            g.writeStartArray();
            g.writeNumber(f.index(hop.from()));
            g.writeNumber(f.index(hop.to()));
            g.writeEndArray();
        }
        g.writeEndArray();
    }

    private void figures(double bandwidth, double bound, String what) throws IOException {
        g.writeNumberField("bandwidthGBps", rounded(bandwidth));
        g.writeNumberField("boundGBps", rounded(bound));
        g.writeNumberField("ratio", bound == 0 ? 1 : Math.round(1e6 * bandwidth / bound) / 1e6);
        g.writeStringField("bound", what);
    }

    private void strings(String name, List<String> values) throws IOException {
        g.writeArrayFieldStart(name);
        for (String value : values) {
            g.writeString(value);
        }
        g.writeEndArray();
    }

    private void text(String name, @Nullable String value) throws IOException {
        if (value == null) {
            g.writeNullField(name);
        } else {
            g.writeStringField(name, value);
        }
    }

    private void number(String name, @Nullable Number value) throws IOException {
        switch (value) {
            case null -> g.writeNullField(name);
            case Integer i -> g.writeNumberField(name, i);
            default -> g.writeNumberField(name, rounded(value.doubleValue()));
        }
    }

    /** To a millionth: smaller digits are noise of binary fractions. */
    private static double rounded(double value) {
        return Math.abs(value) < 1e12 ? Math.round(value * 1e6) / 1e6 : value;
    }
}
