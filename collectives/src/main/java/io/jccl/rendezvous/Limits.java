package io.jccl.rendezvous;

/** Limits of keys and values, the same in all stores. */
final class Limits {
    static final int KEY_CHARACTERS = 200;
    static final int VALUE_BYTES = Store.MAX_VALUE_BYTES;

    private Limits() {}

    static String key(String key) {
        if (key.isEmpty() || key.length() > KEY_CHARACTERS) {
            throw new IllegalArgumentException(
                    "key '%s' has %s characters, expected 1 to %s"
                            .formatted(key, key.length(), KEY_CHARACTERS));
        }
        return key;
    }

    static byte[] value(String key, byte[] value) {
        if (value.length > VALUE_BYTES) {
            throw new IllegalArgumentException(
                    ("the value of '%s' has %s bytes, expected at most %s; a store is for small"
                                    + " values, so send the rest by a collective")
                            .formatted(key, value.length, VALUE_BYTES));
        }
        return value;
    }
}
