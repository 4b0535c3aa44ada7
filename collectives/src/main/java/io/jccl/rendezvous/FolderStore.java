package io.jccl.rendezvous;

import io.jccl.bindings.JcclException;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/** One file for each value, which appears complete or not at all. */
final class FolderStore implements Store {
    private static final int LONGEST_KEY = 200;

    private final Path folder;

    FolderStore(Path folder) {
        this.folder = folder;
        try {
            Files.createDirectories(folder);
        } catch (IOException e) {
            throw failed("be made", e);
        }
    }

    private JcclException failed(String what, IOException e) {
        return new JcclException("the store in " + folder + " cannot " + what + ": " + e, e);
    }

    private Path file(String key) {
        String name = URLEncoder.encode(key, StandardCharsets.UTF_8).replace(".", "%2E");
        if (key.isEmpty() || name.length() > LONGEST_KEY) {
            throw new IllegalArgumentException(
                    "key '" + key + "' is empty or longer than " + LONGEST_KEY + " characters");
        }
        return folder.resolve(name);
    }

    @Override
    public void set(String key, byte[] value) {
        Path file = file(key);
        Path part = folder.resolve(".part-" + UUID.randomUUID());
        try {
            Files.write(part, value);
            Files.move(
                    part,
                    file,
                    StandardCopyOption.ATOMIC_MOVE,
                    StandardCopyOption.REPLACE_EXISTING);
        } catch (IOException e) {
            throw failed("take '" + key + "'", e);
        }
    }

    @Override
    public byte @Nullable [] get(String key) {
        try {
            return Files.readAllBytes(file(key));
        } catch (NoSuchFileException e) {
            return null;
        } catch (IOException e) {
            throw failed("give '" + key + "'", e);
        }
    }

    @Override
    public long add(String key, long delta) {
        // Threads of one JVM share file locks, so they take turns here.
        synchronized (FolderStore.class) {
            try (FileChannel channel =
                            FileChannel.open(
                                    file(key),
                                    StandardOpenOption.CREATE,
                                    StandardOpenOption.READ,
                                    StandardOpenOption.WRITE);
                    FileLock lock = channel.lock()) {
                ByteBuffer number = ByteBuffer.allocate(Long.BYTES);
                int read = channel.read(number, 0);
                long value = (read == Long.BYTES ? number.getLong(0) : 0) + delta;
                if (delta != 0 && lock.isValid()) {
                    channel.write(ByteBuffer.allocate(Long.BYTES).putLong(0, value), 0);
                }
                return value;
            } catch (IOException e) {
                throw failed("count '" + key + "'", e);
            }
        }
    }

    @Override
    public void close() {
        // No file stays open.
    }

    @Override
    public String toString() {
        return "the store in " + folder;
    }
}
