package io.jccl.cli;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.cli.shell.ClosedOutput;
import java.io.FilterWriter;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.Writer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.OptionSpec;

/** One vocabulary: names of options, their help, and what the documentation writes of them. */
class CommandLineTest {
    private static final Path ROOT = Pages.ROOT;
    private static final Path PAGE = ROOT.resolve("docs/command-line.md");
    private static final String BEGIN = "<!-- options: CommandLineTest compares them -->\n";
    private static final String END = "<!-- end of options -->\n";

    /** Words that the launcher passes to bench/jmh. */
    private static final Pattern JMH = Pattern.compile("jmh|[a-z]+-loop");

    private record Outcome(int status, String out, String err) {}

    /** A disk or a reader that takes no output: nobody may take that for a success. */
    @ParameterizedTest
    @ValueSource(
            strings = {
                "version",
                "--help",
                "help plan",
                "completion",
                "plan --params 1B --json",
                "matmul --size 64 --json",
                "all_reduce -b 8 -e 8 -g 2 -n 1 -w 0 --json",
                "all_reduce --help"
            })
    void outputThatCannotBeWrittenIsAnError(String line) {
        StringWriter err = new StringWriter();
        Writer full =
                new FilterWriter(Writer.nullWriter()) {
                    @Override
                    public void write(String s, int from, int count) throws IOException {
                        throw new IOException("No space left on device");
                    }
                };
        int status = Main.execute(line.split(" "), new PrintWriter(full), new PrintWriter(err));
        if (ClosedOutput.isPipe()) {
            assertEquals(141, status);
        } else {
            assertEquals(1, status);
            assertTrue(err.toString().endsWith(": standard output cannot be written\n"));
        }
    }

    /** Such as of threads that the system refuses, or of heap. */
    @Test
    void memoryThatRunsOutIsOneLine() {
        @Command
        class Large implements Callable<Integer> {
            @Override
            public Integer call() {
                throw new OutOfMemoryError("Java heap space");
            }
        }
        StringWriter err = new StringWriter();
        PrintWriter out = new PrintWriter(Writer.nullWriter());
        String[] none = {};
        assertEquals(1, Main.execute("large", new Large(), none, out, new PrintWriter(err)));
        assertEquals(
                "jccl large: Java heap space; give the JVM more, such as JCCL_JAVA_OPTS=-Xmx8g\n",
                err.toString());
    }

    private static Outcome jccl(String line) {
        StringWriter out = new StringWriter();
        StringWriter err = new StringWriter();
        int status = Main.execute(line.split(" +"), new PrintWriter(out), new PrintWriter(err));
        return new Outcome(status, out.toString(), err.toString());
    }

    private static List<OptionSpec> options(String command) {
        return Main.line(command).getCommandSpec().options().stream()
                .filter(o -> !o.usageHelp() && !o.versionHelp())
                .toList();
    }

    private static Set<String> names(String command) {
        return Main.line(command).getCommandSpec().optionsMap().keySet();
    }

    private static String description(OptionSpec o) {
        return String.join(" ", o.description())
                .replace("${DEFAULT-VALUE}", String.valueOf(o.defaultValueString()));
    }

    private static String table() {
        StringBuilder b = new StringBuilder();
        String previous = "";
        List<String> same = new ArrayList<>();
        for (String command : Main.listed()) {
            StringBuilder rows = new StringBuilder();
            for (OptionSpec o : options(command)) {
                String names = String.join(", ", o.names());
                String value =
                        o.arity().max() == 0
                                ? ""
                                : o.arity().min() == 0
                                        ? "[" + o.paramLabel() + "]"
                                        : o.paramLabel();
                rows.append("| `")
                        .append((names + " " + value).strip().replace("|", "\\|"))
                        .append("` | ")
                        .append(description(o).replace("|", "\\|"))
                        .append(" |\n");
            }
            if (rows.isEmpty()) {
                continue;
            }
            if (rows.toString().equals(previous)) {
                same.add("`" + command + "`");
                continue;
            }
            flush(b, same, previous);
            same.add("`" + command + "`");
            previous = rows.toString();
        }
        flush(b, same, previous);
        return b.toString();
    }

