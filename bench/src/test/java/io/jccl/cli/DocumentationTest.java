package io.jccl.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What Markdown claims of files, headings and flags is so; CommandLineTest reads command lines. */
class DocumentationTest {
    private static final Pattern LINK = Pattern.compile("\\]\\(([^)\\s]+)\\)");
    private static final Pattern HEADING = Pattern.compile("#{1,6} +(.*)");
    private static final Pattern FLAG = Pattern.compile("(?<![\\w-])--[a-z][\\w-]*");
    private static final Pattern CELL =
            Pattern.compile("\\| (`--?[A-Za-z][^|]*(?:\\\\\\|[^|]*)*) \\|.*");
    private static final Pattern NAME = Pattern.compile("`(--?[A-Za-z][\\w-]*)");

    /** Pages that describe one command: each flag at the start of a row of a table is its own. */
    private static final Map<String, String> COMMANDS =
            Map.of(
                    "benchmarks.md", "all_reduce",
                    "doctor.md", "doctor",
                    "fit-demo.md", "fit-demo",
                    "memory-plan.md", "plan",
                    "probe.md", "probe",
                    "topo.md", "topo",
                    "train.md", "train");

    /** Flags of the JVM, launchers and other programs that pages name. */
    private static final Set<String> OTHERS =
            Set.of(
                    "--add-modules",
                    "--all-pods",
                    "--bind-to",
                    "--class",
                    "--control-port",
                    "--cpu-bind",
                    "--cpunodebind",
                    "--disable-mpi-fortran",
                    "--disable-oshmem",
                    "--enable-native-access",
                    "--epochs",
                    "--from-literal",
                    "--hostfile",
                    "--illegal-native-access",
                    "--ipc",
                    "--jars",
                    "--kill-on-bad-exit",
                    "--master",
                    "--mpi",
                    "--no-api",
                    "--ntasks-per-node",
                    "--pdeathsig",
                    "--pgid",
                    "--query-gpu",
                    "--rm",
                    "--shm-size",
                    "--sun-misc-unsafe-memory-access");

    /** Flags of the loops in bench/jmh, which is not on the path of these tests. */
    private static final Set<String> LOOPS =
            Set.of(
                    "--block",
                    "--bytes",
                    "--compute",
                    "--features",
                    "--repetitions",
                    "--rounds",
                    "--tokens",
                    "--warm-up");

    private static Set<String> flags(String command) {
        return Main.line(command).getCommandSpec().optionsMap().keySet();
    }

    @Test
    void everyFlagExists() throws IOException {
        Set<String> known = new HashSet<>(OTHERS);
        known.addAll(LOOPS);
        Main.listed().forEach(command -> known.addAll(flags(command)));
        Set<String> earlier = new HashSet<>();
        Main.EARLIER.values().forEach(spellings -> earlier.addAll(spellings.keySet()));
        Set<String> wrong = new TreeSet<>();
        int found = 0;
        for (Path page : Pages.all()) {
            boolean listsEarlier = page.endsWith("command-line.md");
            for (String code : Pages.code(page)) {
                Matcher m = FLAG.matcher(code);
                while (m.find()) {
                    found++;
                    if (!known.contains(m.group())
                            && !(listsEarlier && earlier.contains(m.group()))) {
                        wrong.add(page + ": " + m.group());
                    }
                }
            }
        }
        assertEquals(
                Set.of(),
                wrong,
                "no command has these now; flags of another program go into OTHERS, those of"
                        + " bench/jmh into LOOPS");
        assertTrue(found > 500, found + " flags found");
    }

    @Test
    void flagsOfACommandsPageAreThatCommands() throws IOException {
        Set<String> wrong = new TreeSet<>();
        for (Map.Entry<String, String> e : COMMANDS.entrySet()) {
            Path page = Pages.ROOT.resolve("docs").resolve(e.getKey());
            int rows = 0;
            for (String line : Pages.prose(page)) {
                Matcher cell = CELL.matcher(line);
                if (cell.matches()) {
                    rows++;
                    Matcher name = NAME.matcher(cell.group(1));
                    while (name.find()) {
                        if (!flags(e.getValue()).contains(name.group(1))) {
                            wrong.add(page + ": " + e.getValue() + " has no " + name.group(1));
                        }
                    }
                }
            }
            boolean table = Set.of("benchmarks.md", "topo.md", "train.md").contains(e.getKey());
            assertEquals(table, rows > 5, page + " has " + rows + " rows of flags");
        }
        assertEquals(Set.of(), wrong);
    }

    /** GitHub's anchor of a heading. */
    private static String anchor(String heading) {
        return heading.replaceAll("\\[([^\\]]*)\\]\\([^)]*\\)", "$1")
                .strip()
                .toLowerCase(Locale.ROOT)
                .replaceAll("[^\\w\\- ]", "")
                .replace(' ', '-');
    }

