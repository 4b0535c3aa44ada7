package io.jccl.engine.mpi;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Ids of communicators, by which the service thread finds them. */
class MpiIdTest {
    /** Of a program that opens and splits many, whose ranks take part in different ones. */
    @Test
    void splitsOfAllCommunicatorsDiffer() {
        Set<Long> ids = new HashSet<>();
        for (long world = 1; world <= 50; world++) {
            for (long split = 1; split <= 50; split++) {
                for (int colour = 0; colour < 8; colour++) {
                    long id = MpiCommunicator.childId(world, split, colour);
                    assertTrue(id < 0 && ids.add(id), world + " " + split + " " + colour);
                }
                long child = MpiCommunicator.childId(world, split, 0);
                assertTrue(ids.add(MpiCommunicator.childId(child, 1, 0)), world + " " + split);
            }
        }
    }
}
