package io.jccl.bindings;

import static java.util.Objects.requireNonNull;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.BoundLibrary.Function;
import io.jccl.bindings.internal.ForeignMemory;
import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.GroupLayout;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Every function of every table, called with arguments that all differ: a C function of its
 * prototype writes down what it gets, and answers with a number of its own.
 */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class ArgumentTest {
    /** What the C functions write. */
    interface Notes extends NativeApi {
        @Symbol(value = "jccl_bytes", address = true)
        long bytes();

        @Symbol(value = "jccl_used", address = true)
        long used();
    }

    private static final List<Function> FUNCTIONS =
            Arrays.stream(BoundLibrary.values()).flatMap(BoundLibrary::functions).toList();

    @TempDir static Path folder;

    private static final Map<BoundLibrary, NativeApi> TABLES = new EnumMap<>(BoundLibrary.class);
    private static SymbolLookup symbols = name -> Optional.empty();

    @BeforeEach
    void compile() {
        if (!TABLES.isEmpty()) {
            return;
        }
        String structs =
                FUNCTIONS.stream()
                        .flatMap(f -> Binder.descriptor(f.method()).argumentLayouts().stream())
                        .filter(GroupLayout.class::isInstance)
                        .map(struct ->
                                "typedef struct { char bytes[%d]; } %s;\n"
                                        .formatted(struct.byteSize(), type(struct)))
                        .distinct()
                        .collect(Collectors.joining());
        String source =
                IntStream.range(0, FUNCTIONS.size())
                        .mapToObj(ArgumentTest::definition)
                        .collect(
                                Collectors.joining(
                                        "",
                                        structs
                                                + """
                                                #include <string.h>
                                                char jccl_bytes[1024];
                                                long long jccl_used;
                                                static void put(const void* argument, int size) {
                                                    memcpy(jccl_bytes + jccl_used, argument, size);
                                                    jccl_used += size;
                                                }
                                                """,
                                        ""));
        Path library = new CCompiler(folder).library("jcclrecord", source);
        symbols = SymbolLookup.libraryLookup(library, Arena.global());
        for (BoundLibrary each : BoundLibrary.values()) {
            TABLES.put(each, bind(each.api()));
        }
    }

    private static <T extends NativeApi> T bind(Class<T> api) {
        Version newest = new Version(99, 0, 0);
        return Binder.bind(
                api, new LoadedLibrary(NativeLibrary.NCCL, newest, "/none", "test"), symbols);
    }

    static Stream<Function> functions() {
        return FUNCTIONS.stream();
    }

    @ParameterizedTest
    @MethodSource("functions")
    void everyArgumentArrivesInItsPlace(Function function) throws ReflectiveOperationException {
        Notes notes = bind(Notes.class);
        MemorySegment used = ForeignMemory.at(notes.used(), Long.BYTES);
        used.set(ValueLayout.JAVA_LONG, 0, 0);
        List<MemoryLayout> layouts = Binder.descriptor(function.method()).argumentLayouts();
        ByteBuffer expected = ByteBuffer.allocate(1024).order(ByteOrder.nativeOrder());
        try (Arena arena = Arena.ofConfined()) {
            Object[] arguments = new Object[layouts.size()];
            for (int i = 0; i < arguments.length; i++) {
                arguments[i] = argument(layouts.get(i), i, arena, expected);
            }
            NativeApi table = requireNonNull(TABLES.get(function.library()));
            assertTrue(table.supports(function.method().getName()));
            Object result = function.method().invoke(table, arguments);

            byte[] wanted = Arrays.copyOf(expected.array(), expected.position());
            byte[] received =
                    ForeignMemory.at(notes.bytes(), used.get(ValueLayout.JAVA_LONG, 0))
                            .toArray(ValueLayout.JAVA_BYTE);
            assertArrayEquals(wanted, received);
            int number = FUNCTIONS.indexOf(function);
            Class<?> type = function.method().getReturnType();
            assertEquals(
                    type == void.class
                            ? null
                            : type == String.class
                                    ? "text of " + function
                                    : type == double.class
                                            ? (Object) (number + 0.25)
                                            : (Object) (1000 + number),
                    result);
        }
    }

    /** A value that no other argument has in any of its bytes that count. */
    private static Object argument(MemoryLayout layout, int i, Arena arena, ByteBuffer expected) {
        int number = 0x8182_8384 + i * 0x0101_0101;
        long wide = 0x4142_4344_8182_8384L + i * 0x0101_0101_0101_0101L;
        switch (layout) {
            case ValueLayout.OfInt kind -> {
                expected.putInt(number);
                return number;
            }
            case ValueLayout.OfLong kind -> {
                expected.putLong(wide);
                return wide;
            }
            case AddressLayout kind -> {
                expected.putLong(wide);
                return MemorySegment.ofAddress(wide);
            }
            case GroupLayout struct -> {
                MemorySegment segment = arena.allocate(struct);
                for (int at = 0; at < struct.byteSize(); at++) {
                    segment.set(ValueLayout.JAVA_BYTE, at, (byte) (at + i + 1));
                }
                expected.put(segment.asByteBuffer());
                return segment;
            }
            default -> throw new AssertionError(layout);
        }
    }

    private static String definition(int number) {
        Function function = FUNCTIONS.get(number);
        FunctionDescriptor descriptor = Binder.descriptor(function.method());
        List<MemoryLayout> layouts = descriptor.argumentLayouts();
        String parameters =
                IntStream.range(0, layouts.size())
                        .mapToObj(i -> type(layouts.get(i)) + " a" + i)
                        .collect(Collectors.joining(", "));
        String puts =
                IntStream.range(0, layouts.size())
                        .mapToObj("    put(&a%1$d, sizeof a%1$d);\n"::formatted)
                        .collect(Collectors.joining());
        Class<?> result = function.method().getReturnType();
        String type = descriptor.returnLayout().map(ArgumentTest::type).orElse("void");
        String answer =
                result == void.class
                        ? ""
                        : result == String.class
                                ? "\"text of " + function + "\""
                                : result == double.class ? number + ".25" : "" + (1000 + number);
        return "%s %s(%s) {\n%s    return %s;\n}\n"
                .formatted(
                        type,
                        function.symbol(),
                        parameters.isEmpty() ? "void" : parameters,
                        puts,
                        answer);
    }

    private static String type(MemoryLayout layout) {
        return switch (layout) {
            case ValueLayout.OfInt kind -> "int";
            case ValueLayout.OfLong kind -> "long long";
            case ValueLayout.OfDouble kind -> "double";
            case AddressLayout kind -> "void*";
            case GroupLayout struct -> "struct" + struct.byteSize();
            default -> throw new AssertionError(layout);
        };
    }
}
