package io.jccl.cli.plan;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bench.report.Axis;
import io.jccl.bench.report.Figure;
import io.jccl.bench.report.LineChart;
import io.jccl.bench.report.LineChart.Line;
import io.jccl.bench.report.LineChart.Point;
import io.jccl.bench.report.LineChart.Series;
import io.jccl.bench.report.Page;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** docs/plan-time.svg shows the table of eight V100 in docs/plan-time.md. */
class PlanPictureTest {
    @Test
    void picture() throws IOException {
        Path docs = Path.of("..", "docs");
        List<String> lines = Files.readAllLines(docs.resolve("plan-time.md"));
        int at =
                lines.indexOf(
                                "| techniques | parameters | times plain | tokens/s | TFLOP/s a GPU | update |")
                        + 2;
        List<Series> series = new ArrayList<>();
        for (int i = at; lines.get(i).startsWith("|"); i++) {
            String[] cells = lines.get(i).split(" *\\| *", -1);
            double parameters = Double.parseDouble(cells[2]);
            double tokens = Double.parseDouble(cells[4].replace(",", ""));
            Point point = new Point(parameters, tokens, cells[1]);
            series.add(new Series(cells[1], series.size(), Line.NONE, List.of(point)));
        }
        assertTrue(series.size() >= 7, series::toString);
        String svg =
                new Page("Eight V100 with 16 GB")
                        .add(
                                new Figure(
                                        "Eight V100 with 16 GB",
                                        "",
                                        List.of(
                                                LineChart.of(
                                                        "Size against speed",
                                                        new Axis("parameters", Axis.Scale.DECADES),
                                                        new Axis("tokens/s", Axis.Scale.DECADES),
                                                        series,
                                                        List.of()))))
                        .svg();
        Path made = Files.writeString(Path.of("target", "plan-time.svg"), svg);
        assertEquals(
                Files.readString(docs.resolve("plan-time.svg")),
                svg,
                () -> "copy " + made + " to docs");
    }
}
