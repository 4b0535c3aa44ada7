package io.jccl.device.cuda;

import io.jccl.device.Cuda;

/** A process that asks for its GPUs, and says what it is told. */
final class CudaLookupWorker {
    private CudaLookupWorker() {}

    /**
     * Runs it.
     *
     * @param args not used
     */
    public static void main(String[] args) {
        say("count", () -> Integer.toString(Cuda.deviceCount()));
        say("device", () -> Cuda.device(0).toString());
        say("again", () -> Cuda.device(0).toString());
        say("view", () -> Cuda.view(0).toString());
    }

    private interface Question {
        String ask();
    }

    private static void say(String what, Question question) {
        String answer;
        try {
            answer = question.ask();
        } catch (RuntimeException | Error e) {
            answer = e.toString().replace('\n', ' ');
        }
        System.out.println(what + ": " + answer);
    }
}