    private static void flush(StringBuilder b, List<String> commands, String rows) {
        if (!commands.isEmpty()) {
            b.append("### ").append(String.join(", ", commands)).append("\n\n");
            b.append("| option | |\n|---|---|\n").append(rows).append("\n");
            commands.clear();
        }
    }

    /** The page is right, or what it should be is in {@code target/command-line.md}. */
    @Test
    void thePageListsEveryOption() throws IOException {
        String page = Files.readString(PAGE);
        int begin = page.indexOf(BEGIN);
        int end = page.indexOf(END);
        assertTrue(begin >= 0 && end > begin, "no marks in " + PAGE);
        String expected = page.substring(0, begin) + BEGIN + "\n" + table() + page.substring(end);
        Path right = Path.of("target/command-line.md");
        Files.writeString(right, expected);
        List<String> missing = new ArrayList<>(expected.lines().toList());
        page.lines().forEach(missing::remove);
        assertTrue(
                expected.equals(page),
                () -> "copy " + right.toAbsolutePath() + " to " + PAGE + "; it misses " + missing);
    }

    /** What is wrong with a command line without its first word; empty if nothing. */
    private static List<String> wrong(String arguments) {
        String[] words = arguments.strip().split("[ \\]\\[]+");
        if (!Main.isCommand(words[0])) {
            return JMH.matcher(words[0]).matches() || !words[0].matches("[a-z][a-z_-]*")
                    ? List.of()
                    : List.of("no command " + words[0]);
        }
        List<String> wrong = new ArrayList<>();
        for (int i = 1; i < words.length; i++) {
            String name = words[i].replaceFirst("=.*", "");
            if (name.equals("--") || name.matches("[|>&;].*")) {
                boolean nested =
                        words[0].equals("run") && name.equals("--") && i + 1 < words.length;
                boolean ours = nested && Main.isCommand(words[i + 1]);
                String rest = String.join(" ", Arrays.asList(words).subList(i + 1, words.length));
                return ours ? wrong(rest) : wrong;
            }
            if (words[0].equals("run") && Main.isCommand(name)) {
                return wrong(String.join(" ", Arrays.asList(words).subList(i, words.length)));
            }
            if (name.matches("--?[A-Za-z].*") && !names(words[0]).contains(name)) {
                wrong.add(words[0] + " has no " + name);
            }
        }
        return wrong;
    }

    @Test
    void commandLinesOfTheDocumentationAreRight() throws IOException {
        Pattern call = Pattern.compile("(?:^|[ /])jccl ([a-z].*)");
        List<String> wrong = new ArrayList<>();
        int calls = 0;
        for (Path page : Pages.all()) {
            for (String code : Pages.code(page)) {
                Matcher m = call.matcher(code);
                if (m.find()) {
                    calls++;
                    wrong(m.group(1)).forEach(w -> wrong.add(page + ": " + w + ": " + code));
                }
            }
        }
        assertEquals(List.of(), wrong);
        assertTrue(calls > 50, calls + " command lines found");
    }

    @Test
    void oneVocabulary() {
        for (String command : Main.listed()) {
            Set<String> names = names(command);
            assertEquals(
                    names.contains("--json"), names.contains("-J"), command + ": use JsonOption");
            for (OptionSpec o : options(command)) {
                String label = o.paramLabel();
                if (o.longestName().equals("--engine")) {
                    assertTrue(
                            label.matches("<(host\\|nccl\\|mpi|host\\|mpi)>"),
                            command + " --engine " + label + ": other commands have other values");
                }
                if (o.longestName().equals("--device")) {
                    assertEquals("<host|cuda>", label, command);
                }
            }
        }
    }

