package io.jccl.cli.shell;

import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.cli.Main;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import picocli.CommandLine;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.ParameterException;

class ParsedTest {
    /** Types are found by their names, which the compiler does not check. */
    @Test
    void everyTypeWithAParserIsConvertedByIt() {
        Map<String, String> expected = new TreeMap<>();
        Map<String, String> messages = new TreeMap<>();
        for (CommandLine line : Main.tree().getSubcommands().values()) {
            Parsed.byType(line);
            for (OptionSpec option : line.getCommandSpec().options()) {
                Class<?> type = option.auxiliaryTypes()[0];
                if (option.converters().length > 0 || !type.getName().startsWith("io.jccl.")) {
                    continue;
                }
                for (Method m : type.getMethods()) {
                    if (Set.of("of", "ofName").contains(m.getName())
                            && m.getParameterCount() == 1
                            && m.getParameterTypes()[0] == String.class) {
                        expected.put(type.getName(), refusal(m));
                        messages.put(type.getName(), refusal(line, option));
                    }
                }
            }
        }
        assertTrue(expected.size() > 5, expected::toString);
        expected.forEach((type, message) -> {
            String said = String.valueOf(messages.get(type));
            assertTrue(said.contains(message), type + ": " + said);
        });
    }

    private static String refusal(Method parser) {
        InvocationTargetException e =
                assertThrows(InvocationTargetException.class, () -> parser.invoke(null, "no-such"));
        Throwable cause = e.getCause();
        assertNotNull(cause);
        return String.valueOf(cause.getMessage());
    }

    private static String refusal(CommandLine line, OptionSpec option) {
        String argument = option.longestName() + "=no-such";
        ParameterException e =
                assertThrows(ParameterException.class, () -> line.parseArgs(argument));
        return String.valueOf(e.getMessage());
    }
}
