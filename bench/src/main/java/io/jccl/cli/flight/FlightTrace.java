package io.jccl.cli.flight;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.util.MinimalPrettyPrinter;
import java.io.IOException;
import java.io.StringWriter;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * Timelines as JSON arrays of the Trace Event Format (N. Duca, D. Sinclair, 2016), times in
 * microseconds since the first operation. Both open in Perfetto and in chrome://tracing.
 */
final class FlightTrace {
    private static final double MICROS = 1e-3;

    private final boolean align;
    private final int most;
    private final StringWriter text = new StringWriter();
    private final JsonGenerator json;
    private final long origin;

    private FlightTrace(List<World> worlds, boolean align, int most) throws IOException {
        this.align = align;
        this.most = most;
        json = new JsonFactory().createGenerator(text);
        json.setPrettyPrinter(new MinimalPrettyPrinter("\n"));
        long first = Long.MAX_VALUE;
        for (World w : worlds) {
            Clocks clocks = Analysis.clocks(w, align);
            for (Track t : w.tracks.values()) {
                for (int i = first(t); i < t.size; i++) {
                    first = Math.min(first, clocks.aligned(t.rank, t.start[i]));
                }
            }
        }
        origin = first == Long.MAX_VALUE ? 0 : first;
    }

    /** The first operation of a track that is shown. */
    private int first(Track t) {
        return Math.max(0, t.size - most);
    }

    private String close() throws IOException {
        json.writeEndArray();
        json.close();
        return text + "\n";
    }

    /**
     * A process for each communicator, in it a thread for each rank.
     *
     * @param most operations of each rank, the last ones
     */
    static String byRank(List<World> worlds, boolean align, int most) throws IOException {
        FlightTrace t = new FlightTrace(worlds, align, most);
        t.json.writeStartArray();
        for (int w = 0; w < worlds.size(); w++) {
            t.ranks(worlds.get(w), w + 1);
        }
        return t.close();
    }

    private void ranks(World w, int process) throws IOException {
        Clocks clocks = Analysis.clocks(w, align);
        name("process_name", process, 0, "communicator " + w.id + " (" + w.engine + ")");
        for (Track t : w.tracks.values()) {
            String where = t.process.isEmpty() ? "" : " (" + t.process + ")";
            name("thread_name", process, t.rank + 1, "rank " + t.rank + where);
            for (int i = first(t); i < t.size; i++) {
                long start = clocks.aligned(t.rank, t.start[i]);
                boolean ended = t.end[i] != Track.UNKNOWN;
                // Without an end it is a moment on its thread.
                event(ended ? "X" : "i", w.signature(t, i).operation(), start, process);
                json.writeNumberField("tid", t.rank + 1);
                if (ended) {
                    json.writeNumberField("dur", Math.max(0, t.end[i] - t.start[i]) * MICROS);
                } else {
                    json.writeStringField("s", "t");
                }
                json.writeObjectFieldStart("args");
                json.writeStringField("call", w.describe(t, i));
                json.writeNumberField("sequence", t.sequence[i]);
                json.writeNumberField("bytes", t.bytes[i]);
                json.writeBooleanField("failed", t.state[i] == Track.FAILED);
                json.writeEndObject();
                json.writeEndObject();
            }
        }
    }

    /**
     * As Horovod writes it (horovod/common/timeline.cc): a process for each tensor, here for each
     * call of a communicator; {@code NEGOTIATE_ALLREDUCE} from the first rank's arrival to the last
     * one's, with a mark for each rank, then {@code ALLREDUCE}. Collectives that all recorded ranks
     * have called.
     *
     * @param most operations of each rank, the last ones
     */
    static String horovod(List<World> worlds, boolean align, int most) throws IOException {
        FlightTrace t = new FlightTrace(worlds, align, most);
        t.json.writeStartArray();
        t.begin("process_name", 0, 0);
        t.json.writeNumberField("start_time_since_epoch_in_micros", t.origin / 1000);
        t.end();
        t.index(0);
        Map<String, Integer> tensors = new HashMap<>();
        for (World w : worlds) {
            String prefix = worlds.size() > 1 ? w.id + " " : "";
            t.collectives(w, prefix, tensors);
        }
        return t.close();
    }