    @Test
    void defaultsAreWrittenInOneStyle() {
        Pattern style = Pattern.compile("[^.] \\(default: [^()]+\\)\\.");
        for (String command : Main.listed()) {
            for (OptionSpec o : options(command)) {
                String text = String.join(" ", o.description());
                assertFalse(text.isBlank(), command + o.longestName());
                if (text.toLowerCase(java.util.Locale.ROOT).contains("default:")
                        || text.contains("(default")) {
                    Matcher m = style.matcher(text);
                    assertTrue(
                            m.find() && m.end() == text.length(),
                            command + " has '" + text + "', expected it to end ' (default: x).'");
                }
            }
        }
    }

    @Test
    void helpListsCommandsInGroups() {
        Outcome o = jccl("--help");
        assertEquals(0, o.status, o::toString);
        List<String> titles = o.out.lines().filter(l -> l.matches("[A-Z][a-z ]+:")).toList();
        assertEquals(
                List.of("Benchmarks:", "Diagnose:", "Train and plan:", "Launch:", "About jccl:"),
                titles,
                o.out);
        for (String command : Main.listed()) {
            assertEquals(
                    1,
                    o.out.lines().filter(l -> l.matches(" +" + command + " .*")).count(),
                    command + " in " + o.out);
        }
        assertFalse(o.out.contains("warm-up"), o.out);
    }

    /** One line on standard error, nothing else, and status 2. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "allreduce | jccl: command 'allreduce' is unknown; did you mean all_reduce? Try 'jccl --help'",
                "tpoo | jccl: command 'tpoo' is unknown; did you mean topo? Try 'jccl --help'",
                "xyzzy | jccl: command 'xyzzy' is unknown; try 'jccl --help'",
                "help trian | jccl: command 'trian' is unknown; did you mean train? Try 'jccl --help'",
                "topo --fiel=x | jccl topo: Unknown option: '--fiel=x'; did you mean --file? Try 'jccl topo --help'",
                "plan --xyzzy | jccl plan: Unknown option: '--xyzzy'; try 'jccl plan --help'",
                "doctor now | jccl doctor: Unmatched argument at index 0: 'now'; try 'jccl doctor --help'",
                "run barrier | jccl run: Missing required option: '--nproc=<count>'; try 'jccl run --help'",
                "run -n 2 all_reduec | jccl run: 'all_reduec' is not a command of jccl, and there is no such program or class here; did you mean all_reduce? Try 'jccl run --help'",
                "run -n 2 run | jccl run: run cannot start run; give another command, such as all_reduce; try 'jccl run --help'",
                "store --port 70000 | jccl store: --port is 70000, expected 0 to 65535; try 'jccl store --help'",
                "store --port 80x | jccl store: Invalid value for option '--port': '80x' is not a whole number from 0 to 2147483647; give one; try 'jccl store --help'",
                "soak -n 0 | jccl soak: Invalid value for option '--operations': '0' is not a whole number from 1 to 2147483647; give one; try 'jccl soak --help'",
                "selftest -g 0 | jccl selftest: Invalid value for option '--ranks': '0' is not a whole number from 1 to 2147483647; give one; try 'jccl selftest --help'",
                "matmul -g 0 | jccl matmul: Invalid value for option '--ranks': '0' is not a whole number from 1 to 2147483647; give one; try 'jccl matmul --help'",
                "soak -g 3000000000 | jccl soak: Invalid value for option '--ranks': '3000000000' is not a whole number from 1 to 2147483647; give one; try 'jccl soak --help'",
                "plan --layers 1e3 | jccl plan: Invalid value for option '--layers': '1e3' is not a whole number from -2147483648 to 2147483647; give one; try 'jccl plan --help'",
                "train --steps 3000000000 | jccl train: Invalid value for option '--steps': '3000000000' is not a whole number from -2147483648 to 2147483647; give one; try 'jccl train --help'",
                "train --seed abc | jccl train: Invalid value for option '--seed': 'abc' is not a whole number from -9223372036854775808 to 9223372036854775807; give one; try 'jccl train --help'",
                "train --lr fast | jccl train: Invalid value for option '--lr': 'fast' is not a number; give one, such as 2, 0.5 or 1e-3; try 'jccl train --help'",
                "train --clip 1,5 | jccl train: Invalid value for option '--clip': '1,5' is not a number; give one, such as 2, 0.5 or 1e-3; try 'jccl train --help'",
                "soak -g 0 | jccl soak: Invalid value for option '--ranks': '0' is not a whole number from 1 to 2147483647; give one; try 'jccl soak --help'",
            })
    void wrongUseIsOneLineThatSaysWhatToTry(String line, String message) {
        Outcome o = jccl(line);
        assertEquals(2, o.status, o::toString);
        assertEquals("", o.out);
        assertEquals(message + System.lineSeparator(), o.err);
    }

    /** Whatever the command, a wrong option ends in one line. */
    @Test
    void everyCommandRefusesAnOptionThatItHasNot() {
        for (String command : Main.listed()) {
            Outcome o = jccl(command + " --no-such-option-at-all");
            String told = command + ": " + o;
            assertEquals(2, o.status, told);
            assertEquals(1, o.err.lines().count(), told);
            assertTrue(
                    o.err.strip().endsWith("ry 'jccl " + command + " --help'")
                            && o.err.matches(
                                    "(?s).*('--no-such-option-at-all'|Missing required).*"),
                    told);
            assertEquals("", o.out, told);
        }
    }

