package io.jccl.cli.doctor;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.SerializerProvider;
import com.fasterxml.jackson.databind.module.SimpleModule;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.ser.std.StdSerializer;
import com.fasterxml.jackson.databind.ser.std.ToStringSerializer;
import com.fasterxml.jackson.databind.type.TypeFactory;
import io.jccl.bindings.Version;
import io.jccl.ras.RasReport;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.TreeMap;

/**
 * The report as JSON: the components of the facts under their own names. An unknown value is null,
 * and {@code unknown} holds its reason by JSON pointer.
 */
final class JsonReport {
    /**
     * Increases when a field is removed or changes its meaning; fields may be added at any time.
     */
    private static final int SCHEMA = 1;

    private JsonReport() {}

    static String of(Report report) {
        Map<String, String> unknown = new TreeMap<>();
        ObjectMapper mapper = mapper(unknown);
        ObjectNode root = mapper.createObjectNode();
        root.put("schema", SCHEMA);
        root.put("jccl_version", report.version());
        root.put("exit_status", report.status());
        ObjectNode facts = mapper.valueToTree(report.facts());
        root.setAll(facts);
        root.set("required", mapper.valueToTree(report.required()));
        RasReport ras = report.ras();
        if (ras != null) {
            write(ras, root.putObject("ras"));
        }
        root.set("problems", mapper.valueToTree(report.problems()));
        root.set("unknown", mapper.valueToTree(unknown));
        try {
            return mapper.writeValueAsString(root);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Converted by hand, since the package of these records is not open to the mapper. */
    private static void write(RasReport ras, ObjectNode to) {
        to.put("version", ras.version());
        ArrayNode groups = to.putArray("groups");
        for (RasReport.Group g : ras.groups()) {
            groups.addObject()
                    .put("id", g.id())
                    .put("communicators", g.communicators())
                    .put("size", g.size())
                    .put("ranks", g.ranks())
                    .put("status", g.status())
                    .put("errors", g.errors());
        }
        ArrayNode findings = to.putArray("findings");
        for (RasReport.Finding f : ras.findings()) {
            findings.addObject()
                    .put("kind", f.kind().toString())
                    .put("communicator", f.communicator())
                    .put("rank", f.rank())
                    .put("detail", f.detail());
        }
        ArrayNode processes = to.putArray("processes");
        ras.processes().forEach(processes::add);
        to.put("whole", ras.whole());
    }

    private static ObjectMapper mapper(Map<String, String> unknown) {
        return new ObjectMapper()
                .enable(SerializationFeature.INDENT_OUTPUT)
                .enable(SerializationFeature.WRITE_ENUMS_USING_TO_STRING)
                .setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
                .registerModule(
                        new SimpleModule()
                                .addSerializer(new ReadingSerializer(unknown))
                                .addSerializer(Version.class, ToStringSerializer.instance));
    }

    private static final class ReadingSerializer extends StdSerializer<Reading<?>> {
        private static final long serialVersionUID = 1L;

        private final transient Map<String, String> unknown;

        ReadingSerializer(Map<String, String> unknown) {
            super(TypeFactory.defaultInstance().constructType(Reading.class));
            this.unknown = unknown;
        }

        @Override
        public void serialize(Reading<?> reading, JsonGenerator to, SerializerProvider provider)
                throws IOException {
            switch (reading) {
                case Reading.Known<?>(Object value) -> provider.defaultSerializeValue(value, to);
                case Reading.Unknown<?>(String reason) -> {
                    unknown.put(to.getOutputContext().pathAsPointer().toString(), reason);
                    to.writeNull();
                }
            }
        }
    }
}
