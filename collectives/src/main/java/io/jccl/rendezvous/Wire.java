package io.jccl.rendezvous;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * The wire protocol of a store. Handshake: the server sends {@code MAGIC, nonce}; the client {@code
 * MAGIC, nonce, session, RESUME or not, proof}; the server {@code verdict, proof}. Then follow
 * requests {@code op, id, lowest id still open, key, arguments} and responses {@code id, result}.
 * Numbers are big endian.
 */
final class Wire {
    /** The last character is the protocol's version. */
    static final byte[] MAGIC = "JCCLSTO1".getBytes(StandardCharsets.US_ASCII);

    static final int NONCE_BYTES = 32;
    static final int SESSION_BYTES = 16;
    static final int PROOF_BYTES = 32;

    /** Operations of requests. */
    enum Op {
        SET,
        GET,
        AWAIT,
        ADD,
        COMPARE_AND_SET,
        /** Cancels the request whose number is the argument. */
        CANCEL,
        PING,
        BYE;

        private static final Op[] ALL = values();

        static @Nullable Op of(byte b) {
            return b >= 0 && b < ALL.length ? ALL[b] : null;
        }

        /** Whether executing it twice differs from executing it once. */
        boolean changes() {
            return this == SET || this == ADD || this == COMPARE_AND_SET;
        }
    }

    /** The server's response to a client's handshake. */
    enum Verdict {
        WELCOME,
        WRONG_SECRET,
        UNKNOWN_SESSION;

        private static final Verdict[] ALL = values();

        static @Nullable Verdict of(byte b) {
            return b >= 0 && b < ALL.length ? ALL[b] : null;
        }
    }

    private Wire() {}

    /** A request without its number, which {@link #stamp} fills in. */
    static byte[] request(Op op, String key, byte[]... arguments) {
        byte[] k = key.getBytes(StandardCharsets.UTF_8);
        int length = 1 + 2 * Long.BYTES + Integer.BYTES + k.length;
        for (byte[] a : arguments) {
            length += a.length;
        }
        ByteBuffer b = ByteBuffer.allocate(length);
        b.put((byte) op.ordinal()).putLong(0).putLong(0).putInt(k.length).put(k);
        for (byte[] a : arguments) {
            b.put(a);
        }
        return b.array();
    }

    static byte[] stamp(byte[] request, long id, long lowestOpen) {
        byte[] stamped = request.clone();
        ByteBuffer.wrap(stamped).putLong(1, id).putLong(1 + Long.BYTES, lowestOpen);
        return stamped;
    }

    static byte[] number(long n) {
        return ByteBuffer.allocate(Long.BYTES).putLong(0, n).array();
    }

    /** A value that may be null, with a length prefix. */
    static byte[] optional(byte @Nullable [] value) {
        ByteBuffer b = ByteBuffer.allocate(Integer.BYTES + (value == null ? 0 : value.length));
        return value == null ? b.putInt(-1).array() : b.putInt(value.length).put(value).array();
    }

    static byte @Nullable [] optional(ByteBuffer from) {
        int length = from.getInt();
        return length == -1 ? null : bytes(from, length);
    }

    static byte[] bytes(ByteBuffer from, int length) {
        if (length < 0 || length > from.remaining()) {
            throw new BufferUnderflowException();
        }
        byte[] b = new byte[length];
        from.get(b);
        return b;
    }

    static String key(ByteBuffer from) {
        return new String(bytes(from, from.getInt()), StandardCharsets.UTF_8);
    }

    static byte[] rest(ByteBuffer from) {
        return bytes(from, from.remaining());
    }

    static byte[] answer(long id, byte[] result) {
        return ByteBuffer.allocate(Long.BYTES + result.length).putLong(id).put(result).array();
    }

    static byte[] join(byte[]... parts) {
        int length = 0;
        for (byte[] p : parts) {
            length += p.length;
        }
        byte[] all = new byte[length];
        int at = 0;
        for (byte[] p : parts) {
            System.arraycopy(p, 0, all, at, p.length);
            at += p.length;
        }
        return all;
    }

    static boolean isMagic(byte[] b) {
        return Arrays.equals(b, MAGIC);
    }
}