    @Test
    void helpOfACommandIsWhatItsOwnOptionPrints() {
        for (String command : Main.listed()) {
            Outcome o = jccl("help " + command);
            assertEquals(jccl(command + " --help"), o);
            assertEquals(0, o.status, o::toString);
            assertTrue(o.out.contains("jccl " + command), o.out);
        }
        assertEquals(jccl("--help"), jccl("help"));
    }

    /** What bash offers for a word that has been begun. */
    private static List<String> completed(Path script, String... words)
            throws IOException, InterruptedException {
        String ask =
                "compopt() { :; }; source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1));"
                        + " COMP_LINE=\"$*\"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9;"
                        + " _complete_jccl && printf '%s\n' \"${COMPREPLY[@]}\"";
        List<String> command = new ArrayList<>(List.of("bash", "-c", ask, "bash", "" + script));
        command.addAll(List.of(words));
        Process p = new ProcessBuilder(command).redirectErrorStream(true).start();
        String text = new String(p.getInputStream().readAllBytes(), UTF_8);
        assertEquals(0, p.waitFor(), text);
        return text.lines().map(String::strip).toList();
    }

    @Test
    void bashCompletesCommandsOptionsAndValues(@TempDir Path folder)
            throws IOException, InterruptedException {
        Outcome o = jccl("completion");
        assertEquals(0, o.status, o::toString);
        Path script = Files.writeString(folder.resolve("jccl"), o.out);
        List<String> commands = completed(script, "jccl", "");
        assertTrue(commands.containsAll(Main.listed()), commands::toString);
        assertFalse(commands.contains("warm-up"), commands::toString);
        assertTrue(completed(script, "jccl", "al").contains("all_reduce"));
        assertTrue(completed(script, "jccl", "topo", "--ex").contains("--explain"));
        assertEquals(
                List.of("core", "numa", "none"), completed(script, "jccl", "run", "--bind", ""));
        assertEquals(
                List.of("auto", "smi", "nccl-xml"),
                completed(script, "jccl", "topo", "--format", ""));
        assertEquals(
                List.of("math", "flash", "flash3"),
                completed(script, "jccl", "plan", "--attention", ""));
    }

