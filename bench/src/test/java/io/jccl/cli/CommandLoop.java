package io.jccl.cli;

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

    /** Reads the number of arguments and each of them, answers with the status and the text. */
    public static void main(String[] args) throws IOException {
        DataInputStream in = new DataInputStream(System.in);
        PrintStream answers = System.out;
        DataOutputStream out = new DataOutputStream(answers);
        System.setOut(System.err);
        while (true) {
            String[] command;
            try {
                command = new String[in.readInt()];
            } catch (EOFException e) {
                return;
            }
            for (int i = 0; i < command.length; i++) {
                command[i] = in.readUTF();
            }
            StringWriter text = new StringWriter();
            PrintWriter both = new PrintWriter(text);
            int status = Main.execute(command, both, both);
            byte[] bytes = text.toString().getBytes(StandardCharsets.UTF_8);
            out.writeInt(status);
            out.writeInt(bytes.length);
            out.write(bytes);
            out.flush();
        }
    }
}
