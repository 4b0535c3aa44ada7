package io.jccl.rendezvous;

import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;

/** A process that counts in a folder store, and reads values while others replace them. */
final class StoreWorker {
    static final int TIMES = 200;
    private static final int BYTES = 20_000;

    private StoreWorker() {}

    /**
     * Runs.
     *
     * @param args the folder
     */
    public static void main(String[] args) {
        int rank = Integer.parseInt(System.getenv("RANK"));
        try (Store store = Store.folder(Path.of(args[0]))) {
            store.set("here-" + rank, new byte[0]);
            store.await("here-" + (1 - rank), Duration.ofSeconds(60));
            byte[] mine = new byte[BYTES];
            Arrays.fill(mine, (byte) (rank + 1));
            for (int i = 0; i < TIMES; i++) {
                store.add("counter", 1);
                store.set("value", mine);
                byte[] seen = store.await("value", Duration.ofSeconds(10));
                for (byte b : seen) {
                    if (seen.length != BYTES || b != seen[0]) {
                        throw new AssertionError("a value in pieces: " + seen.length + " bytes");
                    }
                }
            }
        }
        System.out.println("DONE");
    }
}
