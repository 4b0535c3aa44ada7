package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.NcclConfig.Field;
import io.jccl.bindings.generated.nccl.ncclConfig_t;
import io.jccl.bindings.generated.nccl.ncclSimInfo_t;
import io.jccl.bindings.generated.nccl.nccl_h;
import io.jccl.bindings.internal.ForeignMemory;
import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.FieldSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The struct as NCCL of each version expects it. */
@Timeout(value = 1, unit = TimeUnit.MINUTES)
class NcclConfigTest {
    private static final int UNDEF = Integer.MIN_VALUE;

    /**
     * A version of nccl.h: one that added fields, or the last before such a one.
     *
     * @param version of the release
     * @param added declarations of the new fields
     */
    record Header(String version, String... added) {
        @Override
        public String toString() {
            return version;
        }
    }

    private static final List<Header> HISTORY =
            List.of(
                    new Header(
                            "2.14.3",
                            "size_t size",
                            "unsigned int magic",
                            "unsigned int version",
                            "int blocking"),
                    new Header("2.16.5"),
                    new Header(
                            "2.17.1",
                            "int cgaClusterSize",
                            "int minCTAs",
                            "int maxCTAs",
                            "const char *netName"),
                    new Header("2.18.1", "int splitShare"),
                    new Header("2.25.1"),
                    new Header("2.26.2", "int trafficClass"),
                    new Header("2.26.6"),
                    new Header(
                            "2.27.3",
                            "const char *commName",
                            "int collnetEnable",
                            "int CTAPolicy",
                            "int shrinkShare",
                            "int nvlsCTAs"),
                    new Header("2.27.7"),
                    new Header("2.28.3", "int nChannelsPerNetPeer", "int nvlinkCentricSched"),
                    new Header("2.28.9"),
                    new Header("2.29.2", "int graphUsageMode", "int numRmaCtx"),
                    new Header("2.29.7"),
                    new Header("2.30.3", "int maxP2pPeers"),
                    new Header("2.30.4"),
                    new Header("2.30.7", "int graphStreamOrdering"));

    @TempDir static Path folder;

