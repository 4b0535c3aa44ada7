package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class VersionTest {
    /** The encoding has one more digit for the minor number from 2.9 on. */
    @ParameterizedTest
    @CsvSource({
        "2408, 2.4.8",
        "2703, 2.7.3",
        "2804, 2.8.4",
        "20906, 2.9.6",
        "21003, 2.10.3",
        "22105, 2.21.5",
        "23007, 2.30.7",
        "30000, 3.0.0"
    })
    void ncclCodes(int code, String text) {
        assertEquals(text, Version.ofNccl(code).toString());
        assertEquals(code, Version.of(text).ncclCode());
    }

    @ParameterizedTest
    @CsvSource({"11080, 11.8", "12000, 12.0", "12040, 12.4", "13000, 13.0", "13010, 13.1"})
    void cudaCodes(int code, String text) {
        assertEquals(Version.of(text), Version.ofCuda(code));
        assertEquals(text, Version.ofCuda(code).toString());
    }

    @ParameterizedTest
    @CsvSource({"2.9, 2.8.4", "2.10.3, 2.9.6", "13.0, 12.9", "4.1.4, 4.1", "3, 2.30.7"})
    void orderIsByNumbers(String later, String earlier) {
        assertTrue(Version.of(later).atLeast(Version.of(earlier)));
        assertFalse(Version.of(earlier).atLeast(Version.of(later)));
        assertTrue(Version.of(later).compareTo(Version.of(earlier)) > 0);
    }

    @Test
    void noThirdNumberCountsAsZero() {
        assertTrue(Version.of("2.7").atLeast(Version.of("2.7.0")));
        assertTrue(Version.of("2.7.0").atLeast(Version.of("2.7")));
        assertEquals("2.7", Version.of("2.7").toString());
        assertEquals("2.7.0", Version.of("2.7.0").toString());
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "2.", ".7", "2.30.7.1", "2.x", "-2.7", "2,7", "v2.7"})
    void whatIsNoVersionIsNamed(String text) {
        IllegalArgumentException e =
                assertThrows(IllegalArgumentException.class, () -> Version.of(text));
        assertTrue(String.valueOf(e.getMessage()).contains("'" + text + "'"), e.getMessage());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, May 26, 2022 | 4.1.4",
                "Open MPI v5.0.0rc12, package: somebody | 5.0.0",
                "Open MPI v4.1.7a1 | 4.1.7",
                "Open MPI v6.0 | 6.0",
                "MPICH Version:  4.0.2 | 4.0.2",
                "Intel(R) MPI Library 2021.11 for Linux* OS | 2021.11",
                "MVAPICH Version :  4.0 | 4.0",
                "MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2) | 8.1.25"
            })
    void mpiTexts(String text, String version) throws OpenException {
        assertEquals(version, VersionProbe.ofMpi(text, 0).toString());
    }

    @ParameterizedTest
    @CsvSource(
            delimiter = '|',
            value = {
                "FG-MPI 3.1 | FG-MPI 3.1",
                "MVAPICH2 Version :\t2.3.7 | MVAPICH2 Version : 2.3.7",
                "Open MPI of no version | Open MPI of no version"
            })
    void otherMpisAreNamed(String text, String named) {
        OpenException e = assertThrows(OpenException.class, () -> VersionProbe.ofMpi(text, 0));
        assertEquals(OpenException.State.LOADED, e.state());
        assertTrue(e.reason().contains("'" + named + "'"), e.reason());
        assertTrue(e.reason().contains("is unknown to JCCL: use Open MPI, MPICH"), e.reason());
    }

    @Test
    void theFirstLineNamesAnMpi() {
        OpenException e =
                assertThrows(
                        OpenException.class,
                        () -> VersionProbe.ofMpi("Some MPI:\t4.0.2\nRelease date: x", 0));
        assertTrue(e.reason().contains("'Some MPI: 4.0.2'"), e.reason());
    }

    @Test
    void aLibraryOfTheStandardAbiNeedsNoKnownName() throws OpenException {
        assertEquals("5.0", VersionProbe.ofMpi("Some MPI 7", 1).toString());
        assertEquals("4.3.0", VersionProbe.ofMpi("MPICH Version: 4.3.0", 1).toString());
        OpenException e =
                assertThrows(OpenException.class, () -> VersionProbe.ofMpi("Some MPI 7", 2));
        assertTrue(e.reason().contains("version 2 of MPI's standard"), e.reason());
    }
}