    private void collectives(World w, String prefix, Map<String, Integer> tensors)
            throws IOException {
        List<Track> tracks = List.copyOf(w.tracks.values());
        Clocks clocks = Analysis.clocks(w, align);
        int[] at = new int[tracks.size()];
        Map<Integer, Long> ends = new HashMap<>();
        Track lead = tracks.getFirst();
        for (at[0] = first(lead); at[0] < lead.size; at[0]++) {
            long sequence = lead.sequence[at[0]];
            boolean all = sequence > 0;
            long firstArrival = Long.MAX_VALUE;
            long lastArrival = Long.MIN_VALUE;
            long over = Long.MIN_VALUE;
            for (int k = 0; all && k < at.length; k++) {
                Track t = tracks.get(k);
                while (at[k] < t.size && t.sequence[at[k]] < sequence) {
                    at[k]++;
                }
                all =
                        at[k] < t.size
                                && t.sequence[at[k]] == sequence
                                && t.signature[at[k]] == lead.signature[at[0]];
                if (all) {
                    long arrival = clocks.aligned(t.rank, t.start[at[k]]);
                    firstArrival = Math.min(firstArrival, arrival);
                    lastArrival = Math.max(lastArrival, arrival);
                    long end = t.end[at[k]];
                    over = Math.max(over, end == Track.UNKNOWN ? end : clocks.aligned(t.rank, end));
                }
            }
            if (!all) {
                continue;
            }
            String tensor = prefix + w.describe(lead, at[0]);
            Integer known = tensors.get(tensor);
            int process = known == null ? tensors.size() + 1 : known;
            if (known == null) {
                tensors.put(tensor, process);
                name("process_name", process, 0, tensor);
                index(process);
            }
            // One after the other, since begins and ends are nested.
            long free = ends.getOrDefault(process, Long.MIN_VALUE);
            Signature s = w.signature(lead, at[0]);
            String operation = s.operation().toUpperCase(Locale.ROOT);
            event("B", "NEGOTIATE_" + operation, Math.max(free, firstArrival), process);
            json.writeEndObject();
            for (int k = 0; k < at.length; k++) {
                Track t = tracks.get(k);
                long arrival = clocks.aligned(t.rank, t.start[at[k]]);
                event("X", Integer.toString(t.rank), Math.max(free, arrival), process);
                json.writeNumberField("dur", 0);
                json.writeEndObject();
            }
            long from = Math.max(free, lastArrival);
            event("E", "", from, process);
            json.writeEndObject();
            event("B", operation, from, process);
            json.writeEndObject();
            long to = Math.max(from, over);
            event("E", "", to, process);
            json.writeObjectFieldStart("args");
            json.writeStringField("dtype", s.type());
            json.writeStringField("shape", "[" + lead.count[at[0]] + "]");
            json.writeEndObject();
            json.writeEndObject();
            ends.put(process, to);
        }
    }

    private void event(String phase, String name, long time, int process) throws IOException {
        json.writeStartObject();
        json.writeStringField("ph", phase);
        if (!name.isEmpty()) {
            json.writeStringField("name", name);
        }
        json.writeNumberField("ts", (time - origin) * MICROS);
        json.writeNumberField("pid", process);
    }

    /** Begins what is known of a process, or of a thread of it, up to its arguments. */
    private void begin(String what, int process, int thread) throws IOException {
        json.writeStartObject();
        json.writeStringField("name", what);
        json.writeStringField("ph", "M");
        json.writeNumberField("pid", process);
        if (thread > 0) {
            json.writeNumberField("tid", thread);
        }
        json.writeObjectFieldStart("args");
    }

    private void end() throws IOException {
        json.writeEndObject();
        json.writeEndObject();
    }

    private void index(int process) throws IOException {
        begin("process_sort_index", process, 0);
        json.writeNumberField("sort_index", process);
        end();
    }

    private void name(String what, int process, int thread, String name) throws IOException {
        begin(what, process, thread);
        json.writeStringField("name", name);
        end();
    }
}