    /** What the compiler makes of the struct as it was in a version. */
    @ParameterizedTest
    @FieldSource("HISTORY")
    void theStructIsThatOfTheLoadedVersion(Header header) {
        List<String> fields =
                HISTORY.subList(0, HISTORY.indexOf(header) + 1).stream()
                        .flatMap(each -> Arrays.stream(each.added))
                        .toList();
        List<String> names =
                fields.stream()
                        .map(f -> f.substring(f.lastIndexOf(' ') + 1).replace("*", ""))
                        .toList();
        Map<String, Long> c = layout(header, fields, names);
        assertTrue(names.size() > 3 && c.size() == names.size() + 1);

        Version version = Version.of(header.version);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment empty = new NcclConfig().allocate(arena, version);
            assertEquals(at(c, "sizeof"), ncclConfig_t.size(empty));
            assertEquals(0xcafebeef, ncclConfig_t.magic(empty));
            assertEquals(version.ncclCode(), ncclConfig_t.version(empty));
            NcclConfig config = new NcclConfig();
            for (int i = 0; i < names.size(); i++) {
                String name = names.get(i);
                assertEquals(
                        ncclConfig_t.layout().byteOffset(PathElement.groupElement(name)),
                        at(c, name),
                        name);
                if (i < 3) {
                    continue;
                }
                Field field = field(name);
                if (fields.get(i).contains("char")) {
                    assertEquals(0, empty.get(ValueLayout.JAVA_LONG, at(c, name)), name);
                    config = config.with(field, name + "-ü");
                } else {
                    assertEquals(
                            field == Field.BLOCKING ? 1 : UNDEF,
                            empty.get(ValueLayout.JAVA_INT, at(c, name)),
                            name);
                    config = config.with(field, -100 - i);
                }
            }
            assertEquals(List.of(), config.unsupported(version));
            MemorySegment full = config.allocate(arena, version);
            for (int i = 3; i < names.size(); i++) {
                String name = names.get(i);
                if (fields.get(i).contains("char")) {
                    long text = full.get(ValueLayout.JAVA_LONG, at(c, name));
                    assertEquals(name + "-ü", ForeignMemory.at(text, 64).getString(0));
                } else {
                    assertEquals(-100 - i, full.get(ValueLayout.JAVA_INT, at(c, name)), name);
                }
            }
            // Every other field is refused, as NCCL would ignore it in silence.
            for (Field field : Field.values()) {
                if (!names.contains(field.cName())) {
                    assertRefused(field, version);
                }
            }
        }
    }

    private static Map<String, Long> layout(
            Header header, List<String> fields, List<String> names) {
        String prints =
                names.stream()
                        .map(name ->
                                "    printf(\"%s %%zu\\n\", offsetof(config, %s));\n"
                                        .formatted(name, name))
                        .collect(Collectors.joining());
        String source =
                """
                #include <stddef.h>
                #include <stdio.h>
                typedef struct {
                    %s;
                } config;
                int main(void) {
                    printf("sizeof %%zu\\n", sizeof(config));
                %s    return 0;
                }
                """
                        .formatted(String.join(";\n    ", fields), prints);
        String name = "config_" + header.version.replace('.', '_');
        return new CCompiler(folder)
                .run(name, source, List.of("-Wall")).stream()
                        .map(line -> line.split(" ", 2))
                        .collect(Collectors.toMap(pair -> pair[0], pair -> Long.valueOf(pair[1])));
    }

    private static long at(Map<String, Long> c, String name) {
        return Objects.requireNonNull(c.get(name), name);
    }

    private static Field field(String name) {
        return Stream.of(Field.values())
                .filter(field -> field.cName().equals(name))
                .findFirst()
                .orElseThrow(() -> new AssertionError(name));
    }

    private static void assertRefused(Field field, Version version) {
        NcclConfig config =
                field == Field.COMM_NAME || field == Field.NET_NAME
                        ? new NcclConfig().with(field, "x")
                        : new NcclConfig().with(field, 1);
        assertEquals(List.of(field), config.unsupported(version));
        assertEquals(
                "ncclConfig_t.%s needs NCCL %s, loaded %s: do not set it"
                        .formatted(field.cName(), field.since(), version),
                assertThrows(
                                UnsupportedOperationException.class,
                                () -> config.allocate(Arena.global(), version))
                        .getMessage());
    }

    /** Releases between, and those that are newer than the header. */
    @ParameterizedTest
    @CsvSource({
        "2.14.0, 24, 21400",
        "2.16.5, 24, 21605",
        "2.17.0, 40, 21700",
        "2.22.3, 48, 22203",
        "2.25.1, 48, 22501",
        "2.26.6, 48, 22606",
        "2.27.7, 72, 22707",
        "2.28.9, 80, 22809",
        "2.29.7, 88, 22907",
        "2.30.4, 96, 23004",
        "2.30.5, 96, 23005",
        "2.30.7, 96, 23007",
        "2.30.8, 96, 23007",
        "2.31.0, 96, 23007",
        "3.0, 96, 23007"
    })
    void sizeAndVersionFitTheSmallerOfBoth(String runtime, long size, int code) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment config = new NcclConfig().allocate(arena, Version.of(runtime));
            assertEquals(size, ncclConfig_t.size(config));
            assertEquals(code, ncclConfig_t.version(config));
            assertEquals(1, ncclConfig_t.blocking(config));
            assertEquals(ncclConfig_t.sizeof(), config.byteSize(), "never shorter than its type");
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"2.7.8", "2.13.4"})
    void thereIsNoStructBefore214(String runtime) {
        assertEquals(
                "ncclConfig_t needs NCCL 2.14, loaded " + runtime,
                assertThrows(
                                UnsupportedOperationException.class,
                                () ->
                                        new NcclConfig()
                                                .allocate(Arena.global(), Version.of(runtime)))
                        .getMessage());
    }

    @ParameterizedTest
    @EnumSource
    void kindsOfValuesAreChecked(Field field) {
        boolean text = field == Field.COMM_NAME || field == Field.NET_NAME;
        NcclConfig config = new NcclConfig();
        IllegalArgumentException error =
                assertThrows(
                        IllegalArgumentException.class,
                        () -> {
                            if (text) {
                                config.with(field, 5);
                            } else {
                                config.with(field, "five");
                            }
                        });
        assertEquals(
                "ncclConfig_t."
                        + field.cName()
                        + (text
                                ? " cannot be 5: it takes text"
                                : " cannot be 'five': it takes a number"),
                error.getMessage());
        assertEquals(List.of(), config.unsupported(Version.of("2.14")), "nothing was set");
    }

    @Test
    void theMarkOfAFieldThatIsNotSetIsNoValue() {
        assertEquals(nccl_h.NCCL_CONFIG_UNDEF_INT(), UNDEF);
        NcclConfig config = new NcclConfig();
        assertEquals(
                "ncclConfig_t.maxCTAs cannot be -2147483648: NCCL treats that as 'not set'",
                assertThrows(
                                IllegalArgumentException.class,
                                () -> config.with(Field.MAX_CTAS, UNDEF))
                        .getMessage());
    }

    @Test
    void theLastValueCounts() {
        try (Arena arena = Arena.ofConfined()) {
            NcclConfig config = new NcclConfig().with(Field.BLOCKING, 1).with(Field.BLOCKING, 0);
            MemorySegment first = config.allocate(arena, Version.of("2.30.7"));
            assertEquals(0, ncclConfig_t.blocking(first));
            NcclConfig other = config.with(Field.MIN_CTAS, 3);
            assertFalse(config.has(Field.MIN_CTAS), "a configuration does not change");
            assertEquals(UNDEF, ncclConfig_t.minCTAs(first), "a struct is a copy");
            assertEquals(3, ncclConfig_t.minCTAs(other.allocate(arena, Version.of("2.30.7"))));
        }
    }

    @ParameterizedTest
    @CsvSource({"2.22.3, 22203", "2.30.7, 23007", "2.31.2, 23007"})
    void simInfoIsInitialized(String runtime, int code) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment info = NcclConfig.simInfo(arena, Version.of(runtime));
            assertEquals(24, ncclSimInfo_t.size(info));
            assertEquals(0x74685283, ncclSimInfo_t.magic(info));
            assertEquals(code, ncclSimInfo_t.version(info));
            assertEquals(-1f, ncclSimInfo_t.estimatedTime(info));
        }
    }
}
