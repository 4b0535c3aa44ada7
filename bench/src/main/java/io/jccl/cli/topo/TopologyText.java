package io.jccl.cli.topo;

import io.jccl.cli.shell.Text;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.AccessDeniedException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.List;

/** Reads a text, such as that of a topology, from a file or a stream. */
public final class TopologyText {
    /** Options that name such a text; others name something else. */
    private static final List<String> TOPOLOGIES = List.of("--file", "--plan", "--machine");

    /** Larger than any dump; rejects files passed by mistake. */
    private static final int MOST_BYTES = 64 << 20;

    static final String HOW = "; make one on the machine with: nvidia-smi topo -m > dump.txt";

    private TopologyText() {}

    /**
     * Reads a text file.
     *
     * @param option the option that names it
     * @param file the file
     * @return the text
     * @throws IOException if it cannot be read; the message has the reason and a remedy
     */
    public static String read(String option, Path file) throws IOException {
        String how = TOPOLOGIES.contains(option) ? HOW : "";
        String named = option + " '" + file + "' cannot be read: ";
        if (Files.isDirectory(file)) {
            throw new IOException(named + "it is a folder; give a file" + how);
        }
        try (InputStream in = Files.newInputStream(file)) {
            return read(file.toString(), in, how);
        } catch (NoSuchFileException e) {
            throw new IOException(named + "there is no such file" + how, e);
        } catch (AccessDeniedException e) {
            throw new IOException(named + "permission denied; make it readable", e);
        } catch (IOException e) {
            throw new IOException(named + Text.reason(e), e);
        }
    }

    /** Reads a stream that messages call {@code name}. */
    static String read(String name, InputStream in) throws IOException {
        return read(name, in, HOW);
    }

    private static String read(String name, InputStream in, String how) throws IOException {
        byte[] bytes = in.readNBytes(MOST_BYTES + 1);
        if (bytes.length > MOST_BYTES) {
            throw new IOException(name + " has more than 64 MiB, which no such text has" + how);
        }
        return new String(bytes, charset(bytes));
    }

    /** Redirection in Windows PowerShell writes UTF-16. */
    private static Charset charset(byte[] bytes) {
        int mark = bytes.length < 2 ? 0 : (bytes[0] & 0xff) << 8 | (bytes[1] & 0xff);
        if (mark == 0xfffe || mark == 0xfeff) {
            return StandardCharsets.UTF_16;
        }
        return StandardCharsets.UTF_8;
    }
}