    /** Each ends in a message that gives the value under the name of today. */
    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "all_reduce --output_file=/no/such/folder/x | --json '/no/such/folder/x' cannot",
                "all_reduce --output_file /no/such/folder/x | --json '/no/such/folder/x' cannot",
                "selftest --ngpus x | Invalid value for option '--ranks'",
                "soak --ngpus x | Invalid value for option '--ranks'",
                "matmul --ngpus x | Invalid value for option '--ranks'",
                "bandwidth --engine x | --device is 'x', expected host or cuda",
                "offload --engine x | --device is 'x', expected host or cuda",
                "offload --device-budget 1 | --device-memory is 1 bytes, but one layer needs",
                "fit-demo --micro-batches 0 | --accumulate is 0, expected 1",
                "plan --tensor x | Invalid value for option '--tp'",
                "plan --pipeline x | Invalid value for option '--pp'",
                "plan --seq x | Invalid value for option '--context'",
                "plan --sequence=x | Invalid value for option '--context'",
                "plan --vocabulary x | Invalid value for option '--vocab'",
                "plan --gradient-accumulation x | Invalid value for option '--accumulate'",
                "plan --stage x | Invalid value for option '--zero'",
                "plan --offload-params x | Invalid value for option '--offload-parameters'",
                "plan --recomputation x | Invalid value for option '--recompute'",
                "plan --nvme x | Invalid value for option '--nvme-memory'",
            })
    void earlierSpellingsAreUnderstood(String line, String message) {
        Outcome o = jccl(line);
        assertEquals(2, o.status, o::toString);
        assertTrue(o.err.contains(message), o::toString);
    }

    @Test
    void earlierSpellingsAreNotListedAndTheirSuccessorsAre() {
        Set<String> tested =
                Arrays.stream(CommandLineTest.class.getDeclaredMethods())
                        .filter(m -> m.getName().equals("earlierSpellingsAreUnderstood"))
                        .flatMap(m -> Arrays.stream(m.getAnnotation(CsvSource.class).value()))
                        .map(v -> v.replaceFirst("^(\\S+ --[a-z_-]+).*", "$1"))
                        .collect(Collectors.toSet());
        for (Map.Entry<String, Map<String, String>> e : Main.EARLIER.entrySet()) {
            for (Map.Entry<String, String> spelling : e.getValue().entrySet()) {
                String command = e.getKey();
                assertFalse(names(command).contains(spelling.getKey()), command + spelling);
                assertTrue(names(command).contains(spelling.getValue()), command + spelling);
                // The collectives share one table.
                String by = spelling.getKey().equals("--output_file") ? "all_reduce" : command;
                assertTrue(tested.contains(by + " " + spelling.getKey()), command + spelling);
            }
        }
    }

    @Test
    void jsonIsPrintedInsteadOfTextOrWrittenBesideIt(@TempDir Path folder) throws IOException {
        for (String command :
                List.of(
                        "plan --params 1B",
                        "all_reduce -b 8 -e 8 -n 1 -w 0 -g 2",
                        "topo --file " + ROOT.resolve("docs/examples/dgx-1.txt"))) {
            for (String option : List.of("--json", "-J", "--json=-", "-J -", "--json -")) {
                Outcome o = jccl(command + " " + option);
                assertEquals(0, o.status, o::toString);
                assertTrue(o.out.startsWith("{") && o.out.strip().endsWith("}"), o::toString);
            }
            Path file = folder.resolve("a.json");
            for (String option : List.of("--json ", "--json=", "-J ")) {
                Outcome o = jccl(command + " " + option + file);
                assertEquals(0, o.status, o::toString);
                assertFalse(o.out.startsWith("{"), o::toString);
                assertTrue(Files.readString(file).startsWith("{"), command);
                Files.delete(file);
            }
            Outcome o = jccl(command + " --json=" + folder);
            assertEquals(2, o.status, o::toString);
            assertTrue(o.err.contains("--json '" + folder + "' cannot be written: it is"), o.err);
        }
        // The word after it is not a file to overwrite, but a recording to read.
        Path recording = Files.writeString(folder.resolve("rank.json"), "no recording");
        Outcome o = jccl("flight --json " + recording);
        assertEquals("no recording", Files.readString(recording), o::toString);
        assertFalse(o.err.contains("Missing required parameter"), o::toString);
    }
}
