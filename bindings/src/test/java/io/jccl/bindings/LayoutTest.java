package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Layouts and constants against the headers themselves: a C program prints what the compiler makes
 * of every name that is bound.
 */
@Timeout(value = 5, unit = TimeUnit.MINUTES)
class LayoutTest {
    @TempDir Path folder;

    /** What the generated classes say, by the C expressions that must give the same. */
    private final Map<String, String> bound = new LinkedHashMap<>();

    private final StringBuilder program = new StringBuilder();

    @ParameterizedTest
    @EnumSource
    void theHeaderSaysTheSame(BoundLibrary library) throws ReflectiveOperationException {
        CCompiler compiler = new CCompiler(folder);
        Headers headers = Headers.of(library, compiler, folder);
        for (Class<?> struct : library.structs().toList()) {
            addStruct(struct, headers.text());
        }
        for (Field typedef : library.typedefs().toList()) {
            long size = ((MemoryLayout) typedef.get(null)).byteSize();
            addNumber("sizeof(" + typedef.getName() + ")", size);
        }
        for (Method constant : library.constants().toList()) {
            addConstant(constant.getName(), constant.invoke(null));
        }
        // An object is found by its symbol: it has to be what the header's macro stands for.
        library.objects()
                .forEach(object ->
                        addNumber(
                                "(char*) %s - (char*) &%s".formatted(object, object.symbol()), 0));
        // A property of the library's release, not of its interface.
        bound.remove("OMPI_RELEASE_VERSION");

        List<String> printed =
                compiler.run(library + "_layout", source(library.include()), headers.flags());
        Map<String, String> header =
                printed.stream()
                        .map(line -> line.split(" = ", 2))
                        .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        assertFalse(bound.isEmpty());
        bound.forEach((name, value) -> assertEquals(header.get(name), value, name));
    }

    private void addStruct(Class<?> struct, String header) throws ReflectiveOperationException {
        String name = struct.getSimpleName();
        // A typedef extends the struct it stands for; that may have a tag, or only a typedef.
        Pattern tag = Pattern.compile("\\bstruct\\b[^;{}]*?\\b" + name + "\\s*\\{");
        String type = tag.matcher(header).find() ? "struct " + name : name;
        MemoryLayout layout = (MemoryLayout) struct.getMethod("layout").invoke(null);
        addNumber("sizeof(" + type + ")", layout.byteSize());
        addNumber("_Alignof(" + type + ")", layout.byteAlignment());
        List<Method> offsets =
                Arrays.stream(struct.getMethods())
                        .filter(method -> method.getName().endsWith("$offset"))
                        .sorted(Comparator.comparing(Method::getName))
                        .toList();
        for (Method offset : offsets) {
            String field = offset.getName().substring(0, offset.getName().indexOf('$'));
            addNumber("offsetof(" + type + ", " + field + ")", (long) offset.invoke(null));
            MemoryLayout part = (MemoryLayout) struct.getMethod(field + "$layout").invoke(null);
            addNumber("sizeof(((" + type + "*) 0)->" + field + ")", part.byteSize());
        }
    }

    private void addConstant(String name, Object value) {
        switch (value) {
            // An unsigned constant may be negative in Java.
            case Integer number when number < 0 -> addNumber(name, "(int) (" + name + ")", number);
            case Integer number -> addNumber(name, name, number);
            case Float number -> addNumber(name, name + " == (float) " + number, 1);
            case MemorySegment text when text.byteSize() > 0 ->
                    add(name, "'%s'", name, "'" + text.getString(0) + "'");
            case MemorySegment pointer ->
                    addNumber(name, "(intptr_t) (" + name + ")", pointer.address());
            default -> throw new AssertionError(name + " is a " + value.getClass());
        }
    }

    private void addNumber(String expression, long value) {
        addNumber(expression, expression, value);
    }

    private void addNumber(String name, String expression, long value) {
        add(name, "%lld", "(long long) (" + expression + ")", Long.toString(value));
    }

    private void add(String name, String format, String expression, String value) {
        program.append("    printf(\"%s = %s\\n\", %s);\n".formatted(name, format, expression));
        bound.put(name, value);
    }

    private String source(String include) {
        return """
        #include <%s>
        #include <stddef.h>
        #include <stdint.h>
        #include <stdio.h>
        int main(void) {
        %s    return 0;
        }
        """
                .formatted(include, program);
    }
}