    /** That of the site; a link has to work on both. */
    private static String anchorOfTheSite(String heading) {
        return anchor(heading).replaceAll("-+", "-");
    }

    private static boolean leads(Path page, String fragment) throws IOException {
        for (String line : Pages.prose(page)) {
            Matcher m = HEADING.matcher(line);
            if (m.matches()
                    && anchor(m.group(1)).equals(fragment)
                    && anchorOfTheSite(m.group(1)).equals(fragment)) {
                return true;
            }
        }
        return false;
    }

    @Test
    void linksLeadSomewhere() throws IOException {
        List<String> wrong = new ArrayList<>();
        int links = 0;
        for (Path page : Pages.all()) {
            for (String line : Pages.prose(page)) {
                Matcher m = LINK.matcher(line.replaceAll("`[^`]*`", ""));
                while (m.find()) {
                    String target = m.group(1);
                    if (target.matches("[a-z]+:.*")) {
                        continue;
                    }
                    links++;
                    String[] parts = target.split("#", 2);
                    Path file =
                            parts[0].isEmpty() ? page : page.resolveSibling(parts[0]).normalize();
                    if (!Files.exists(file) || (parts.length == 2 && !leads(file, parts[1]))) {
                        wrong.add(page + ": " + target);
                    }
                }
            }
        }
        assertEquals(List.of(), wrong, "no such file, or no such heading in it");
        assertTrue(links > 100, links + " links found");
    }

    /** Before the first section, and within the first screen. */
    @Test
    void everyPageOfTheSiteOpensWithAnExample() throws IOException {
        List<String> without = new ArrayList<>();
        for (Path page : Pages.all()) {
            if (page.startsWith(Pages.ROOT.resolve("docs"))) {
                List<String> lines = Files.readAllLines(page);
                int limit = Math.min(25, lines.size());
                for (int i = 0; i < limit; i++) {
                    if (lines.get(i).startsWith("## ")) {
                        limit = i;
                    }
                }
                if (lines.subList(0, limit).stream().noneMatch(l -> l.startsWith("```"))) {
                    without.add(page.toString());
                }
            }
        }
        assertEquals(
                List.of(),
                without,
                "expected a block of code before the first section and line 25");
    }

    @Test
    void everyPageIsInTheNavigation() throws IOException {
        String navigation = Files.readString(Pages.ROOT.resolve("mkdocs.yml"));
        Path docs = Pages.ROOT.resolve("docs");
        List<Path> missing = new ArrayList<>();
        for (Path page : Pages.all()) {
            if (page.startsWith(docs)
                    && !navigation.contains(": " + docs.relativize(page) + "\n")) {
                missing.add(page);
            }
        }
        assertEquals(List.of(), missing, "add them to nav in mkdocs.yml");
    }

    /** Fields of what {@code --json} writes are on the command's page. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "memory-plan.md | plan --model mixtral-8x7b --machine H100x8",
                "memory-plan.md | plan --params 350M -g 1 --device-memory 1G --host-memory 0",
                "memory-plan.md | plan --search -g 1 --device-memory 1G --host-memory 0",
                "offload.md | offload --layers 2 --layer-bytes 64 --iterations 1 --samples 1 --compute-us 1",
                "matmul.md | matmul -n 16 -g 1",
            })
    void everyFieldOfJsonIsDocumented(String page, String line) throws IOException {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        String small = "--layers 2 --hidden 16 --heads 2 --context 16 --batch 2 --steps 2";
        String[] words = (line.replace("SMALL", small) + " --json=-").split(" ");
        int status = Main.execute(words, new PrintWriter(out), new PrintWriter(err));
        assertEquals(0, status, err::toString);
        Set<String> missing = new TreeSet<>();
        fields(new ObjectMapper().readTree(out.toString()), missing);
        assertTrue(missing.size() > 15, missing::toString);
        String text = Files.readString(Pages.ROOT.resolve("docs").resolve(page));
        missing.removeIf(name -> text.contains("`" + name + "`"));
        assertEquals(Set.of(), missing, "describe them in docs/" + page + ", each as `name`");
    }

    @Tag("exhaustive")
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "memory-plan.md | plan --params 10M -g 2 --search --machine H100x2",
                "train.md | train SMALL --dp 2 --experts 2 --eval-every 2 --sample 1 --clip 1 --fp16",
                "train.md | train SMALL --compare pp=2",
            })
    void everyFieldOfJsonIsDocumentedInMoreCases(String page, String line) throws IOException {
        everyFieldOfJsonIsDocumented(page, line);
    }

    private static void fields(JsonNode node, Set<String> to) {
        node.properties()
                .forEach(e -> {
                    to.add(e.getKey());
                    // The header of all commands, and formulas by their titles.
                    if (!Set.of("run", "sources").contains(e.getKey())) {
                        fields(e.getValue(), to);
                    }
                });
        if (node.isArray()) {
            node.forEach(child -> fields(child, to));
        }
    }
}
