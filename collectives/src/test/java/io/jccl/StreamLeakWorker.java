package io.jccl;

import io.jccl.device.Device;
import io.jccl.device.Stream;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;

/** Forgets a stream, and prints when its thread has ended. */
final class StreamLeakWorker {
    private StreamLeakWorker() {}

    /** Takes no arguments. */
    public static void main(String[] args) throws InterruptedException {
        closeOne();
        Thread thread = forgetOne();
        for (int i = 0; thread.isAlive() && i < 1000; i++) {
            System.gc();
            Thread.sleep(20);
        }
        if (thread.isAlive()) {
            System.out.println("the thread of a stream that nobody has lives on");
            System.exit(1);
        }
        // What would be reported twice would be by now.
        System.gc();
        Thread.sleep(500);
        System.out.println("ENDED");
    }

    private static Thread forgetOne() throws InterruptedException {
        return threadOf(Device.host().newStream());
    }

    private static void closeOne() throws InterruptedException {
        try (Stream stream = Device.host().newStream()) {
            threadOf(stream);
        }
    }

    private static Thread threadOf(Stream stream) throws InterruptedException {
        BlockingQueue<Thread> known = new ArrayBlockingQueue<>(1);
        stream.launchHostFunction(() -> known.add(Thread.currentThread()));
        return known.take();
    }
}
