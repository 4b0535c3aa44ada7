package io.jccl.cli;

import io.jccl.testfake.TestFake;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;

/** Runs one command after the other in the same JVM, as {@link OnFakes} sends them. */
final class CommandLoop {
    private CommandLoop() {}

    /**
     * Reads rules of what goes wrong, the number of arguments and each of them, answers with the
     * status and the text.
     */
    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(System.in);
        PrintStream answers = System.out;
        DataOutputStream out = new DataOutputStream(answers);
        System.setOut(System.err);
        while (true) {
            String rules;
            try {
                rules = in.readUTF();
            } catch (EOFException e) {
                return;
            }
            String[] command = new String[in.readInt()];
            for (int i = 0; i < command.length; i++) {
                command[i] = in.readUTF();
            }
            StringWriter text = new StringWriter();
            PrintWriter both = new PrintWriter(text);
            if (!rules.isEmpty()) {
                TestFake.inject(rules);
            }
            int status = Main.execute(command, both, both);
            if (!rules.isEmpty()) {
                TestFake.reset();
            }
            byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
            out.writeInt(status);
            out.writeInt(bytes.length);
            out.write(bytes);
            out.flush();
        }
    }
}
