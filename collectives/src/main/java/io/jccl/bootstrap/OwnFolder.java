package io.jccl.bootstrap;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipal;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ThreadLocalRandom;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * Decides whether a folder is a job's folder of this user, so that it may be used or deleted.
 *
 * <p>The parent folder may hold files of others, with any name. A folder is accepted only if it is
 * a real folder of this user with mode {@code rwx------} and contains the marker that JCCL writes.
 * It may be deleted only if it also holds nothing but files that JCCL creates. Folders are renamed
 * to and from their final name with the marker in them, so no job's folder is ever visible without
 * it.
 */
final class OwnFolder {
    static final String PREFIX = "jccl-";

    /** Marks a job's folder, and is locked by a process that changes it. */
    static final String MARKER = "gate";

    static final byte[] MARK = "JCCL job folder, version 1\n".getBytes(StandardCharsets.US_ASCII);

    private static final Set<PosixFilePermission> FOLDER_MODE =
            PosixFilePermissions.fromString("rwx------");
    private static final FileAttribute<?> PRIVATE_FOLDER =
            PosixFilePermissions.asFileAttribute(FOLDER_MODE);
    private static final FileAttribute<?> PRIVATE_FILE =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

    /** All names of files that JCCL creates in a job's folder. */
    private static final Pattern FILES =
            Pattern.compile(
                    MARKER
                            + "|rank-\\d+\\.lock"
                            + "|(ctl-0(\\.(\\d+|s[0-9a-f]{1,8}))*|heap-\\d+-\\d+)(\\.part)?"
                            + "|(card-\\d+-\\d+|verdict-\\d+|refused-\\d+)(\\.\\d+\\.part)?");

    /** Suffix of a folder's name while it is being created or deleted. */
    static final String NEW = ".new-";

    static final String OLD = ".old-";
    private static final Pattern TEMPORARY = Pattern.compile("\\.(new|old)-[0-9a-f]+$");

    static final String STORE = "store-";
    private static final Pattern STORES = Pattern.compile(STORE + "\\d+");

    /** File names of a store's keys such as {@code world/card-0}. */
    private static final Pattern STORE_FILES =
            Pattern.compile(MARKER + "|\\.lock-\\d+|\\.part-[0-9a-f-]{36}|[\\w*+%-]+%2F[\\w*+%-]+");

    /** Owner of files created in a folder. */
    private static final Map<Path, UserPrincipal> OWNERS = new ConcurrentHashMap<>();

    private OwnFolder() {}

    /** A folder's path is occupied by something other than a job's folder of this user. */
    static final class ForeignException extends IOException {
        static final long serialVersionUID = 1L;

        ForeignException(String message) {
            super(message);
        }
    }

