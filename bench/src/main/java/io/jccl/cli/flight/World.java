package io.jccl.cli.flight;

import static io.jccl.cli.shell.Text.format;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * One communicator as recorded.
 *
 * <p><b>Threads:</b> one.
 */
final class World {
    final String id;
    final String engine;

    /** Number of ranks, recorded or not. */
    final int ranks;

    /** Tracks by rank; ranks without a recording are missing. */
    final Map<Integer, Track> tracks = new TreeMap<>();

    final List<Signature> signatures = new ArrayList<>();
    private final Map<Signature, Integer> indices = new HashMap<>();

    /** The files that contain it. */
    final TreeSet<Path> files = new TreeSet<>();

    World(String id, String engine, int ranks) {
        this.id = id;
        this.engine = engine;
        this.ranks = ranks;
    }

    /**
     * What communicators that were split from one another have in common; on an engine that names
     * each by a number of its own, and without such a number, the id.
     */
    String job() {
        int slash = id.indexOf('/');
        return slash < 0 ? id : id.substring(0, slash);
    }

    int index(Signature s) {
        Integer known = indices.get(s);
        if (known == null) {
            known = signatures.size();
            signatures.add(s);
            indices.put(s, known);
        }
        return known;
    }

    Track track(int rank) {
        if (rank < 0 || rank >= ranks) {
            throw new IllegalArgumentException(
                    "rank " + rank + " of a communicator of " + ranks + " ranks");
        }
        return tracks.computeIfAbsent(rank, Track::new);
    }

    /** Merges the data of another file for the same communicator. */
    void merge(World other) {
        if (other.ranks != ranks) {
            throw new IllegalArgumentException(
                    format(
                            "communicator %s has %s ranks in %s and %s in %s",
                            id, ranks, files, other.ranks, other.files));
        }
        int[] translated = new int[other.signatures.size()];
        for (int i = 0; i < translated.length; i++) {
            translated[i] = index(other.signatures.get(i));
        }
        other.tracks.forEach((rank, t) -> track(rank).addAll(t, translated));
        files.addAll(other.files);
    }

    Signature signature(Track t, int i) {
        return signatures.get(t.signature[i]);
    }

    String describe(Track t, int i) {
        return signature(t, i).describe(t.count[i]);
    }

    /** Operations of all ranks. */
    long operations() {
        return tracks.values().stream().mapToLong(t -> t.size).sum();
    }
}
