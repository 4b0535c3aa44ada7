package io.jccl.cli.flight;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.jccl.bench.report.Page;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A self-contained HTML page with a timeline of all ranks. */
final class FlightHtml {
    private FlightHtml() {}

    /**
     * Creates the page.
     *
     * @param findings their findings, in the same order
     * @param align whether to align clocks
     * @param most maximum operations per rank on the page: those around the first divergence, or
     *     the last ones
     */
    static String page(List<World> worlds, List<Findings> findings, boolean align, int most)
            throws IOException {
        List<Map<String, Object>> data = new ArrayList<>();
        for (int i = 0; i < worlds.size(); i++) {
            data.add(data(worlds.get(i), findings.get(i), align, most));
        }
        try (InputStream in = FlightHtml.class.getResourceAsStream("timeline.html")) {
            if (in == null) {
                throw new IOException("timeline.html is missing in the jar");
            }
            String page = new String(in.readAllBytes(), StandardCharsets.UTF_8);
            // A name in a recording must not end the script.
            return page.replace("/*STYLE*/", Page.style())
                    .replace("/*DATA*/", json(data).replace("<", "\\u003c"));
        }
    }

    private static String json(Object value) throws JsonProcessingException {
        return new ObjectMapper().writeValueAsString(value);
    }

    private static Map<String, Object> data(World w, Findings f, boolean align, int most) {
        Clocks clocks = Analysis.clocks(w, align);
        long until = f.divergence() == null ? Long.MAX_VALUE : f.divergence().sequence() + most / 2;
        long origin = Long.MAX_VALUE;
        Map<Track, int[]> ranges = new LinkedHashMap<>();
        boolean cut = false;
        for (Track t : w.tracks.values()) {
            int to = 0;
            while (to < t.size && t.sequence[to] <= until) {
                to++;
            }
            int from = Math.max(0, to - most);
            cut |= from > 0 || to < t.size;
            ranges.put(t, new int[] {from, to});
            if (to > from) {
                origin = Math.min(origin, clocks.aligned(t.rank, t.start[from]));
            }
        }
        List<Map<String, Object>> ranks = new ArrayList<>();
        for (Map.Entry<Track, int[]> e : ranges.entrySet()) {
            Track t = e.getKey();
            List<Object> rows = new ArrayList<>();
            for (int i = e.getValue()[0]; i < e.getValue()[1]; i++) {
                long start = clocks.aligned(t.rank, t.start[i]) - origin;
                long end =
                        t.end[i] == Track.UNKNOWN ? -1 : clocks.aligned(t.rank, t.end[i]) - origin;
                rows.add(
                        List.of(
                                start / 1000.0,
                                end < 0 ? -1 : (end - start) / 1000.0,
                                t.signature[i],
                                t.sequence[i],
                                t.count[i],
                                t.bytes[i],
                                t.state[i]));
            }
            ranks.add(Map.of("rank", t.rank, "ops", rows));
        }
        Map<String, Object> m = new LinkedHashMap<>();
        m.put("communicator", w.id);
        m.put("engine", w.engine);
        m.put("size", w.ranks);
        m.put("cut", cut);
        m.put("divergence", f.divergence() == null ? 0 : f.divergence().sequence());
        m.put(
                "names",
                w.signatures.stream()
                        .map(s -> List.of(s.operation(), s.type(), s.reduction(), s.root()))
                        .toList());
        m.put("ranks", ranks);
        return m;
    }
}