    static PosixFileAttributes attributes(Path file) throws IOException {
        return Files.readAttributes(file, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    }

    /** Owner of files that this process creates, as the file system reports it. */
    private static UserPrincipal self() throws IOException {
        Path root = SharedFolder.root();
        UserPrincipal known = OWNERS.get(root);
        if (known == null) {
            Path probe = Files.createTempFile(root, PREFIX, ".probe");
            try {
                known = Files.getOwner(probe);
            } finally {
                Files.delete(probe);
            }
            OWNERS.put(root, known);
        }
        return known;
    }

    /** Throws unless a path is a folder of this user with a marker in it. */
    static void checkOurs(Path folder) throws IOException {
        UserPrincipal self = self();
        PosixFileAttributes a = attributes(folder);
        if (!isPrivateFolder(a, self)) {
            throw new ForeignException(
                    "it is a "
                            + (a.isSymbolicLink()
                                    ? "symbolic link"
                                    : a.isDirectory() ? "folder" : "file")
                            + " of user "
                            + a.owner().getName()
                            + " with mode "
                            + PosixFilePermissions.toString(a.permissions())
                            + ", expected a folder of user "
                            + self.getName()
                            + " with mode "
                            + PosixFilePermissions.toString(FOLDER_MODE));
        }
        Path marker = folder.resolve(MARKER);
        if (!Files.exists(marker, LinkOption.NOFOLLOW_LINKS)
                || !isOwnFile(marker, self)
                || Files.size(marker) != MARK.length) {
            if (!attributes(folder).fileKey().equals(a.fileKey())) {
                // Another rank has renamed it for deletion and created a new one.
                throw new NoSuchFileException(marker.toString());
            }
            throw unmarked();
        }
    }

    private static boolean isPrivateFolder(PosixFileAttributes a, UserPrincipal self) {
        return a.isDirectory() && a.owner().equals(self) && a.permissions().equals(FOLDER_MODE);
    }

    private static boolean isOwnFile(Path file, UserPrincipal self) throws IOException {
        PosixFileAttributes a = attributes(file);
        return a.isRegularFile() && a.owner().equals(self);
    }

    static ForeignException unmarked() {
        return new ForeignException(
                "it has no file '"
                        + MARKER
                        + "' of this version of JCCL, so something else made it");
    }

    /** Creates a job's folder, unless the path exists. */
    static void make(Path path) throws IOException {
        if (Files.exists(path, LinkOption.NOFOLLOW_LINKS)) {
            return;
        }
        Path made = beside(path, NEW);
        try {
            makeMarked(made);
            Files.move(made, path, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            Files.deleteIfExists(made.resolve(MARKER));
            Files.deleteIfExists(made);
            if (!Files.exists(path, LinkOption.NOFOLLOW_LINKS)) {
                throw e;
            }
            // Another rank was faster.
        }
    }

    static Path beside(Path folder, String what) {
        return folder.resolveSibling(
                folder.getFileName()
                        + what
                        + Long.toHexString(ThreadLocalRandom.current().nextLong()));
    }

    /** Whether a path can be one that {@link #beside} created for a folder. */
    static boolean isTemporary(Path folder, Path path) {
        String name = path.getFileName().toString();
        String start = folder.getFileName().toString();
        return name.startsWith(start)
                && TEMPORARY.matcher(name.substring(start.length())).matches();
    }

    private static boolean isBeingDeleted(@Nullable Path folder) {
        return folder != null && folder.getFileName().toString().contains(OLD);
    }

    /**
     * Deletes a folder with a temporary name whose creator was killed before it wrote the marker,
     * or whose remover was killed after it deleted the marker: it holds nothing, or an empty
     * marker.
     *
     * @return false if it is something else
     */
    static boolean removeUnfinished(Path folder) throws IOException {
        if (!TEMPORARY.matcher(folder.getFileName().toString()).find()
                || !isPrivateFolder(attributes(folder), self())) {
            return false;
        }
        List<Path> files = new ArrayList<>();
        try (DirectoryStream<Path> found = Files.newDirectoryStream(folder)) {
            found.forEach(files::add);
        }
        Path marker = folder.resolve(MARKER);
        if (files.equals(List.of(marker)) && isOwnFile(marker, self()) && Files.size(marker) == 0) {
            Files.delete(marker);
        } else if (!files.isEmpty()) {
            return false;
        }
        Files.delete(folder);
        return true;
    }

    static void makeMarked(Path folder) throws IOException {
        Files.createDirectory(folder, PRIVATE_FOLDER);
        write(folder.resolve(MARKER), MARK);
    }

    /** Writes a new file; unlike a channel's, an interrupt of the thread does not end that. */
    static Path write(Path file, byte[] content) throws IOException {
        return Files.write(Files.createFile(file, PRIVATE_FILE), content, StandardOpenOption.WRITE);
    }

    /** Opens a file without following links; a created file is accessible to its user only. */
    static FileChannel open(Path file, OpenOption... more) throws IOException {
        List<OpenOption> options = new ArrayList<>(List.of(more));
        options.addAll(
                List.of(
                        StandardOpenOption.READ,
                        StandardOpenOption.WRITE,
                        LinkOption.NOFOLLOW_LINKS));
        return FileChannel.open(file, Set.copyOf(options), PRIVATE_FILE);
    }

    private static boolean isNamed(Path file, Pattern names) {
        return names.matcher(String.valueOf(file.getFileName())).matches();
    }

    /**
     * Lists the files of a folder, in an order in which they can be deleted. The folder of a run's
     * store is the only one that is descended into.
     *
     * @return false if there is anything that JCCL does not create
     */
    private static boolean collect(Path folder, Pattern names, List<Path> found)
            throws IOException {
        UserPrincipal self = self();
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder)) {
            for (Path f : files) {
                boolean ours =
                        (names == FILES && isNamed(f, STORES))
                                ? isPrivateFolder(attributes(f), self) && collectStore(f, found)
                                : isNamed(f, names) && isOwnFile(f, self);
                if (!ours) {
                    return false;
                }
                found.add(f);
            }
        }
        return true;
    }

    private static boolean collectStore(Path store, List<Path> found) throws IOException {
        List<Path> files = new ArrayList<>();
        // It is empty if its creator was killed before it wrote the marker, and has none if a
        // process
        // wrote to it while it was being deleted with its folder, whose marker goes last.
        boolean ours =
                collect(store, STORE_FILES, files)
                        && (files.isEmpty()
                                || files.contains(store.resolve(MARKER))
                                || isBeingDeleted(store.getParent()));
        found.addAll(files);
        return ours;
    }

    /**
     * The files of a job's folder, in an order in which they can be deleted; null if there is
     * anything in it that JCCL does not create.
     */
    static @Nullable List<Path> list(Path folder) throws IOException {
        List<Path> files = new ArrayList<>();
        return collect(folder, FILES, files) ? files : null;
    }

    /** The same for a store's folder, after a check that it is one. */
    static @Nullable List<Path> listStore(Path store) throws IOException {
        checkOurs(store);
        List<Path> files = new ArrayList<>();
        return collectStore(store, files) ? files : null;
    }

    /** Whether it is a regular file with a name that JCCL uses. */
    static boolean isOurs(Path file) {
        return isNamed(file, FILES) && Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS);
    }
}
