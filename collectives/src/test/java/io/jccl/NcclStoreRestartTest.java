package io.jccl;

import org.junit.jupiter.api.Tag;

/** After each fault the same job starts again, at the same address. */
@Tag("exhaustive")
class NcclStoreRestartTest extends NcclStoreFaultTest {
    @Override
    void triesAgain() {
        startsAgain();
    }
}
