package io.jccl.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.jccl.bindings.internal.ThreadAffinity;
import io.jccl.error.JcclException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

@EnabledOnOs(OS.LINUX)
class ThreadAffinityTest {
    private static String allowed() throws Exception {
        return Files.readAllLines(Path.of("/proc/thread-self/status")).stream()
                .filter(l -> l.startsWith("Cpus_allowed_list:"))
                .findFirst()
                .orElseThrow()
                .substring("Cpus_allowed_list:".length())
                .strip();
    }

    private static BitSet set(int... cpus) {
        BitSet set = new BitSet();
        for (int c : cpus) {
            set.set(c);
        }
        return set;
    }

    @Test
    void aThreadIsBoundAndNoOther() throws Exception {
        assertTrue(ThreadAffinity.isAvailable());
        String before = allowed();
        int first = Integer.parseInt(before.split("[-,]", 2)[0]);
        FutureTask<String> task =
                new FutureTask<>(() -> {
                    ThreadAffinity.set(set(first));
                    return allowed();
                });
        Thread.ofPlatform().start(task);
        assertEquals(Integer.toString(first), task.get());
        assertEquals(before, allowed());
    }

    @Test
    void whatCannotBeIsRefused() {
        assertThrows(IllegalArgumentException.class, () -> ThreadAffinity.set(set()));
        assertThrows(IllegalArgumentException.class, () -> ThreadAffinity.set(set(8192)));
        JcclException e = assertThrows(JcclException.class, () -> ThreadAffinity.set(set(8191)));
        String message = String.valueOf(e.getMessage());
        assertTrue(message.contains("{8191}") && message.contains("errno 22"), message);
    }

    @Test
    void aVirtualThreadIsRefused() throws Exception {
        FutureTask<String> task =
                new FutureTask<>(() ->
                        assertThrows(IllegalStateException.class, () -> ThreadAffinity.set(set(0)))
                                .getMessage());
        Thread.ofVirtual().start(task);
        assertTrue(task.get().contains("virtual thread"), task.get());
    }
}
