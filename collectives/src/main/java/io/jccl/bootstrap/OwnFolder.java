package io.jccl.bootstrap;

import java.io.IOException;
import java.nio.ByteBuffer;
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
 * What makes a folder a job's folder of this user, so that it may be used or deleted.
 *
 * <p>Others may keep files beside it, with any name. A folder is taken for a job's only if it is a
 * real folder of this user with mode {@code rwx------} and has the marker that JCCL writes. It may
 * be deleted only if it also holds nothing but files that JCCL makes. Folders get and lose their
 * name with the marker in them, so none of ours is ever seen without.
 */
final class OwnFolder {
    static final String PREFIX = "jccl-";

    /** Marks a folder of ours, and is locked by who changes what others rely on. */
    static final String MARKER = "gate";

    static final byte[] MARK = "JCCL job folder, version 1\n".getBytes(StandardCharsets.US_ASCII);

    private static final Set<PosixFilePermission> FOLDER_MODE =
            PosixFilePermissions.fromString("rwx------");
    private static final FileAttribute<?> PRIVATE_FOLDER =
            PosixFilePermissions.asFileAttribute(FOLDER_MODE);
    private static final FileAttribute<?> PRIVATE_FILE =
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"));

    /** All names that this class and its users give to files. */
    private static final Pattern FILES =
            Pattern.compile(
                    MARKER
                            + "|rank-\\d+\\.lock"
                            + "|(ctl-0(\\.\\d+)*|heap-\\d+-\\d+)(\\.part)?"
                            + "|(card-\\d+-\\d+|verdict-\\d+|refused-\\d+)(\\.\\d+\\.part)?");

    /** What follows a folder's name while it is made, or after it was taken out of the way. */
    static final String NEW = ".new-";

    static final String OLD = ".old-";
    private static final Pattern TEMPORARY = Pattern.compile("\\.(new|old)-[0-9a-f]+$");

    static final String STORE = "store-";
    private static final Pattern STORES = Pattern.compile(STORE + "\\d+");

    /** What a store in a folder makes of keys such as {@code world/card-0}. */
    private static final Pattern STORE_FILES =
            Pattern.compile(MARKER + "|\\.lock-\\d+|\\.part-[0-9a-f-]{36}|[\\w*+%-]+%2F[\\w*+%-]+");

    /** Who files made in a folder belong to. */
    private static final Map<Path, UserPrincipal> OWNERS = new ConcurrentHashMap<>();

    private OwnFolder() {}

    /** What is at a folder's path is not a job's folder of this user. */
    static final class ForeignException extends IOException {
        static final long serialVersionUID = 1L;

        ForeignException(String message) {
            super(message);
        }
    }

    static PosixFileAttributes attributes(Path file) throws IOException {
        return Files.readAttributes(file, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
    }

    /** The user to whom files belong that this process makes: asked of the file system itself. */
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

    /** Throws unless a path is a folder of this user's with a marker in it. */
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
                // Another rank has moved it away, to delete it, and made a new one.
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

    /** Makes a job's folder, unless something is there already. */
    static void make(Path path) throws IOException {
        if (Files.exists(path, LinkOption.NOFOLLOW_LINKS)) {
            return;
        }
        Path made = beside(path, NEW);
        makeMarked(made);
        try {
            Files.move(made, path, StandardCopyOption.ATOMIC_MOVE);
        } catch (IOException e) {
            Files.deleteIfExists(made.resolve(MARKER));
            Files.delete(made);
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

    /** Whether a path may be one that {@link #beside} made for a folder. */
    static boolean isTemporary(Path folder, Path path) {
        String name = path.getFileName().toString();
        String start = folder.getFileName().toString();
        return name.startsWith(start)
                && TEMPORARY.matcher(name.substring(start.length())).matches();
    }

    /**
     * Deletes a folder with a temporary name whose maker was killed before it wrote the marker, or
     * whose remover after it deleted it: it holds nothing, or an empty marker.
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
        try (FileChannel c = open(folder.resolve(MARKER), StandardOpenOption.CREATE_NEW)) {
            c.write(ByteBuffer.wrap(MARK));
        }
    }

    /** Opens a file, for its user alone if it is made, and none that a link leads to. */
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
     * store is the only one that is looked into.
     *
     * @return false if there is anything that JCCL does not make
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
        // Its maker may have been killed before it wrote the marker: then it is empty.
        boolean ours =
                collect(store, STORE_FILES, files)
                        && (files.isEmpty() || files.contains(store.resolve(MARKER)));
        found.addAll(files);
        return ours;
    }

    /**
     * The files of a job's folder, in an order in which they can be deleted; null if there is
     * anything in it that JCCL does not make.
     */
    static @Nullable List<Path> list(Path folder) throws IOException {
        List<Path> files = new ArrayList<>();
        return collect(folder, FILES, files) ? files : null;
    }

    /** The same of a store's folder, which is checked to be one. */
    static @Nullable List<Path> listStore(Path store) throws IOException {
        checkOurs(store);
        List<Path> files = new ArrayList<>();
        return collectStore(store, files) ? files : null;
    }

    /** Whether a file has a name that JCCL gives, and is one. */
    static boolean isOurs(Path file) {
        return isNamed(file, FILES) && Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS);
    }
}
