package io.jccl.rendezvous;

import io.jccl.error.JcclException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * A secret shared by all processes of a run. Both ends of a connection to a {@link StoreServer}
 * prove that they know it, without sending it, and it authenticates every message. Values are not
 * encrypted.
 *
 * <p>A guessable secret only protects against accidents: an attacker who records one connection can
 * test guesses offline. Use 32 random bytes, as printed by {@code openssl rand -hex 32}.
 *
 * <p><b>Threads:</b> any.
 */
public final class StoreSecret {
    /** Whether this process has printed the warning about a guessable secret. */
    private static final AtomicBoolean WARNED = new AtomicBoolean();

    /** The variable with the secret. */
    static final String VARIABLE = "JCCL_STORE_SECRET";

    /**
     * The variable with the path of a file that contains the secret; surrounding white space is
     * ignored.
     */
    static final String FILE_VARIABLE = "JCCL_STORE_SECRET_FILE";

    private static final String ALGORITHM = "HmacSHA256";
    private static final int RANDOM_BYTES = 32;

    private final byte[] key;
    private final String origin;
    private final boolean guessable;

    private StoreSecret(String text, String origin) {
        this(text, origin, false);
    }

    private StoreSecret(String text, String origin, boolean guessable) {
        if (text.isBlank()) {
            throw new IllegalArgumentException(
                    origin + " is empty, expected a secret; make one by openssl rand -hex 32");
        }
        this.key = text.strip().getBytes(StandardCharsets.UTF_8);
        this.origin = origin;
        this.guessable = guessable;
    }

    /**
     * Creates a random secret for one job: pass it to the job's processes by an environment
     * variable or a file, since command lines are visible to other users.
     *
     * @return 32 random bytes as 64 hexadecimal digits, different each time
     */
    public static String randomText() {
        byte[] random = new byte[RANDOM_BYTES];
        new SecureRandom().nextBytes(random);
        return HexFormat.of().formatHex(random);
    }

    /**
     * Whether variables name a secret.
     *
     * @param env names and values
     * @return true if {@code JCCL_STORE_SECRET} or {@code JCCL_STORE_SECRET_FILE} is set
     */
    public static boolean isIn(Map<String, String> env) {
        return env.containsKey(VARIABLE) || env.containsKey(FILE_VARIABLE);
    }

    /**
     * Creates a secret from text.
     *
     * @param text any characters; surrounding white space is ignored
     * @return the secret
     * @throws IllegalArgumentException if it is blank
     */
    public static StoreSecret of(String text) {
        return new StoreSecret(text, "the secret given");
    }

    /**
     * Reads the secret from {@code JCCL_STORE_SECRET} or the file named by {@code
     * JCCL_STORE_SECRET_FILE}. If neither is set, it is derived from the job's id. That separates
     * runs, but does not protect against other users of the machines or anyone who can guess the
     * id, so a process that serves a store with such a secret prints one warning line on standard
     * error.
     *
     * @param env variables of the process
     * @param jobId id that the processes of this run share
     * @return the secret
     * @throws IllegalArgumentException if the secret is blank
     * @throws JcclException if the file cannot be read
     */
    public static StoreSecret fromEnvironment(Map<String, String> env, String jobId) {
        String given = env.get(VARIABLE);
        if (given != null) {
            return new StoreSecret(given, VARIABLE);
        }
        String file = env.get(FILE_VARIABLE);
        if (file == null) {
            return new StoreSecret("job " + jobId, "the job's id ('" + jobId + "')", true);
        }
        try {
            return new StoreSecret(
                    Files.readString(Path.of(file)),
                    "the file " + file + " (" + FILE_VARIABLE + ")");
        } catch (IOException e) {
            throw new JcclException(
                    ("%s names %s, which cannot be read (%s); give a file that holds the secret,"
                                    + " readable by this user")
                            .formatted(FILE_VARIABLE, file, e),
                    e);
        }
    }

    /** Whether it is derived from the job's id, so that others may know it. */
    boolean isGuessable() {
        return guessable;
    }

    /** Prints a warning, once per process, if a store at the address has a guessable secret. */
    void warnIfGuessable(InetSocketAddress address) {
        if (isGuessable() && WARNED.compareAndSet(false, true)) {
            // A single write: other threads print too.
            System.err.println(
                    "jccl: warning: the store at "
                            + TcpAddress.text(
                                    address.getAddress().getHostAddress(), address.getPort())
                            + " has no secret, so others who reach it and guess the job's id can"
                            + " join the job: set JCCL_STORE_SECRET on all ranks to what openssl"
                            + " rand -hex 32 prints, once for each job");
        }
    }

    /** Where the secret comes from, for messages; never the secret itself. */
    String origin() {
        return origin;
    }

    /** Proof of knowledge: HMAC-SHA-256 (RFC 2104) over a label and the nonces of both sides. */
    byte[] prove(String label, byte[]... parts) {
        Mac mac = mac(key);
        mac.update(label.getBytes(StandardCharsets.US_ASCII));
        mac.update((byte) 0);
        for (byte[] part : parts) {
            mac.update(part);
        }
        return mac.doFinal();
    }

    static Mac mac(byte[] key) {
        try {
            Mac mac = Mac.getInstance(ALGORITHM);
            mac.init(new SecretKeySpec(key, ALGORITHM));
            return mac;
        } catch (GeneralSecurityException e) {
            throw new JcclException("this JVM has no " + ALGORITHM + ": " + e, e);
        }
    }

    @Override
    public String toString() {
        return "the secret of " + origin;
    }
}
