package io.jccl.cli.perf;

import io.jccl.bench.PerfConfig;
import io.jccl.bench.Report;
import io.jccl.cli.shell.CsvOption;
import java.io.IOException;
import java.io.PrintWriter;
import java.time.format.DateTimeFormatter;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.StringJoiner;
import org.jspecify.annotations.Nullable;

/**
 * The results as CSV, a line for each measurement: out of place and in place are lines of their
 * own. No field needs quotes. The file appears complete, when the run has ended.
 */
final class CsvReport implements Report {
    private static final String HEAD =
            "collective,engine,ranks,cycle,timestamp,size,count,type,redop,root,algorithm,placement,"
                    + "time,cpu_time,alg_bw,bus_bw,nwrong,mean,median,min,max,q1,q3,batches,iterations\n";

    private final CsvOption csv;
    private final PrintWriter out;
    private final StringBuilder text = new StringBuilder(HEAD);
    private String run = "";

    CsvReport(CsvOption csv, PrintWriter out) {
        this.csv = csv;
        this.out = out;
    }

    @Override
    public void begin(PerfConfig config, String engine, List<RankInfo> ranks) {
        run = config.collective().command() + "," + engine + "," + ranks.size();
    }

    @Override
    public void warmed(WarmUp warmUp) {}

    @Override
    public void line(Line line) {
        side(line, "out_of_place", line.outOfPlace());
        side(line, "in_place", line.inPlace());
    }

    private void side(Line line, String placement, @Nullable Measurement m) {
        if (m == null) {
            return;
        }
        Spread s = m.spread();
        List<Object> fields =
                List.of(
                        run,
                        line.cycle(),
                        DateTimeFormatter.ISO_LOCAL_DATE_TIME.format(
                                line.time().truncatedTo(ChronoUnit.SECONDS)),
                        line.bytes(),
                        line.count(),
                        line.type(),
                        line.op(),
                        line.root(),
                        line.algorithm(),
                        placement,
                        m.micros(),
                        m.cpuMicros(),
                        m.algBw(),
                        m.busBw(),
                        m.wrong() < 0 ? "" : m.wrong(),
                        s.mean(),
                        s.median(),
                        s.min(),
                        s.max(),
                        s.q1(),
                        s.q3(),
                        s.times().size(),
                        s.iterations());
        StringJoiner joined = new StringJoiner(",", "", "\n");
        fields.forEach(f -> joined.add(f.toString()));
        text.append(joined);
    }

    @Override
    public void end(Summary summary) throws IOException {
        csv.write(out, text::toString);
    }
}
