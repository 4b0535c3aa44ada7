package io.jccl.cli.launch;

import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Handles signals of this process and sends signals to others. */
enum Signals {
    HUP(1),
    INT(2),
    TERM(15);

    /** Far above what a shell takes to start, also on a machine that is overloaded. */
    private static final long SEND_SECONDS = 20;

    /** See proc_pid_stat(5): pgrp is its 5th field, tty_nr the 7th, tpgid the 8th. */
    private static final Path STAT = Path.of("/proc/self/stat");

    private final int number;

    Signals(int number) {
        this.number = number;
    }

    /** The exit status by which a shell reports a process that the signal ended. */
    int status() {
        return 128 + number;
    }

    /** Restores the previous handler. */
    interface Taken extends AutoCloseable {
        @Override
        void close();
    }

    /**
     * Installs a handler, which runs on a new thread each time. A signal that this process ignores,
     * such as HUP under nohup, stays ignored. If the JVM does not use a signal (-Xrs), nothing
     * happens.
     *
     * <p>By reflection: sun.misc.Signal is the only way to receive a signal in Java, the JDK
     * intends to keep it (JEP 260), and javac's warning about it cannot be switched off.
     */
    static Taken take(Consumer<Signals> handler) {
        Map<Object, Object> before = new LinkedHashMap<>();
        for (Signals s : values()) {
            try {
                Class<?> type = Class.forName("sun.misc.Signal");
                Class<?> handlerType = Class.forName("sun.misc.SignalHandler");
                Object signal = type.getConstructor(String.class).newInstance(s.name());
                Object proxy =
                        Proxy.newProxyInstance(
                                handlerType.getClassLoader(),
                                new Class<?>[] {handlerType},
                                (self, method, arguments) -> {
                                    return switch (method.getName()) {
                                        case "handle" -> {
                                            handler.accept(s);
                                            yield null;
                                        }
                                        case "hashCode" -> System.identityHashCode(self);
                                        case "equals" -> self == arguments[0];
                                        default -> "jccl's handler of SIG" + s;
                                    };
                                });
                before.put(
                        signal,
                        type.getMethod("handle", type, handlerType).invoke(null, signal, proxy));
            } catch (ReflectiveOperationException e) {
                // No jdk.unsupported, or the JVM does not handle this signal: its default acts.
            }
        }
        return () -> before.forEach(Signals::restore);
    }

    private static void restore(Object signal, Object handler) {
        try {
            signal.getClass()
                    .getMethod("handle", signal.getClass(), Class.forName("sun.misc.SignalHandler"))
                    .invoke(null, signal, handler);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("SIG" + signal + " cannot be given back", e);
        }
    }

    /**
     * Sends this signal to the processes that still run, without waiting for its effect. Java
     * itself only sends TERM; the others need the shell's built-in kill, since not every system has
     * a program of that name.
     */
    void send(List<ProcessHandle> processes) {
        if (this == TERM) {
            processes.forEach(ProcessHandle::destroy);
            return;
        }
        List<String> command =
                new ArrayList<>(List.of("sh", "-c", "kill -" + name() + " \"$@\"", "sh"));
        processes.stream()
                .filter(ProcessHandle::isAlive)
                .forEach(p -> command.add(Long.toString(p.pid())));
        if (command.size() == 4) {
            return;
        }
        try {
            Process kill =
                    new ProcessBuilder(command)
                            .redirectErrorStream(true)
                            .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                            .start();
            if (kill.waitFor(SEND_SECONDS, TimeUnit.SECONDS)) {
                return; // 0, or one of them has just ended
            }
            kill.destroyForcibly();
        } catch (IOException e) {
            // No shell: TERM is better than nothing.
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        processes.forEach(ProcessHandle::destroy);
    }

    /**
     * Whether a terminal has sent this signal, or would have, to this process's whole group: then
     * children have it already. A signal that another process sent only to this one cannot be
     * distinguished from the terminal's.
     */
    boolean isOfTerminal() {
        if (this == TERM) {
            return false;
        }
        try {
            // The 2nd field, the program's name in parentheses, may itself contain spaces and
            // parentheses.
            String stat = Files.readString(STAT);
            String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ", -1);
            return !fields[4].equals("0") && fields[2].equals(fields[5]);
        } catch (IOException e) {
            return false; // not Linux
        }
    }
}
