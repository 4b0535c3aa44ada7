package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.BoundLibrary.Function;
import io.jccl.bindings.generated.nccl.nccl_h;
import java.lang.foreign.AddressLayout;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.GroupLayout;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.ValueLayout;
import java.lang.reflect.Parameter;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** The call tables against the signatures that jextract read from the headers. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class SignatureTest {
    @TempDir static Path folder;

    private static boolean loaded;

    /** Generated code looks a symbol up before it tells the signature: any symbol will do. */
    @BeforeEach
    void loadSymbols() {
        if (loaded) {
            return;
        }
        String source =
                Arrays.stream(BoundLibrary.values())
                        .flatMap(library -> library.generatedFunctions().stream())
                        .map(name -> "void " + name + "(void) {}\n")
                        .collect(Collectors.joining());
        System.load(new CCompiler(folder).library("jcclsymbols", source).toString());
        loaded = true;
    }

    static Stream<Function> functions() {
        return Arrays.stream(BoundLibrary.values()).flatMap(BoundLibrary::functions);
    }

    static Stream<Function> objects() {
        return Arrays.stream(BoundLibrary.values()).flatMap(BoundLibrary::objects);
    }

    @ParameterizedTest
    @MethodSource("functions")
    void typesAreThoseOfTheHeader(Function function) throws ReflectiveOperationException {
        FunctionDescriptor header = function.library().generated(function.symbol());
        FunctionDescriptor ours = Binder.descriptor(function.method());
        assertEquals(header.argumentLayouts().size(), ours.argumentLayouts().size());
        assertEquals(header.returnLayout().isPresent(), ours.returnLayout().isPresent());
        for (int i = 0; i < header.argumentLayouts().size(); i++) {
            MemoryLayout want = header.argumentLayouts().get(i);
            MemoryLayout have = ours.argumentLayouts().get(i);
            assertTrue(standsFor(have, want), i + ": " + have + " is not " + want);
        }
        header.returnLayout()
                .ifPresent(want -> {
                    MemoryLayout have = ours.returnLayout().orElseThrow();
                    assertTrue(standsFor(have, want), "result: " + have + " is not " + want);
                });
    }

    /** Tells two arguments of one type apart, such as the send and the receive buffer. */
    @ParameterizedTest
    @MethodSource("functions")
    void argumentsHaveTheNamesOfTheHeader(Function function) {
        List<String> header = function.library().generatedParameters(function.symbol());
        List<String> ours =
                Arrays.stream(function.method().getParameters()).map(Parameter::getName).toList();
        assertEquals(header.size(), ours.size());
        for (int i = 0; i < header.size(); i++) {
            String want = header.get(i).toLowerCase(Locale.ROOT);
            String have = ours.get(i).toLowerCase(Locale.ROOT);
            // NcclApi marks results, and writes names out that nccl.h shortens.
            boolean like =
                    function.library() == BoundLibrary.NCCL
                            && (have.startsWith(want)
                                    || want.endsWith(have.replaceFirst("^out", ""))
                                    || have.startsWith("out" + want));
            assertTrue(have.equals(want) || like, ours + " are not " + header);
        }
    }

    @ParameterizedTest
    @EnumSource
    void everyGeneratedFunctionIsInTheTable(BoundLibrary library) {
        assertEquals(
                sorted(library.generatedFunctions()),
                sorted(library.functions().map(Function::symbol).toList()));
    }

    @Test
    void ncclIsComplete() {
        Set<String> names = BoundLibrary.NCCL.generatedFunctions();
        assertEquals(63, names.size());
        assertTrue(names.stream().allMatch(name -> name.startsWith("nccl")), () -> "" + names);
        assertEquals(Version.of("2.30.7"), Version.ofNccl(nccl_h.NCCL_VERSION_CODE()));
    }

    @ParameterizedTest
    @MethodSource("objects")
    void anObjectIsAnAddress(Function object) {
        assertEquals(long.class, object.method().getReturnType());
        assertEquals(0, object.method().getParameterCount());
    }

    /** A version that a function came with is no later than the header that has the function. */
    @ParameterizedTest
    @EnumSource
    void versionsMakeSense(BoundLibrary library) {
        Version header =
                switch (library) {
                    case NCCL -> NcclConfig.header();
                    case CUDART, CUDA, CUBLAS -> Version.of("13.1.1");
                    case MPI -> Version.of("4.1.4");
                };
        Stream.concat(library.functions(), library.objects())
                .filter(function -> function.method().isAnnotationPresent(Since.class))
                .forEach(function -> {
                    Since since = function.method().getAnnotation(Since.class);
                    assertTrue(header.atLeast(Version.of(since.value())), function.toString());
                });
    }

    private static boolean standsFor(MemoryLayout ours, MemoryLayout header) {
        return switch (header) {
            case AddressLayout pointer ->
                    ours instanceof AddressLayout || ours.equals(ValueLayout.JAVA_LONG);
            case ValueLayout number ->
                    ours instanceof ValueLayout value
                            && value.carrier() == number.carrier()
                            && value.byteSize() == number.byteSize()
                            && value.byteAlignment() == number.byteAlignment();
            case GroupLayout struct ->
                    ours.byteSize() == struct.byteSize()
                            && ours.byteAlignment() == struct.byteAlignment()
                            && ours.equals(struct);
            default -> false;
        };
    }

    private static String sorted(Collection<String> names) {
        return names.stream().sorted().collect(Collectors.joining("\n"));
    }
}
