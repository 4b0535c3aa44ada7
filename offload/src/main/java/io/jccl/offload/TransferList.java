package io.jccl.offload;

import org.jspecify.annotations.Nullable;

/**
 * Transfers that wait, linked through their own fields: by falling priority, equal ones in the
 * order in which they came. Guarded by the {@link CopyQueue}.
 */
final class TransferList {
    private @Nullable Transfer first;
    private @Nullable Transfer last;
    private int size;

    /** How many of those have chunks in the stream, or had. */
    private int begun;

    @Nullable Transfer first() {
        return first;
    }

    int size() {
        return size;
    }

    void add(Transfer t) {
        Transfer before = last;
        while (before != null && before.priority < t.priority) {
            before = before.previous;
        }
        Transfer after = before == null ? first : before.next;
        t.previous = before;
        t.next = after;
        if (before == null) {
            first = t;
        } else {
            before.next = t;
        }
        if (after == null) {
            last = t;
        } else {
            after.previous = t;
        }
        t.queued = true;
        size++;
    }

    void remove(Transfer t) {
        Transfer before = t.previous;
        Transfer after = t.next;
        if (before == null) {
            first = after;
        } else {
            before.next = after;
        }
        if (after == null) {
            last = before;
        } else {
            after.previous = before;
        }
        t.previous = null;
        t.next = null;
        t.queued = false;
        size--;
        if (t.begun) {
            t.begun = false;
            begun--;
        }
    }

    /** A first chunk of a transfer that stays in the list was taken. */
    void begin(Transfer t) {
        if (!t.begun) {
            t.begun = true;
            begun++;
        }
    }

    /** Whether another transfer has chunks in the stream, and more to come. */
    boolean overtakes(Transfer t) {
        return begun > (t.begun ? 1 : 0);
    }
}
